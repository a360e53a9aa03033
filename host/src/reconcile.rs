//! From a key to a settled object: the workers, and what decides which keys they get.
//!
//! In come changes of the tables and timers; out go requests, through `apply`. One key is never worked on twice at once; a key is all that
//! the queue carries, so that a restart or a missed event costs nothing.

mod definition;
mod events;
mod external;
mod finalize;
mod gate;
mod memory;
mod metrics;
mod outcome;
mod pass;
mod pause;
mod prune_guard;
mod relate;
mod related;
mod route;
mod serving;
mod snapshot;
mod steps;
mod swap;
mod waiters;
mod worker;

use crate::api::ApiServer;
use crate::api::openapi::Schemas;
use crate::events::Events;
use crate::lead::Permits;
use crate::module::{Folders, Module, ModuleFile, Runtime};
use crate::observe::health::{Finding, Health};
use crate::observe::metrics::{Metrics, ModuleMetrics};
use crate::queue::WorkQueue;
use crate::watch::{Author, Sink, TypeState, Watches};
use external::External;
use gate::Gate;
use memory::Memories;
use operator_core::backoff::Bucket;
use operator_core::contract::{ObjectName, TypeRef};
use operator_core::lead::{ModuleVersion, Paused};
use operator_core::plan::prune_guard::PruneGuard;
use operator_core::queue::{Lane, Options, Priority};
use related::Related;
use serving::Serving;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use waiters::Waiters;

/// A key of the work queue: an object of an operator's primary type. Writes carry it as their author.
pub(crate) type QueueKey = Author;

/// What a controller is set to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Value of the installation label.
    pub installation: String,
    /// Namespaces to work in; empty: all.
    pub namespaces: Vec<String>,
    /// Worker threads.
    pub workers: usize,
    /// How often each object is looked at again, ± 10 %; zero: never.
    pub resync: Duration,
    /// Overall limit of retries; None: none but each key's backoff.
    pub retries: Option<Bucket>,
    /// Most children of one object.
    pub max_children: usize,
    /// Whether outcomes that prune too much at once are held until they are confirmed.
    pub prune_guard: bool,
}

/// The keys of one primary type, and the module that serves them.
#[derive(Debug)]
pub(crate) struct Operator {
    /// Name of the module, whichever build of it runs.
    name: Arc<str>,
    lane: Lane,
    serving: watch::Sender<Arc<Serving>>,
    /// Its work is suspended by the Lease.
    is_paused: AtomicBool,
    /// Held while the gate moves, until what follows is done: of two that look at the same time, the later one must have the last word.
    moving: Mutex<()>,
    /// What became of its file's content, where that is not what runs.
    note: Mutex<Option<String>>,
    /// Told when the definition of the primary type may have changed.
    redefined: Notify,
    /// What was pruned of late, whichever build wanted it.
    prune_guard: Mutex<PruneGuard>,
    metrics: ModuleMetrics,
}

impl Operator {
    /// What serves a pass that begins now.
    fn serving(&self) -> Arc<Serving> {
        Arc::clone(&self.serving.borrow())
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prune_guard(&self) -> MutexGuard<'_, PruneGuard> {
        self.prune_guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what became of its file's content, for `/readyz`; whether that is another note than before.
    fn note(&self, note: Option<String>) -> bool {
        let mut noted = self.note.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *noted != note;
        *noted = note;
        is_news
    }
}

/// What watches, workers and timers share.
pub(crate) struct Shared {
    settings: Settings,
    api: Arc<ApiServer>,
    watches: Watches,
    schemas: Schemas,
    queue: WorkQueue<QueueKey>,
    operators: Vec<Operator>,
    permits: Permits,
    memories: Memories,
    external: External,
    events: Events,
    waiters: Waiters,
    related: Related,
    /// What was said once and is not said again.
    said: Mutex<HashSet<String>>,
    /// Moves whenever a type comes or goes.
    states: watch::Sender<()>,
    handle: Handle,
}

impl Shared {
    /// Opens, holds or closes the gates of the operators that use a type, as its state says; keys whose gate moved are looked at again.
    pub(super) fn follow_state(&self, type_ref: &TypeRef) {
        for (index, operator) in self.operators.iter().enumerate() {
            if operator.serving().descriptor().uses(type_ref) {
                self.follow_gate(index, operator);
            }
        }
    }

