//! Who waits for a name: keys that want a child where another object stands, or is still going away.

use super::QueueKey;
use operator_core::contract::{ObjectName, TypeRef};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Identity = (TypeRef, ObjectName);

/// Index of waiting keys, both ways.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Index>);

#[derive(Debug, Default)]
struct Index {
    by_name: HashMap<Identity, HashSet<QueueKey>>,
    by_key: HashMap<QueueKey, HashSet<Identity>>,
}

impl Waiters {
    /// Replaces what a key waits for; returns the names that nobody waits for any more.
    pub(super) fn set(&self, key: &QueueKey, names: HashSet<Identity>) -> Vec<Identity> {
        let mut index = self.lock();
        let before =
            if names.is_empty() { index.by_key.remove(key) } else { index.by_key.insert(key.clone(), names.clone()) };
        let mut free = Vec::new();
        for name in before.unwrap_or_default() {
            if names.contains(&name) {
                continue;
            }
            if let Some(keys) = index.by_name.get_mut(&name) {
                keys.remove(key);
                if keys.is_empty() {
                    index.by_name.remove(&name);
                    free.push(name);
                }
            }
        }
        for name in names {
            index.by_name.entry(name).or_default().insert(key.clone());
        }
        free
    }

    /// Waits for one more name.
    pub(super) fn add(&self, key: &QueueKey, name: Identity) {
        let mut index = self.lock();
        index.by_name.entry(name.clone()).or_default().insert(key.clone());
        index.by_key.entry(key.clone()).or_default().insert(name);
    }

    /// Keys that wait for a name.
    pub(super) fn of(&self, type_ref: &TypeRef, name: &ObjectName) -> Vec<QueueKey> {
        let index = self.lock();
        if index.by_name.is_empty() {
            return Vec::new();
        }
        index
            .by_name
            .get(&(type_ref.clone(), name.clone()))
            .map(|keys| keys.iter().cloned().collect())
            .unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> QueueKey {
        QueueKey { operator: 0, name: ObjectName::new(Some("shop"), name) }
    }

    fn service(name: &str) -> Identity {
        (TypeRef::new("v1", "Service"), ObjectName::new(Some("shop"), name))
    }

    #[test]
    fn a_key_is_found_by_the_name_it_waits_for_until_it_no_longer_does() {
        let waiters = Waiters::default();
        assert!(waiters.set(&key("a"), HashSet::from([service("x"), service("y")])).is_empty());
        assert!(waiters.set(&key("b"), HashSet::from([service("x")])).is_empty());
        assert_eq!(waiters.of(&service("x").0, &service("x").1).len(), 2);

        assert_eq!(waiters.set(&key("a"), HashSet::new()), vec![service("y")], "x still has a waiter");
        assert_eq!(waiters.of(&service("x").0, &service("x").1), vec![key("b")]);
        assert_eq!(waiters.set(&key("b"), HashSet::new()), vec![service("x")]);
        assert!(waiters.of(&service("x").0, &service("x").1).is_empty());
    }
}
