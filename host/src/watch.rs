//! From the API server to the object tables: one task a watch, one table a type.
//!
//! In come the types that modules need; out come tables to read from, [`Sink::changed`] for every change that may
//! matter to a key, and the state of each type, without which no key may run. Decisions are the core's
//! ([`operator_core::reflector`], [`operator_core::table`]); here are the connections, the locks and the tasks. The
//! host's own writes and single reads pass through here too, because their answers enter the tables at once.

mod names;
mod request;
mod run;
mod selections;
mod state;
mod vanished;
mod write;

pub use state::TypeState;
pub use write::Writer;

use crate::api::ApiServer;
use crate::api::discovery::{Discovery, Resource};
use operator_core::contract::{ObjectName, TypeRef};
use operator_core::object::{Decoder, Stored};
use operator_core::table::{Change, Effects, Lookup, Origin, Scope, Table, WatchId};
use run::Task;
use selections::Selections;
use state::Standing;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Who writes: the key of a pass, so that its own writes do not wake it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Author {
    /// Index of the operator.
    pub operator: usize,
    /// The primary.
    pub name: ObjectName,
}

/// Where changes go.
pub trait Sink: Send + Sync {
    /// An object changed. `author` made the change by its own write and need not be woken; None: somebody else did.
    fn changed(&self, type_ref: &TypeRef, change: &Change, author: Option<&Author>);
    /// An object changed that a selection by labels holds, came into it or left it. Not told where nobody made selections.
    fn selection_changed(&self, _type_ref: &TypeRef, _labels: &str, _change: &Change) {}
    /// How a watch of a type stands changed.
    fn state_changed(&self, type_ref: &TypeRef);
    /// The server ended a watch before its time: the type's definition may have changed.
    fn definition_may_have_changed(&self, type_ref: &TypeRef);
}

/// A type that a module needs, and which of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The type.
    pub type_ref: TypeRef,
    /// Empty: everywhere.
    pub namespaces: Vec<String>,
    /// Only what carries the installation's label: children. Else all: primaries.
    pub labelled: bool,
}

/// What is kept of a type.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Which.
    pub type_ref: TypeRef,
    /// Objects in its tables.
    pub objects: usize,
    /// Bytes of their text.
    pub bytes: usize,
    /// How often a watch of it was opened again after it had ended.
    pub restarts: u64,
    /// How long the most silent of its watches has brought nothing. An idle one brings a bookmark each minute.
    pub silence: Duration,
    /// How it stands, over all watches but those of single names.
    pub state: TypeState,
}

impl Kept {
    /// Takes in what another table of the type keeps.
    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.restarts += other.restarts;
        self.silence = self.silence.max(other.silence);
        self.state = TypeState::worst([self.state.clone(), other.state].into_iter());
    }
}

/// All watches and tables of one API server.
pub struct Watches(Arc<Shared>);

struct Shared {
    handle: Handle,
    api: Arc<ApiServer>,
    discovery: Discovery,
    decoder: Decoder,
    installation: Arc<str>,
    sink: OnceLock<Arc<dyn Sink>>,
    /// What was joined before there was a sink.
    waiting: Mutex<Vec<Task>>,
    types: RwLock<HashMap<TypeRef, Arc<WatchedType>>>,
    selections: Selections,
    names: Mutex<HashMap<(TypeRef, ObjectName), WatchId>>,
    stop: CancellationToken,
    /// Reads that ask what became of vanished children.
    questions: Semaphore,
    /// A watch made its standing known.
    published: Notify,
    /// How often the server went back in time.
    epoch: AtomicU64,
}

/// A watch, and its task where it is to be run.
type Joined = (WatchId, Option<Task>);

/// How many vanished children are asked for at a time.
const QUESTIONS: usize = 8;

/// One type, or what a selector matches of it: its table and the watches that fill it.
struct WatchedType {
    type_ref: TypeRef,
    /// The selector, where it is a selection: what leaves it is gone from the table.
    labels: Option<Arc<str>>,
    table: RwLock<Table>,
    watches: Mutex<HashMap<WatchId, Running>>,
    /// How often a watch was opened again after it had ended.
    restarts: AtomicU64,
}