    fn follow_gate(&self, index: usize, operator: &Operator) {
        let _moving = operator.moving();
        let serving = operator.serving();
        if self.move_gate(operator, &serving) {
            self.enqueue_all(index, &serving, Priority::Backlog);
        }
    }

    /// Brings gate and lane to where the states of the types say; whether the gate moved and let keys through. Called while moving.
    fn move_gate(&self, operator: &Operator, serving: &Serving) -> bool {
        let next = gate::gate(serving.descriptor(), |type_ref| serving.state(type_ref), Instant::now());
        let moved = *serving.gate() != next;
        if moved {
            say_gate(&serving.descriptor().name, &next);
            *serving.gate() = next.clone();
        }
        if next == Gate::Held {
            self.queue.hold(operator.lane);
            return false;
        }
        self.queue.release(operator.lane);
        moved
    }

    /// Which builds run.
    fn versions(&self) -> Vec<ModuleVersion> {
        self.operators.iter().map(|operator| operator.serving().module.version()).collect()
    }

    /// Every object of the primary type is looked at again.
    fn enqueue_all(&self, index: usize, serving: &Serving, priority: Priority) {
        let names = self.watches.primaries(&serving.descriptor().primary);
        for name in names.into_iter().filter(|name| self.works_in(name)) {
            self.enqueue(QueueKey { operator: index, name }, priority);
        }
    }

    /// Whether primaries of this name are the host's to work on: others may be in the tables because a module asks for them.
    pub(super) fn works_in(&self, name: &ObjectName) -> bool {
        let namespaces = &self.settings.namespaces;
        namespaces.is_empty() || namespaces.iter().any(|namespace| Some(&**namespace) == name.namespace.as_deref())
    }

    pub(super) fn enqueue(&self, key: QueueKey, priority: Priority) {
        if let Some(operator) = self.operators.get(key.operator) {
            self.queue.add(operator.lane, key, priority);
        }
    }

    /// Says something once: the text is its own key.
    fn say_once(&self, text: String, say: impl FnOnce(&str)) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.contains(&text) {
            say(&text);
            said.insert(text);
        }
    }
}

fn say_gate(module: &str, gate: &Gate) {
    match gate {
        Gate::Held => {}
        Gate::Unavailable(problems) => {
            let types: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
            let missing = types.join("; ");
            tracing::warn!(module, missing, "no child is written until these types can be watched");
        }
        Gate::Open(unavailable) if unavailable.is_empty() => tracing::info!(module, "every declared type is synced"),
        Gate::Open(unavailable) => {
            let unavailable: Vec<String> = unavailable.iter().map(ToString::to_string).collect();
            tracing::warn!(module, unavailable = unavailable.join(", "), "synced, without these optional types");
        }
    }
}

/// The running controller of all modules.
pub struct Controller {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    /// The Lease, and what it says of paused modules.
    pauses: Option<(String, watch::Receiver<Paused>)>,
}

/// How often gates are looked at that depend on time alone.
const GATES: Duration = Duration::from_secs(5);

/// How long keys wait, after an outage, for watches to find the server again.
const FOUND_AGAIN: Duration = Duration::from_secs(10);

