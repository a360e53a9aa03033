//! The contract's values as plain Rust: what a module says of itself, what it is given, what it answers.
//!
//! They mirror `wit/reconciler.wit`; the runtime converts at the border, so that nothing in the core knows of Wasm.
//! Objects are JSON text on both sides.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::names;

/// A type of Kubernetes objects, as `apiVersion` and `kind` name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeRef {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
}

impl TypeRef {
    /// A type by its `apiVersion` and `kind`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version without its group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }
}

impl fmt::Display for TypeRef {
    /// `Deployment.apps/v1`; `Service.v1` for the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.api_version)
    }
}

/// Where an object of a known type lives. Displays as `namespace/name`, or `name` where there is no namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// None for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectName {
    /// A name in a namespace, or of a cluster-scoped object.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.map(Arc::from), name: Arc::from(name) }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Unknown and `required`: the receiver refuses and names it. Unknown otherwise: ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// What it is.
    pub name: String,
    /// Whether a receiver that does not know it must refuse.
    pub required: bool,
    /// JSON text.
    pub value: String,
}

/// What to do when the API server says that a changed field is immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnImmutable {
    /// Report it.
    Fail,
    /// Delete the child and make it anew.
    Recreate,
}

/// What to do with a child that is no longer wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnPrune {
    /// Leave it in the cluster.
    Orphan,
    /// Delete it.
    Delete,
}

/// A declared type of children, and the most that a child of it may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildType {
    /// The type.
    pub type_ref: TypeRef,
    /// `Recreate` allows deleting and making anew.
    pub on_immutable: OnImmutable,
    /// `Delete` allows deleting what is no longer wanted.
    pub on_prune: OnPrune,
    /// Children outside the primary's namespace, or cluster-scoped.
    pub any_namespace: bool,
    /// Go on without it where it is not served or forbidden.
    pub optional: bool,
}

/// A declared type of objects that a module reads but does not own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedType {
    /// The type.
    pub type_ref: TypeRef,
    /// Go on without it where it is not served or forbidden.
    pub optional: bool,
}

/// Something outside the cluster that `external` needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What grants name.
    pub name: String,
    /// What is asked for.
    pub target: String,
    /// Why, for the person who grants it.
    pub reason: String,
}

/// What a module says of itself at load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Identity: label, field manager, finalizer. Another name is another operator.
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// The type whose objects are the keys.
    pub primary: TypeRef,
    /// Types of children.
    pub children: Vec<ChildType>,
    /// Types read but not owned.
    pub related: Vec<RelatedType>,
    /// Condition types that the module owns.
    pub condition_types: Vec<String>,
    /// CustomResourceDefinitions as JSON text.
    pub crds: Vec<String>,
    /// Live in `external` only.
    pub capabilities: Vec<Capability>,
    /// Optional interfaces meant.
    pub hooks: Vec<String>,
    /// None: derived from the name.
    pub field_manager: Option<String>,
    /// Managers of an earlier operator whose fields are taken over.
    pub replaces_managers: Vec<String>,
    /// None: derived from the name.
    pub finalizer: Option<String>,
    /// Growth of the contract.
    pub extensions: Vec<Extension>,
}

/// An optional interface of the contract that this host calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Which other objects a decision reads.
    Relate,
    /// Work in the cluster while the primary is being deleted.
    Finalize,
    /// Work outside the cluster.
    External,
}

impl Hook {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Relate, Self::Finalize, Self::External];

    /// As `describe.hooks` names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relate => "relate",
            Self::Finalize => "finalize",
            Self::External => "external",
        }
    }
}

impl Descriptor {
    /// Whether the module has an optional interface.
    pub fn has(&self, hook: Hook) -> bool {
        self.hooks.iter().any(|name| name == hook.as_str())
    }

    /// The finalizer that primaries carry before anything is made that the garbage collector would not take away with them; None where
    /// the module makes nothing of that kind.
    pub fn needed_finalizer(&self) -> Option<String> {
        let outlives =
            self.has(Hook::Finalize) || self.has(Hook::External) || self.children.iter().any(|c| c.any_namespace);
        outlives.then(|| self.finalizer())
    }

    /// The module's finalizer, whether it needs one or not.
    pub fn finalizer(&self) -> String {
        let derived = || match self.primary.group() {
            // The core group has no name to qualify it with.
            "" => format!("{}{}", names::PREFIX, self.name),
            group => format!("{group}/{}", self.name),
        };
        self.finalizer.clone().unwrap_or_else(derived)
    }

    /// The field manager of everything that the module writes.
    pub fn manager(&self) -> String {
        self.field_manager.clone().unwrap_or_else(|| names::field_manager(&self.name))
    }