struct Running {
    scope: Scope,
    standing: Standing,
    /// When the server last said something on it: an event, a bookmark, a page of a list.
    heard: Instant,
    /// The server went back in time: list anew.
    relist: Arc<Notify>,
    stop: CancellationToken,
}

impl Watches {
    /// Tables without watches. `managers` are the field managers of which the tables keep what they own.
    pub fn new<M: Into<Arc<str>>>(
        handle: Handle,
        api: Arc<ApiServer>,
        installation: &str,
        managers: impl IntoIterator<Item = M>,
    ) -> Self {
        Self(Arc::new(Shared {
            handle,
            api,
            discovery: Discovery::default(),
            decoder: Decoder::new(managers),
            installation: installation.into(),
            sink: OnceLock::new(),
            waiting: Mutex::default(),
            types: RwLock::default(),
            selections: Selections::default(),
            names: Mutex::default(),
            stop: CancellationToken::new(),
            questions: Semaphore::new(QUESTIONS),
            published: Notify::new(),
            epoch: AtomicU64::new(0),
        }))
    }

    /// Names who is told of changes, and begins with what was joined before. To be called once.
    pub fn start(&self, sink: Arc<dyn Sink>) {
        // Err: it was called before; the first sink stays.
        let _ = self.0.sink.set(sink);
        self.0.run([]);
    }

    /// Watches what a module needs until the answer is dropped. Types and scopes that several need are watched once.
    pub fn join(&self, needs: &[Need]) -> Watching {
        let (mut joined, mut tasks) = (Vec::new(), Vec::new());
        for need in needs {
            let watched = self.0.watched_or_new(&need.type_ref);
            let everywhere = need.namespaces.is_empty().then_some(None);
            let namespaces = need.namespaces.iter().map(|namespace| Some(Arc::from(namespace.as_str())));
            for namespace in everywhere.into_iter().chain(namespaces) {
                let scope = Scope { namespace, name: None, selected: need.labelled };
                let (id, task) = self.0.join(&watched, &scope);
                joined.push((Arc::clone(&watched), id));
                tasks.extend(task);
            }
        }
        // Not earlier: a type is synced when all of its watches are, so that all have to be known before the first one is.
        self.0.run(tasks);
        Watching(joined)
    }

    /// Ends every watch. The tables stay readable.
    pub fn stop(&self) {
        self.0.stop.cancel();
    }

    /// How a type stands, over all of its watches but those of single names.
    pub fn state(&self, type_ref: &TypeRef) -> TypeState {
        self.0.watched(type_ref).map_or(TypeState::Syncing, |watched| watched.state())
    }

    /// What is kept of each type that is watched, in no order.
    pub fn kept(&self) -> Vec<Kept> {
        let mut kept: HashMap<TypeRef, Kept> = HashMap::new();
        for table in self.0.all_types().iter().filter(|watched| watched.is_watched()).map(|watched| watched.kept()) {
            match kept.entry(table.type_ref.clone()) {
                Entry::Vacant(first) => _ = first.insert(table),
                Entry::Occupied(mut of_type) => of_type.get_mut().add(table),
            }
        }
        kept.into_values().collect()
    }

    /// How a type is served, as far as a watch of it found out.
    pub fn resource(&self, type_ref: &TypeRef) -> Option<Arc<Resource>> {
        self.0.discovery.known(type_ref)
    }

    /// How often the server went back in time: what is remembered from before, versions above all, holds no more.
    pub fn epoch(&self) -> u64 {
        self.0.epoch.load(Ordering::Acquire)
    }

    /// Waits until every watch whose line broke has heard from the server how far it is: one that was restored from a backup is
    /// noticed before anything is done. A type that is not found again within `limit` counts as failing from then on.
    pub async fn until_found_again(&self, limit: Duration) {
        let found = async {
            loop {
                let mut published = std::pin::pin!(self.0.published.notified());
                // Registered before the look, so that nothing is missed in between.
                published.as_mut().enable();
                if !self.0.has_lost_watches() {
                    return;
                }
                published.await;
            }
        };
        if tokio::time::timeout(limit, found).await.is_err() {
            self.0.give_up_lost_watches();
        }
    }

