//! What is remembered of a key from one pass to the next. Losing all of it costs calls and comparisons, never a write.

use super::QueueKey;
use operator_core::contract::{Event, ObjectName, TypeRef};
use operator_core::plan::decide::ChildMemory;
use operator_core::plan::prune_guard::Held;
use operator_core::related::Asked;
use operator_core::status::Flapping;
use std::collections::HashMap;
use std::sync::Mutex;

/// Digest of all that a call depends on: the module, and each object with its resourceVersion.
pub(super) type InputDigest = [u8; 16];

/// Memory of one key.
#[derive(Debug, Default)]
pub(super) struct KeyMemory {
    /// The primary's uid: another uid is another object, with nothing to remember.
    pub(super) uid: String,
    /// When the server has gone back in time since, the versions that are remembered mean nothing.
    epoch: u64,
    /// Children by identity; those no longer wanted are dropped when a pass settles.
    pub(super) children: HashMap<(TypeRef, ObjectName), ChildMemory>,
    /// Prunes that wait to be confirmed.
    pub(super) held: Option<Held>,
    /// Events of the last call; None before the first.
    pub(super) told: Option<Vec<Event>>,
    /// What the last pass was given that settled, or failed for good; None where the outcome depends on time.
    pub(super) settled: Option<InputDigest>,
    /// What `relate` asked for in the last pass.
    pub(super) asked: Vec<Asked>,
    /// Finds a status that differs on equal input.
    pub(super) flapping: Flapping,
    /// Its fields that differed, once that was said.
    pub(super) slowed: Vec<String>,
    /// Of the published schema that what the server did not keep is remembered of.
    schema: u64,
}

impl KeyMemory {
    /// Forgets everything if the object of this name is another one than before, or the server another one.
    pub(super) fn belongs_to(&mut self, uid: &str, epoch: u64) {
        if self.uid != uid || self.epoch != epoch {
            *self = Self { uid: uid.to_owned(), epoch, ..Self::default() };
        }
    }

    /// Forgets what the server did not keep of a status if the type is defined in another way since.
    pub(super) fn is_judged_by(&mut self, schema: u64) {
        if std::mem::replace(&mut self.schema, schema) != schema {
            self.flapping = Flapping::default();
        }
    }
}

/// Memories of all keys. A worker takes the one of its key out and puts it back: no lock is held during a pass.
#[derive(Debug, Default)]
pub(super) struct Memories(Mutex<HashMap<QueueKey, KeyMemory>>);

impl Memories {
    pub(super) fn take(&self, key: &QueueKey) -> KeyMemory {
        self.lock().remove(key).unwrap_or_default()
    }

    pub(super) fn put(&self, key: QueueKey, memory: KeyMemory) {
        self.lock().insert(key, memory);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<QueueKey, KeyMemory>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
