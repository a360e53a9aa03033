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
use operator_core::contract::{Descriptor, TypeRef};
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
                operator.metrics.swaps.refused.inc();
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
            let serving = &candidate.serving;
            let missing =
                missing(operator.serving().descriptor(), serving.descriptor(), |type_ref| serving.state(type_ref));
            if missing.is_empty() {
                return;
            }
            let Descriptor { name, version, .. } = serving.descriptor();
            let (digest, missing) = (serving.module.short_digest(), missing.join("; "));
            if operator.note(Some(format!("version {version} ({digest}) waits for {missing}"))) {
                info!(module = name, version, digest, missing, "loaded; it serves once these types can be watched");
            }
            tokio::select! {
                _ = states.changed() => {}
                () = tokio::time::sleep(GATES) => {}
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
        operator.metrics.swaps.swapped.inc();
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

/// Types that a candidate needs, that the running build can do without, and that can't be acted upon yet: why not. What the running build
/// needs as well is no reason to stay with it. `state` answers for the types of the candidate.
fn missing(running: &Descriptor, candidate: &Descriptor, state: impl Fn(&TypeRef) -> TypeState) -> Vec<String> {
    let state = |type_ref: &_| match running.can_do_without(type_ref) {
        true => state(type_ref),
        false => TypeState::Synced,
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

#[cfg(test)]
mod tests {
    use super::*;
    use operator_core::contract::{ChildType, OnImmutable, OnPrune};

    const NOTHING: [&str; 0] = [];

    fn module(version: &str, children: &[(&str, bool)]) -> Descriptor {
        let child = |(kind, optional): &(&str, bool)| ChildType {
            type_ref: TypeRef::new("example.com/v1", *kind),
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Delete,
            any_namespace: false,
            optional: *optional,
        };
        Descriptor {
            name: "shop".into(),
            version: "0.1.0".into(),
            primary: TypeRef::new(format!("example.com/{version}"), "Shop"),
            children: children.iter().map(child).collect(),
            related: Vec::new(),
            condition_types: Vec::new(),
            crds: Vec::new(),
            capabilities: Vec::new(),
            hooks: Vec::new(),
            field_manager: None,
            replaces_managers: Vec::new(),
            finalizer: None,
            extensions: Vec::new(),
        }
    }

    /// What a candidate misses while one type is in this state and all others are synced.
    fn missing_with(running: &Descriptor, candidate: &Descriptor, kind: &str, state: &TypeState) -> Vec<String> {
        missing(running, candidate, |type_ref| match type_ref.kind == kind {
            true => state.clone(),
            false => TypeState::Synced,
        })
    }

    fn absent() -> TypeState {
        TypeState::Absent { message: "nobody serves it".into(), since: Instant::now(), was_synced: false }
    }

    #[test]
    fn a_candidate_waits_for_the_types_that_it_needs_first() {
        let (running, candidate) =
            (module("v1", &[("Cart", false)]), module("v1", &[("Cart", false), ("Till", false)]));
        assert_eq!(
            missing_with(&running, &candidate, "Till", &TypeState::Syncing),
            ["Till.example.com/v1: the first list is not in yet"]
        );
        assert_eq!(missing_with(&running, &candidate, "Till", &absent()), ["Till.example.com/v1: nobody serves it"]);
        assert_eq!(missing_with(&running, &candidate, "Till", &TypeState::Synced), NOTHING);
    }

    #[test]
    fn a_type_that_both_need_is_no_reason_to_wait() {
        let running = module("v1", &[("Cart", false)]);
        for state in [absent(), TypeState::Syncing] {
            assert_eq!(missing_with(&running, &module("v1", &[("Cart", false)]), "Cart", &state), NOTHING);
            assert_eq!(missing_with(&running, &module("v1", &[]), "Cart", &state), NOTHING);
        }
    }

    #[test]
    fn an_optional_type_is_waited_for_only_where_it_becomes_a_needed_one() {
        let (optional, needed) = (module("v1", &[("Cart", true)]), module("v1", &[("Cart", false)]));
        assert_eq!(missing_with(&module("v1", &[]), &optional, "Cart", &absent()), NOTHING);
        assert_eq!(missing_with(&optional, &optional, "Cart", &absent()), NOTHING);
        assert_eq!(missing_with(&optional, &needed, "Cart", &absent()), ["Cart.example.com/v1: nobody serves it"]);
    }

    #[test]
    fn a_candidate_waits_for_another_version_of_its_primary_type() {
        let (running, candidate) = (module("v1", &[]), module("v2", &[]));
        assert_eq!(
            missing_with(&running, &candidate, "Shop", &absent()),
            ["Shop.example.com/v2: not served: nobody serves it"]
        );
    }
}