    /// What a name stands for.
    pub fn lookup(&self, type_ref: &TypeRef, name: &ObjectName) -> Lookup {
        self.0.watched(type_ref).map_or(Lookup::Absent, |watched| watched.read().lookup(name))
    }

    /// Whether a name is known to be free: a watch would have told of whatever has it.
    pub fn is_free(&self, type_ref: &TypeRef, name: &ObjectName) -> bool {
        self.0.watched(type_ref).is_some_and(|watched| watched.read().is_free(name))
    }

    /// The readable objects of a type that this object controls, sorted by name.
    pub fn children(&self, type_ref: &TypeRef, owner_uid: &str) -> Vec<Arc<Stored>> {
        self.0.watched(type_ref).map(|watched| watched.read().children(owner_uid)).unwrap_or_default()
    }

    /// How many children of a type are controlled by objects of this one, those that are being deleted left out.
    pub fn count_children(&self, type_ref: &TypeRef, owners: &TypeRef) -> usize {
        self.0.watched(type_ref).map_or(0, |watched| watched.read().count_children_of(owners))
    }

    /// Whether a write of this object was lost, so that the next pass has to [`Watches::read`] it.
    pub fn is_doubtful(&self, type_ref: &TypeRef, name: &ObjectName) -> bool {
        self.0.watched(type_ref).is_some_and(|watched| watched.read().is_doubtful(name))
    }

    /// The names of all primaries of a type, in no order; unreadable ones too.
    pub fn primaries(&self, type_ref: &TypeRef) -> Vec<ObjectName> {
        let Some(watched) = self.0.watched(type_ref) else { return Vec::new() };
        let ids: Vec<WatchId> = {
            let running = watched.running();
            let all = running.iter().filter(|(_, watch)| !watch.scope.selected && watch.scope.name.is_none());
            all.map(|(id, _)| *id).collect()
        };
        let table = watched.read();
        ids.into_iter().flat_map(|id| table.names(id).cloned().collect::<Vec<_>>()).collect()
    }
}

impl Shared {
    fn watched(&self, type_ref: &TypeRef) -> Option<Arc<WatchedType>> {
        self.types.read().unwrap_or_else(PoisonError::into_inner).get(type_ref).cloned()
    }

    fn watched_or_new(&self, type_ref: &TypeRef) -> Arc<WatchedType> {
        let mut types = self.types.write().unwrap_or_else(PoisonError::into_inner);
        let new = || WatchedType::new(type_ref, None, &self.installation);
        Arc::clone(types.entry(type_ref.clone()).or_insert_with(|| Arc::new(new())))
    }

    /// Joins the watch of a scope; if nobody did before, its task is to be spawned.
    fn join(self: &Arc<Self>, watched: &Arc<WatchedType>, scope: &Scope) -> Joined {
        let (id, is_new) = watched.write().join_watch(scope);
        let task = is_new.then(|| {
            let relist = Arc::new(Notify::new());
            let stop = self.stop.child_token();
            let running = Running {
                scope: scope.clone(),
                standing: Standing::new(),
                heard: Instant::now(),
                relist: Arc::clone(&relist),
                stop: stop.clone(),
            };
            watched.running().insert(id, running);
            Task::new(Arc::clone(self), Arc::clone(watched), id, scope.clone(), relist, stop)
        });
        (id, task)
    }

    /// Runs watches, as soon as there is somebody to tell.
    fn run(&self, tasks: impl IntoIterator<Item = Task>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(tasks);
        if self.sink.get().is_some() {
            waiting.drain(..).for_each(|task| drop(self.handle.spawn(task.run())));
        }
    }

    /// Passes on what a table said.
    fn dispatch(self: &Arc<Self>, watched: &Arc<WatchedType>, effects: Effects, author: Option<&Author>) {
        if effects.went_back {
            self.start_epoch(watched);
        }
        if let Some(sink) = self.sink.get() {
            for change in &effects.changes {
                let author = author.filter(|_| change.origin == Origin::OwnWrite);
                match &watched.labels {
                    None => sink.changed(&watched.type_ref, change, author),
                    Some(labels) => sink.selection_changed(&watched.type_ref, labels, change),
                }
            }
        }
        for vanished in effects.vanished {
            vanished::ask(Arc::clone(self), Arc::clone(watched), vanished);
        }
    }
}

