//! What the host knows of one type: every object that its watches selected, as the API server last told it.
//!
//! In come watch events, list results, answers to our own writes and single reads; out come [`Effects`]: what changed,
//! so that keys can be enqueued, and what has to be asked. Guaranteed, whatever the order of arrival:
//!
//! - A reader never sees a state older than our own last answered write of that object.
//! - An object's change by another writer always wakes somebody, also where our own newer write already shows it. Only
//!   the watch's copy of exactly the version that a write answered is dropped.
//! - What the server no longer has goes, what it still has stays: a list deletes nothing that is newer than the list, a
//!   late answer brings nothing back, and a child that merely lost its label is told from a deleted one.
//! - A server that went back in time (an etcd restored from a backup) starts a new epoch: what was told in earlier ones
//!   gives way to whatever the server says now.
//!
//! Versions are compared only within a type, as Kubernetes permits (KEP-5504). Where they can't be compared, an entry
//! of our own is fenced until its echo arrives, [`FENCE_TIMEOUT`] at most.

mod entry;
mod ingest;
mod list;
mod own;
mod read;
mod watches;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::contract::ObjectName;
use crate::object::{ResourceVersion, Stored};

pub use entry::{Content, Unreadable};
pub use watches::{Scope, WatchId};

use entry::Entries;
use own::{InFlight, Tombstone};
use watches::Membership;

/// How long an entry of our own waits for its echo where versions can't be compared.
pub const FENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The objects of one type and version. See the [module](self).
#[derive(Debug)]
pub struct Table {
    installation: Arc<str>,
    entries: Entries,
    watches: BTreeMap<WatchId, Membership>,
    next_watch: u32,
    /// Objects that we know to be gone before the watch says so.
    tombstones: HashMap<ObjectName, Tombstone>,
    writes: HashMap<ObjectName, InFlight>,
    doubtful: HashSet<ObjectName>,
    /// How often the server went back in time.
    epoch: u32,
}

impl Table {
    /// An empty table; objects that carry this installation's label are the ones that selecting watches hold.
    pub fn new(installation: impl Into<Arc<str>>) -> Self {
        Self {
            installation: installation.into(),
            entries: Entries::default(),
            watches: BTreeMap::new(),
            next_watch: 0,
            tombstones: HashMap::new(),
            writes: HashMap::new(),
            doubtful: HashSet::new(),
            epoch: 0,
        }
    }
}

/// Who made a change known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A watch, a list or a single read: another writer's doing as far as we know. Wakes every interested key.
    Watch,
    /// The answer to our own write. Wakes every interested key but the one that wrote.
    OwnWrite,
}

/// One object's change, old and new where they are readable. Equal ones mean: somebody else's change that our own newer
/// write already shows.
#[derive(Clone, Debug)]
pub struct Change {
    /// Whose.
    pub name: ObjectName,
    /// What a reader saw before.
    pub old: Option<Arc<Stored>>,
    /// What a reader sees now.
    pub new: Option<Arc<Stored>>,
    /// Who made it known.
    pub origin: Origin,
    /// Whether it is part of the first list of a watch: nothing has happened, the host only just learns of it.
    pub initial: bool,
}

/// A child that left the label selection without our doing: deleted, or robbed of its label. A DELETED event looks the
/// same for both (old labels, new version). Until it is answered readers still see the child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vanished {
    /// Which name.
    pub name: ObjectName,
    /// Which object of that name.
    pub uid: Arc<str>,
    /// Its controller's uid: only while that one exists and isn't terminating the question is worth a read.
    pub owner: Option<Arc<str>>,
}

/// What a call did.
#[derive(Debug, Default)]
#[must_use = "changes wake keys"]
pub struct Effects {
    /// In the order they happened.
    pub changes: Vec<Change>,
    /// To be answered by [`Table::vanished_found`], [`Table::observed_absent`] or [`Table::presumed_gone`].
    pub vanished: Vec<Vanished>,
    /// The server went back in time, as after a restore of its storage: every watch, of this type and of all others, has
    /// to list anew, consistently; the tables of the others are to be told by [`Table::start_epoch`].
    pub went_back: bool,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// Nothing that a watch selects.
    Absent,
    /// An object.
    Present(Arc<Stored>),
    /// Something that can't be read: never created over, never pruned.
    Unreadable(Arc<Unreadable>),
}

/// One state of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectVersion {
    /// Which object.
    pub uid: Arc<str>,
    /// Which state.
    pub version: ResourceVersion,
    /// The table's epoch when it was asked.
    epoch: u32,
    /// Whether that is the state's as well.
    is_current: bool,
}

#[cfg(test)]
mod tests;