impl Controller {
    /// Starts the watches. Keys gather until [`Controller::work`].
    pub fn start(
        settings: Settings,
        api: Arc<ApiServer>,
        modules: Vec<Arc<Module>>,
        permits: Permits,
        health: &Health,
        metrics: &mut Metrics,
        handle: Handle,
    ) -> Self {
        let queue = WorkQueue::new(Options {
            workers: settings.workers,
            seed: fastrand::u64(..),
            retries: settings.retries.clone(),
        });
        let managers = modules.iter().map(|module| module.descriptor().manager());
        let watches = Watches::new(handle.clone(), Arc::clone(&api), &settings.installation, managers);
        let names: Vec<&str> = modules.iter().map(|module| module.descriptor().name.as_str()).collect();
        let counted = metrics.count_modules(&names);
        let (events, recording) = Events::start(Arc::clone(&api), permits.clone(), metrics.count_events());
        let operators: Vec<Operator> = modules
            .into_iter()
            .zip(counted)
            .map(|(module, metrics)| {
                let lane = queue.open_lane();
                queue.hold(lane);
                let module_name = Arc::from(module.descriptor().name.as_str());
                let serving = Arc::new(Serving::new(module, &watches, &settings.namespaces));
                Operator {
                    name: module_name,
                    lane,
                    serving: watch::Sender::new(serving),
                    is_paused: AtomicBool::new(false),
                    moving: Mutex::default(),
                    note: Mutex::default(),
                    redefined: Notify::new(),
                    prune_guard: Mutex::default(),
                    metrics,
                }
            })
            .collect();
        let shared = Arc::new(Shared {
            settings,
            api,
            watches,
            schemas: Schemas::default(),
            queue,
            operators,
            permits,
            memories: Memories::default(),
            external: External::default(),
            events,
            waiters: Waiters::default(),
            related: Related::default(),
            said: Mutex::default(),
            states: watch::Sender::new(()),
            handle,
        });
        shared.add_checks(health);
        shared.add_metrics(metrics);
        shared.watches.start(Arc::clone(&shared) as Arc<dyn Sink>);
        let mut tasks = JoinSet::new();
        tasks.spawn_on(keep_gates(Arc::clone(&shared)), &shared.handle);
        tasks.spawn_on(recording, &shared.handle);
        tasks.spawn_on(follow_breaker(Arc::clone(&shared)), &shared.handle);
        for index in 0..shared.operators.len() {
            tasks.spawn_on(definition::keep_comparing(Arc::clone(&shared), index), &shared.handle);
        }
        let probing = Arc::clone(&shared.api);
        tasks.spawn_on(async move { probing.keep_probing().await }, &shared.handle);
        Self { shared, workers: Vec::new(), tasks, pauses: None }
    }

    /// Starts the workers. Keys run as soon as what their module needs is synced, those that gathered first.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn work(&mut self) -> std::io::Result<()> {
        if let Some((lease, mut paused)) = self.pauses.take() {
            // Before the first key runs.
            self.shared.pause(&lease, &mut paused);
            let following = pause::follow(Arc::clone(&self.shared), lease, paused);
            self.tasks.spawn_on(following, &self.shared.handle);
        }
        self.workers = worker::start(&self.shared)?;
        Ok(())
    }

    /// Tells which modules run, whenever it is asked.
    pub fn modules(&self) -> impl Fn() -> Vec<ModuleVersion> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.versions()
    }

    /// Follows which modules are paused, by an annotation of this Lease.
    pub fn follow_pauses(&mut self, lease: String, paused: watch::Receiver<Paused>) {
        self.pauses = Some((lease, paused));
    }

    /// Follows the files that the modules came from, in their order: a build that appears there takes its module's place.
    pub fn follow_files(&mut self, runtime: Runtime, paths: &[PathBuf]) {
        let (runtime, folders) = (Arc::new(runtime), Arc::new(Folders::default()));
        for (index, path) in paths.iter().enumerate() {
            let file = ModuleFile::new(path.clone(), Arc::clone(&folders));
            let following = swap::follow(Arc::clone(&self.shared), index, Arc::clone(&runtime), file);
            self.tasks.spawn_on(following, &self.shared.handle);
        }
    }

    /// Begins no pass any more and waits for those that run; false where some still ran at the deadline.
    pub async fn drain(mut self, limit: Duration) -> bool {
        self.shared.queue.shut_down();
        let deadline = Instant::now() + limit;
        let shared = Arc::clone(&self.shared);
        let drained = tokio::task::spawn_blocking(move || shared.queue.wait_idle(deadline)).await.unwrap_or(false);
        let left = deadline.saturating_duration_since(Instant::now());
        let drained = drained && tokio::time::timeout(left, self.shared.external.drain()).await.is_ok();
        self.shared.watches.stop();
        self.tasks.shutdown().await;
        if drained {
            for worker in self.workers {
                // A worker that panicked outside of a pass has nothing left to end.
                let _ = worker.join();
            }
        }
        drained
    }
}

