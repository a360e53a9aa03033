//! One copy of what many objects say alike.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::contract::TypeRef;

/// Below this many texts nothing is swept.
const SWEEP_MIN: usize = 1024;

/// Texts and types, each kept once; those that nobody holds any more are swept when the number has doubled.
#[derive(Debug)]
pub(super) struct Interner(Mutex<Pool>);

#[derive(Debug)]
struct Pool {
    texts: HashSet<Arc<str>>,
    // A handful in any cluster: a scan is faster than hashing two strings.
    types: Vec<Arc<TypeRef>>,
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Self(Mutex::new(Pool { texts: HashSet::new(), types: Vec::new(), sweep_at: SWEEP_MIN }))
    }
}

impl Interner {
    /// The shared copy of a text.
    pub(super) fn text(&self, text: &str) -> Arc<str> {
        self.lock().text(text)
    }

    /// The shared copy of a type.
    pub(super) fn type_ref(&self, api_version: &str, kind: &str) -> Arc<TypeRef> {
        let pool = &mut *self.lock();
        if let Some(known) = pool.types.iter().find(|known| known.kind == kind && known.api_version == api_version) {
            return Arc::clone(known);
        }
        let new = Arc::new(TypeRef::new(api_version, kind));
        pool.types.push(Arc::clone(&new));
        new
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        // No operation leaves the pool half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        if self.texts.len() >= self.sweep_at {
            self.sweep();
        }
        let new: Arc<str> = Arc::from(text);
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn sweep(&mut self) {
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.texts.shrink_to(self.texts.len() * 2);
        self.types.retain(|type_ref| Arc::strong_count(type_ref) > 1);
        self.sweep_at = (self.texts.len() * 2).max(SWEEP_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_forgotten_ones_are_swept() {
        let interner = Interner::default();
        let kept = interner.text("kept");
        assert!(Arc::ptr_eq(&kept, &interner.text("kept")));
        for number in 0..10 * SWEEP_MIN {
            interner.text(&number.to_string());
        }
        assert!(interner.lock().texts.len() <= SWEEP_MIN, "texts that nobody holds pile up");
        assert!(Arc::ptr_eq(&kept, &interner.text("kept")), "a text in use was swept");
    }
}
