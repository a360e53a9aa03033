//! Watches of what modules ask for: by name, by labels, or all of a type, in a namespace or everywhere.
//!
//! What is asked for without labels shares the table of its type with primaries and children. Each selector has a table of its own, which
//! holds what the server says matches: what leaves the selection is gone from it, and nobody has to know why.

use super::{Shared, WatchedType, Watches, Watching};
use operator_core::contract::TypeRef;
use operator_core::object::Stored;
use operator_core::related::Source;
use operator_core::table::Scope;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tables by type and selector.
#[derive(Default)]
pub(super) struct Selections(Mutex<Tables>);

type Tables = HashMap<(TypeRef, Arc<str>), Arc<WatchedType>>;

impl Selections {
    pub(super) fn all(&self) -> Vec<Arc<WatchedType>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    /// Watches what a source names until the answer is dropped. What several ask for is watched once.
    pub fn select(&self, source: &Source) -> Watching {
        let scope = scope(source);
        let (watched, (id, task)) = match &source.place.labels {
            None => {
                let watched = self.0.watched_or_new(&source.type_ref);
                let joined = self.0.join(&watched, &scope);
                (watched, joined)
            }
            Some(labels) => self.0.join_selection(&source.type_ref, labels, &scope),
        };
        self.0.run(task);
        Watching(vec![(watched, id)])
    }

    /// The readable objects that a source names, sorted by name, and whether there are others. Nothing where it is not watched.
    pub fn selected(&self, source: &Source) -> (Vec<Arc<Stored>>, bool) {
        let watched = match &source.place.labels {
            None => self.0.watched(&source.type_ref),
            Some(labels) => self.0.selections.lock().get(&(source.type_ref.clone(), Arc::clone(labels))).cloned(),
        };
        watched.map(|watched| watched.read().select(&scope(source))).unwrap_or_default()
    }
}

impl Shared {
    /// Joins a watch of a selection. Those that nobody asks for any more are forgotten on the way.
    fn join_selection(
        self: &Arc<Self>,
        type_ref: &TypeRef,
        labels: &Arc<str>,
        scope: &Scope,
    ) -> (Arc<WatchedType>, super::Joined) {
        let mut selections = self.selections.lock();
        selections.retain(|_, watched| watched.is_watched());
        let new = || Arc::new(WatchedType::new(type_ref, Some(Arc::clone(labels)), &self.installation));
        let watched = selections.entry((type_ref.clone(), Arc::clone(labels))).or_insert_with(new);
        (Arc::clone(watched), self.join(watched, scope))
    }
}

/// What a source names in the table of its type, or of its selection.
fn scope(source: &Source) -> Scope {
    Scope { namespace: source.place.namespace.clone(), name: source.place.name.clone(), selected: false }
}
