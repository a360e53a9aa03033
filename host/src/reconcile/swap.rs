//! Another build takes the place of a module while it runs.
//!
//! In come the contents of its file; out comes the swap of a pointer, or why there is none. A candidate passes every check of the start,
//! goes on where the running build is (`operator_core::swap`), and has the types watched that are new with it, before a key is given to
//! it. Whatever it fails, the running build serves on. Queue, tables and memories of keys stay; every key is looked at again, after the work
//! that is waiting.

use super::gate::{self, Gate};
use super::serving::Serving;
use super::{GATES, Operator, Shared};
use crate::module::{Content, LoadError, ModuleFile, Problem, Runtime, misplaced};
use crate::watch::TypeState;
use operator_core::contract::Descriptor;
use operator_core::queue::Priority;
use operator_core::swap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tracing::{error, info};

/// A build that passed every check and may have to wait for its types.
struct Candidate {
    serving: Arc<Serving>,
    /// What is different about it.
    changes: Vec<String>,
}

/// Follows the file of one module until the host ends.
pub(super) async fn follow(shared: Arc<Shared>, index: usize, runtime: Arc<Runtime>, mut file: ModuleFile) {
    let Some(operator) = shared.operators.get(index) else { return };
    let mut candidate = None;
    loop {
        tokio::select! {
            content = file.settled() => candidate = shared.consider(operator, &runtime, file.path(), content).await,
            () = shared.until_watched(operator, candidate.as_ref()) => {
                candidate.take().into_iter().for_each(|candidate| shared.activate(index, operator, candidate));
            }
        }
    }
}

impl Shared {
    /// Makes a candidate of what a file holds, if it is anything else than what runs.
    async fn consider(
        &self,
        operator: &Operator,
        runtime: &Arc<Runtime>,
        path: &Path,
        content: Result<Content, LoadError>,
    ) -> Option<Candidate> {
        let running = operator.serving();
        if content.as_ref().is_ok_and(|content| content.digest == running.module.digest()) {
            if operator.note(None) {
                info!(module = running.descriptor().name, file = %path.display(), "the file holds what runs again");
            }
            return None;
        }
        match self.load(&running, runtime, path, content).await {
            Ok(candidate) => Some(candidate),
            Err(refused) => {
                let Descriptor { name, version, .. } = running.descriptor();
                let (digest, reason) = (running.module.short_digest(), refused.line());
                error!(module = name, version, digest, "{reason}: the module that runs stays");
                operator.note(Some(format!("{reason}; version {version} ({digest}) stays")));
                None
            }
        }
    }

    async fn load(
        &self,
        running: &Serving,
        runtime: &Arc<Runtime>,
        path: &Path,
        content: Result<Content, LoadError>,
    ) -> Result<Candidate, LoadError> {
        let bytes = content?.bytes;
        let (loader, file) = (Arc::clone(runtime), path.to_owned());
        let loading = tokio::task::spawn_blocking(move || loader.load_content(&file, bytes));
        let refused = |problem| LoadError::new(path, problem);
        let module = loading.await.map_err(|error| refused(Problem::Host(error.to_string())))??;
        let mut reasons = Vec::new();
        let changes = swap::compare(running.descriptor(), module.descriptor());
        let changes = changes.unwrap_or_else(|refusals| {
            reasons = refusals;
            Vec::new()
        });
        reasons.extend(misplaced(module.descriptor(), &self.settings.namespaces));
        if !reasons.is_empty() {
            return Err(refused(Problem::Incompatible(reasons)));
        }
        Ok(Candidate { serving: Arc::new(Serving::new(module, &self.watches, &self.settings.namespaces)), changes })
    }

    /// Waits until every type is watched that is new with the candidate; for ever where there is none.
    async fn until_watched(&self, operator: &Operator, candidate: Option<&Candidate>) {
        let Some(candidate) = candidate else { return std::future::pending().await };
        let mut states = self.states.subscribe();
        loop {
            let missing = self.missing(operator.serving().descriptor(), candidate.serving.descriptor());
            if missing.is_empty() {
                return;
            }
            let Descriptor { name, version, .. } = candidate.serving.descriptor();
            let (digest, missing) = (candidate.serving.module.short_digest(), missing.join("; "));
            if operator.note(Some(format!("version {version} ({digest}) waits for {missing}"))) {
                info!(module = name, version, digest, missing, "loaded; it serves once these types can be watched");
            }
            tokio::select! {
                _ = states.changed() => {}
                () = tokio::time::sleep(GATES) => {}
            }
        }
    }

    /// Types that a candidate can't do without, that the running build does not use, and that can't be acted upon yet: why not. What the
    /// running build misses as well is no reason to stay with it.
    fn missing(&self, running: &Descriptor, candidate: &Descriptor) -> Vec<String> {
        let state = |type_ref: &_| match running.uses(type_ref) {
            true => TypeState::Synced,
            false => self.watches.state(type_ref),
        };
        match gate::gate(candidate, state, Instant::now()) {
            Gate::Open(_) => Vec::new(),
            Gate::Unavailable(problems) => problems.into_iter().map(|problem| problem.message).collect(),
            Gate::Held => {
                let troubles = candidate.types().map(|type_ref| (type_ref, state(type_ref).trouble()));
                troubles.filter_map(|(type_ref, trouble)| Some(format!("{type_ref}: {}", trouble?))).collect()
            }
        }
    }

    /// From here on passes begin with the candidate. Those that run end with the build that they began with, and with the last of them go
    /// its memory and the watches of types that only it used.
    fn activate(&self, index: usize, operator: &Operator, candidate: Candidate) {
        let Candidate { serving, changes } = candidate;
        let before = {
            let _moving = operator.moving();
            let before = operator.serving.send_replace(Arc::clone(&serving));
            // What is as it was is not said again.
            *serving.gate() = before.gate().clone();
            self.move_gate(operator, &serving);
            before
        };
        self.enqueue_all(index, &serving, Priority::Resync);
        operator.note(None);
        let (from, to) = (before.descriptor(), serving.descriptor());
        info!(
            module = to.name,
            from = format!("{} ({})", from.version, before.module.short_digest()),
            to = format!("{} ({})", to.version, serving.module.short_digest()),
            changes = changes.join("; "),
            "swapped"
        );
    }
}