    /// The primary type and every type of children.
    pub fn types(&self) -> impl Iterator<Item = &TypeRef> {
        std::iter::once(&self.primary).chain(self.children.iter().map(|child| &child.type_ref))
    }

    /// Whether it is one of [`Descriptor::types`].
    pub fn uses(&self, type_ref: &TypeRef) -> bool {
        self.types().any(|used| used == type_ref)
    }

    /// Whether the module has no need of a type: it does not use it, or only where it is there.
    pub fn can_do_without(&self, type_ref: &TypeRef) -> bool {
        let mut children = self.children.iter().filter(|child| child.type_ref == *type_ref);
        self.primary != *type_ref && children.all(|child| child.optional)
    }
}

/// The object that a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where it lives.
    pub name: ObjectName,
    /// Its uid: another uid is another object.
    pub uid: String,
}

/// A live object as a module sees it; `json` has no managedFields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveObject {
    /// Its type.
    pub type_ref: TypeRef,
    /// Where it lives.
    pub name: ObjectName,
    /// The object's JSON text, shared with the table.
    pub json: Arc<str>,
}

/// Which objects of a type and namespace a query is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Selection {
    /// One object by its name.
    Name(Arc<str>),
    /// A label selector as kubectl writes it.
    Labels(Arc<str>),
    /// Everything.
    All,
}

/// One question of `relate`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The module's own name for it.
    pub id: String,
    /// A declared related type.
    pub type_ref: TypeRef,
    /// None: cluster-scoped objects, or all namespaces.
    pub namespace: Option<Arc<str>>,
    /// Which objects.
    pub select: Selection,
}

/// What one query of `relate` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// The query's `id`.
    pub query: String,
    /// What matched, sorted by name.
    pub objects: Vec<LiveObject>,
    /// More matched than a snapshot may carry.
    pub truncated: bool,
}

/// What the host knows when it calls, all of it read from its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The primary's JSON text.
    pub primary: Arc<str>,
    /// Sorted by type and name.
    pub children: Vec<LiveObject>,
    /// One for each query of `relate`.
    pub related: Vec<Related>,
    /// What `external.ensure` last observed.
    pub observation: Option<Arc<str>>,
    /// Optional types that are not served or forbidden: unknown is not empty.
    pub unavailable: Vec<TypeRef>,
}

/// A desired child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// JSON text: only the fields that the module wants.
    pub object: String,
    /// At most what its child type allows.
    pub on_immutable: OnImmutable,
    /// At most what its child type allows.
    pub on_prune: OnPrune,
    /// Applied when every child of a lower wave is ready.
    pub wave: u32,
    /// Field paths handed to others.
    pub release: Vec<String>,
    /// Growth of the contract.
    pub extensions: Vec<Extension>,
}

/// `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `"True"`
    True,
    /// `"False"`
    False,
    /// `"Unknown"`
    Unknown,
}

impl ConditionStatus {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition as a module returns it; times and observedGeneration are the host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// One of the descriptor's condition types.
    pub type_: String,
    /// Its status.
    pub status: ConditionStatus,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// The status that a module sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// A JSON object as text: all of `.status` that the module owns.
    pub fields: String,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    /// `"Normal"`
    Normal,
    /// `"Warning"`
    Warning,
}

/// An event on the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Normal or Warning.
    pub type_: EventType,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What a module wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// None: leave all as they are. Some: the complete set, the rest is pruned.
    pub children: Option<Vec<Child>>,
    /// None: leave it.
    pub status: Option<Status>,
    /// Events on the primary.
    pub events: Vec<Event>,
    /// Call again after this time even if nothing changes.
    pub requeue_after: Option<Duration>,
    /// Growth of the contract.
    pub extensions: Vec<Extension>,
}

/// How far the work in the cluster got while the primary is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Nothing is left to wait for.
    pub done: bool,
    /// What should exist meanwhile.
    pub outcome: Outcome,
}

/// What `external.ensure` found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// JSON text, for the snapshot.
    pub observation: String,
    /// When it wants to look again without a change.
    pub recheck_after: Option<Duration>,
}

/// How far a removal outside the cluster got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Nothing is left outside.
    pub done: bool,
    /// What it waits for.
    pub message: String,
    /// In place of a backoff.
    pub retry_after: Option<Duration>,
}

/// Why a module could not say what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Not tried again until something changes.
    pub terminal: bool,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
    /// In place of the queue's backoff.
    pub retry_after: Option<Duration>,
    /// None: leave it.
    pub status: Option<Status>,
    /// Events on the primary.
    pub events: Vec<Event>,
    /// Growth of the contract.
    pub extensions: Vec<Extension>,
}
