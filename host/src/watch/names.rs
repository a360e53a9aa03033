//! Watches of single names: objects that are not ours and stand where a child is wanted.

use super::Watches;
use operator_core::contract::{ObjectName, TypeRef};
use operator_core::table::Scope;
use std::sync::PoisonError;

/// How many names are watched at most, over all types: each is a connection.
const NAMES_MAX: usize = 64;

impl Watches {
    /// Watches one name, until [`Watches::unwatch_name`]. False where too many names are watched already: then it has
    /// to be asked for.
    pub fn watch_name(&self, type_ref: &TypeRef, name: &ObjectName) -> bool {
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (type_ref.clone(), name.clone());
        if names.contains_key(&key) {
            return true;
        }
        if names.len() >= NAMES_MAX {
            return false;
        }
        let watched = self.0.watched_or_new(type_ref);
        let (id, task) = self.0.join(&watched, &Scope::single(name));
        names.insert(key, id);
        self.0.run(task);
        true
    }

    /// Ends the watch of a name.
    pub fn unwatch_name(&self, type_ref: &TypeRef, name: &ObjectName) {
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(id) = names.remove(&(type_ref.clone(), name.clone())) else { return };
        if let Some(watched) = self.0.watched(type_ref) {
            watched.leave(id);
        }
    }
}