impl Shared {
    /// The server went back in time, as one type shows. No table is to be trusted until each of its watches has listed anew: children
    /// must not be made again for a primary that is in its table still, and on the server no more.
    fn start_epoch(&self, discoverer: &Arc<WatchedType>) {
        warn!(
            r#type = %discoverer.type_ref,
            "the API server went back in time, as after a restore from a backup: nothing is done until every type is listed anew"
        );
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let types = self.all_types();
        for watched in &types {
            if !Arc::ptr_eq(watched, discoverer) {
                watched.write().start_epoch();
            }
            for watch in watched.running().values_mut() {
                watch.standing.distrust();
                watch.relist.notify_one();
            }
        }
        self.states_changed(&types);
    }

    fn has_lost_watches(&self) -> bool {
        let has_lost = |watched: &Arc<WatchedType>| watched.running().values().any(|watch| watch.standing.is_lost());
        self.all_types().iter().any(has_lost)
    }

    fn give_up_lost_watches(&self) {
        let types = self.all_types();
        for watched in &types {
            watched.running().values_mut().for_each(|watch| watch.standing.give_up_if_lost());
        }
        self.states_changed(&types);
    }

    /// Every table, those of selections too.
    fn all_types(&self) -> Vec<Arc<WatchedType>> {
        let types: Vec<_> = self.types.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        [types, self.selections.all()].concat()
    }

    fn states_changed(&self, types: &[Arc<WatchedType>]) {
        if let Some(sink) = self.sink.get() {
            types.iter().for_each(|watched| sink.state_changed(&watched.type_ref));
        }
    }
}

/// Watches that somebody needs; those that nobody else needs end when this is dropped.
#[must_use = "the watches end when it is dropped"]
pub struct Watching(Vec<(Arc<WatchedType>, WatchId)>);

impl Watching {
    /// How a type stands, over these watches of it; others may wait for more of its objects.
    pub fn state(&self, type_ref: &TypeRef) -> TypeState {
        let own = self.0.iter().filter(|(watched, _)| watched.type_ref == *type_ref);
        TypeState::worst(own.map(|(watched, id)| watched.state_of(|of, _| of == id)))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        for (watched, id) in &self.0 {
            watched.leave(*id);
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(watched, id)| (&watched.type_ref, id))).finish()
    }
}

impl WatchedType {
    fn new(type_ref: &TypeRef, labels: Option<Arc<str>>, installation: &Arc<str>) -> Self {
        Self {
            type_ref: type_ref.clone(),
            labels,
            table: RwLock::new(Table::new(Arc::clone(installation))),
            watches: Mutex::default(),
            restarts: AtomicU64::new(0),
        }
    }

    /// Leaves a watch, which ends if nobody else needs it.
    fn leave(&self, id: WatchId) {
        if self.write().leave_watch(id) {
            let running = self.running().remove(&id);
            running.into_iter().for_each(|watch| watch.stop.cancel());
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<WatchId, Running>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a watch fills the table; a version of a type that no module uses any more has none.
    fn is_watched(&self) -> bool {
        !self.running().is_empty()
    }

    fn kept(&self) -> Kept {
        let (objects, bytes) = {
            let table = self.read();
            (table.len(), table.bytes())
        };
        let restarts = self.restarts.load(Ordering::Relaxed);
        let silence = self.running().values().map(|watch| watch.heard.elapsed()).max().unwrap_or_default();
        Kept { type_ref: self.type_ref.clone(), objects, bytes, restarts, silence, state: self.state() }
    }

    /// The server said something on a watch.
    fn heard(&self, id: WatchId, now: Instant) {
        if let Some(watch) = self.running().get_mut(&id) {
            watch.heard = now;
        }
    }

    /// Over all watches but those of single names.
    fn state(&self) -> TypeState {
        self.state_of(|_, scope| scope.name.is_none())
    }

    fn state_of(&self, which: impl Fn(&WatchId, &Scope) -> bool) -> TypeState {
        let running = self.running();
        let which = running.iter().filter(|(id, watch)| which(id, &watch.scope));
        state::combine(which.map(|(_, watch)| &watch.standing))
    }
}