/// Looks at gates that open or close by time alone.
async fn keep_gates(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(GATES);
    loop {
        ticks.tick().await;
        for (index, operator) in shared.operators.iter().enumerate() {
            shared.follow_gate(index, operator);
        }
    }
}

/// Holds all keys while the API server is in trouble. When it is well again they go on, spread out, as soon as the watches have found out
/// whether it still knows what it knew.
async fn follow_breaker(shared: Arc<Shared>) {
    let url = shared.api.url();
    let mut is_open = shared.api.breaker();
    let mut was_open = false;
    loop {
        let open = *is_open.borrow_and_update();
        match (was_open, open) {
            (false, true) => {
                shared.queue.pause();
                tracing::warn!(url, "the API server is in trouble: no object is worked on until it recovers");
            }
            (true, false) => {
                tracing::info!(url, "the API server is well again");
                tokio::select! {
                    () = shared.watches.until_found_again(FOUND_AGAIN) => shared.queue.resume(),
                    // In trouble again: still paused.
                    Ok(()) = is_open.changed() => continue,
                }
            }
            _ => {}
        }
        was_open = open;
        if is_open.changed().await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// Ready means that every first list is in. A type that is not served or forbidden, or optional and failing, is shown, and fails
    /// nothing.
    fn add_checks(self: &Arc<Self>, health: &Health) {
        let shared = Arc::downgrade(self);
        health.checks(move || match shared.upgrade() {
            Some(shared) => [shared.modules(), shared.informers()].concat(),
            None => Vec::new(),
        });
    }

    /// A file that can't take the place of the module that runs is noted; the probe does not fail for it.
    fn modules(&self) -> Vec<(String, Finding)> {
        let check = |operator: &Operator| {
            let note = operator.note.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let paused = operator.is_paused.load(Ordering::Relaxed).then(|| "paused by the Lease".to_owned());
            let noted: Vec<String> = paused.into_iter().chain(note).collect();
            let finding = if noted.is_empty() { Finding::Ok } else { Finding::Noted(noted.join("; ")) };
            (format!("module/{}", operator.serving().descriptor().name), finding)
        };
        self.operators.iter().map(check).collect()
    }

    /// How each type stands that a module declares.
    fn informers(&self) -> Vec<(String, Finding)> {
        let serving: Vec<_> = self.operators.iter().map(Operator::serving).collect();
        let types: BTreeSet<&TypeRef> = serving.iter().flat_map(|serving| serving.descriptor().types()).collect();
        let finding = |type_ref: &TypeRef| {
            let users = serving.iter().filter(|serving| serving.descriptor().uses(type_ref));
            let state = TypeState::worst(users.map(|serving| serving.state(type_ref)));
            let Some(trouble) = state.trouble() else { return Finding::Ok };
            let is_optional = serving.iter().all(|serving| serving.descriptor().can_do_without(type_ref));
            match state {
                TypeState::Syncing => Finding::Failed(trouble),
                TypeState::Failing { .. } if !is_optional => Finding::Failed(trouble),
                _ => Finding::Noted(trouble),
            }
        };
        types.into_iter().map(|type_ref| (format!("informer/{type_ref}"), finding(type_ref))).collect()
    }
}
