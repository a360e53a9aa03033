//! From a key to a settled object: the workers, and what decides which keys they get.
//!
//! In come changes of the tables and timers; out go requests, through `apply`. One key is never worked on twice at once; a key is all that
//! the queue carries, so that a restart or a missed event costs nothing.

mod definition;
mod gate;
mod memory;
mod outcome;
mod pass;
mod route;
mod snapshot;
mod waiters;
mod worker;

use crate::api::ApiServer;
use crate::api::openapi::Schemas;
use crate::lead::Permits;
use crate::module::Module;
use crate::observe::health::{Finding, Health};
use crate::queue::WorkQueue;
use crate::watch::{Author, Need, Sink, TypeState, Watches};
use gate::Gate;
use memory::Memories;
use operator_core::backoff::Bucket;
use operator_core::contract::{Descriptor, TypeRef};
use operator_core::names;
use operator_core::object::Stored;
use operator_core::plan::decide::Parent;
use operator_core::queue::{Lane, Options, Priority};
use std::collections::HashSet;
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
}

/// One module at work.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) module: Arc<Module>,
    lane: Lane,
    /// Field manager of everything that it writes.
    pub(crate) manager: String,
    gate: Mutex<Gate>,
    /// Told when the definition of the primary type may have changed.
    redefined: Notify,
}

impl Operator {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary as children's owner.
    fn parent<'a>(&'a self, primary: &'a Stored) -> Parent<'a> {
        Parent {
            type_ref: &self.descriptor().primary,
            name: &primary.meta.name.name,
            uid: &primary.meta.uid,
            manager: &self.manager,
        }
    }

    fn descriptor(&self) -> &Descriptor {
        self.module.descriptor()
    }
}

/// The field manager of a module.
pub fn manager_of(module: &Module) -> String {
    let descriptor = module.descriptor();
    descriptor.field_manager.clone().unwrap_or_else(|| names::field_manager(&descriptor.name))
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
    waiters: Waiters,
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
            let descriptor = operator.descriptor();
            if descriptor.primary == *type_ref || descriptor.children.iter().any(|child| child.type_ref == *type_ref) {
                self.follow_gate(index, operator);
            }
        }
    }

    fn follow_gate(&self, index: usize, operator: &Operator) {
        // Held until what follows is done: of two that look at the same time, the later one must have the last word.
        let mut gate = operator.gate();
        let next = gate::gate(operator.descriptor(), |type_ref| self.watches.state(type_ref), Instant::now());
        if *gate == next {
            return;
        }
        *gate = next;
        match &*gate {
            Gate::Held => {
                self.queue.hold(operator.lane);
                return;
            }
            Gate::Unavailable(problems) => {
                let types: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
                let missing = types.join("; ");
                tracing::warn!(
                    module = operator.descriptor().name,
                    missing,
                    "no child is written until these types can be watched"
                );
            }
            Gate::Open(unavailable) => {
                let unavailable: Vec<String> = unavailable.iter().map(ToString::to_string).collect();
                match unavailable.is_empty() {
                    true => tracing::info!(module = operator.descriptor().name, "every declared type is synced"),
                    false => tracing::warn!(
                        module = operator.descriptor().name,
                        unavailable = unavailable.join(", "),
                        "synced, without these optional types"
                    ),
                }
            }
        }
        for name in self.watches.primaries(&operator.descriptor().primary) {
            self.enqueue(QueueKey { operator: index, name }, Priority::Backlog);
        }
        self.queue.release(operator.lane);
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

/// The running controller of all modules.
pub struct Controller {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
}

/// How often gates are looked at that depend on time alone.
const GATES: Duration = Duration::from_secs(5);

impl Controller {
    /// Starts watches and workers. Keys run as soon as what their module needs is synced.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(
        settings: Settings,
        api: Arc<ApiServer>,
        modules: Vec<Arc<Module>>,
        permits: Permits,
        health: &Health,
        handle: Handle,
    ) -> std::io::Result<Self> {
        let queue = WorkQueue::new(Options {
            workers: settings.workers,
            seed: fastrand::u64(..),
            retries: settings.retries.clone(),
        });
        let operators: Vec<Operator> = modules
            .into_iter()
            .map(|module| {
                let lane = queue.open_lane();
                queue.hold(lane);
                Operator {
                    manager: manager_of(&module),
                    module,
                    lane,
                    gate: Mutex::new(Gate::Held),
                    redefined: Notify::new(),
                }
            })
            .collect();
        let managers: Vec<String> = operators.iter().map(|operator| operator.manager.clone()).collect();
        let watches = Watches::new(handle.clone(), Arc::clone(&api), &settings.installation, managers);
        let shared = Arc::new(Shared {
            settings,
            api,
            watches,
            schemas: Schemas::default(),
            queue,
            operators,
            permits,
            memories: Memories::default(),
            waiters: Waiters::default(),
            said: Mutex::default(),
            states: watch::Sender::new(()),
            handle,
        });
        shared.add_checks(health);
        shared.watches.start(&shared.needs(), Arc::clone(&shared) as Arc<dyn Sink>);
        let mut tasks = JoinSet::new();
        tasks.spawn_on(keep_gates(Arc::clone(&shared)), &shared.handle);
        tasks.spawn_on(follow_breaker(Arc::clone(&shared)), &shared.handle);
        for index in 0..shared.operators.len() {
            tasks.spawn_on(definition::keep_comparing(Arc::clone(&shared), index), &shared.handle);
        }
        let probing = Arc::clone(&shared.api);
        tasks.spawn_on(async move { probing.keep_probing().await }, &shared.handle);
        let workers = worker::start(&shared)?;
        Ok(Self { shared, workers, tasks })
    }

    /// Begins no pass any more and waits for those that run; false where some still ran at the deadline.
    pub async fn drain(mut self, limit: Duration) -> bool {
        self.shared.queue.shut_down();
        let deadline = Instant::now() + limit;
        let shared = Arc::clone(&self.shared);
        let drained = tokio::task::spawn_blocking(move || shared.queue.wait_idle(deadline)).await.unwrap_or(false);
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

/// Holds all keys while the API server is in trouble, and lets them go, spread out, when it is well again.
async fn follow_breaker(shared: Arc<Shared>) {
    let mut is_open = shared.api.breaker();
    loop {
        let open = *is_open.borrow_and_update();
        if open {
            shared.queue.pause();
            tracing::warn!(
                url = shared.api.url(),
                "the API server is in trouble: no object is worked on until it recovers"
            );
        } else {
            shared.queue.resume();
        }
        if is_open.changed().await.is_err() {
            return;
        }
        if !*is_open.borrow() {
            tracing::info!(url = shared.api.url(), "the API server is well again");
        }
    }
}

impl Shared {
    /// Every type that is watched: primaries as they are, children by the installation's label.
    fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        for operator in &self.operators {
            let descriptor = operator.descriptor();
            let namespaces = self.settings.namespaces.clone();
            needs.push(Need { type_ref: descriptor.primary.clone(), namespaces: namespaces.clone(), labelled: false });
            for child in &descriptor.children {
                let namespaces = namespaces.clone();
                needs.push(Need { type_ref: child.type_ref.clone(), namespaces, labelled: true });
            }
        }
        needs
    }

    /// Ready means that every first list is in. A type that is not served or forbidden, or optional and failing, is shown, and fails
    /// nothing.
    fn add_checks(self: &Arc<Self>, health: &Health) {
        health.check("modules", || Finding::Ok);
        let mut seen = HashSet::new();
        for need in self.needs() {
            if !seen.insert(need.type_ref.clone()) {
                continue;
            }
            let shared = Arc::downgrade(self);
            let is_optional = self.is_optional(&need.type_ref);
            health.check(format!("informer/{}", need.type_ref), move || {
                let Some(shared) = shared.upgrade() else { return Finding::Failed("the host is ending".into()) };
                match shared.watches.state(&need.type_ref) {
                    TypeState::Synced => Finding::Ok,
                    TypeState::Syncing => Finding::Failed("the first list is not in yet".into()),
                    TypeState::Failing { message, .. } if is_optional => Finding::Noted(format!("failing: {message}")),
                    TypeState::Failing { message, .. } => Finding::Failed(format!("failing: {message}")),
                    TypeState::Absent { message, .. } => Finding::Noted(format!("not served: {message}")),
                    TypeState::Forbidden { message, .. } => Finding::Noted(format!("forbidden: {message}")),
                }
            });
        }
    }

    /// Whether every module can do without a type.
    fn is_optional(&self, type_ref: &TypeRef) -> bool {
        self.operators.iter().map(Operator::descriptor).all(|descriptor| {
            let mut children = descriptor.children.iter().filter(|child| child.type_ref == *type_ref);
            descriptor.primary != *type_ref && children.all(|child| child.optional)
        })
    }
}
