//! Who asks for what, both ways, and who waits for a first answer.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::{Place, Source};
use crate::contract::{ObjectName, TypeRef};

/// Index of the keys that ask for objects.
#[derive(Debug)]
pub struct Askers<K> {
    by_type: HashMap<TypeRef, OfType<K>>,
    by_key: HashMap<K, HashSet<Source>>,
}

/// Who asks for objects of one type.
#[derive(Debug)]
struct OfType<K> {
    by_place: HashMap<Place, HashSet<K>>,
    waiting: HashSet<K>,
}

/// What a key's new questions changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Moved {
    /// Asked for by nobody before.
    pub begun: Vec<Source>,
    /// Asked for by nobody any more.
    pub ended: Vec<Source>,
}

impl<K> Default for Askers<K> {
    fn default() -> Self {
        Self { by_type: HashMap::new(), by_key: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Askers<K> {
    /// Replaces what a key asks for.
    pub fn set(&mut self, key: &K, sources: HashSet<Source>) -> Moved {
        let before = self.by_key.remove(key).unwrap_or_default();
        let begun = sources.difference(&before).filter(|source| self.begin(key, source)).cloned().collect();
        let ended = before.difference(&sources).filter(|source| self.end(key, source)).cloned().collect();
        for source in before.difference(&sources) {
            self.tidy(key, &source.type_ref, &sources);
        }
        if !sources.is_empty() {
            self.by_key.insert(key.clone(), sources);
        }
        Moved { begun, ended }
    }

    /// What a key asks for.
    pub fn asked_by(&self, key: &K) -> HashSet<Source> {
        self.by_key.get(key).cloned().unwrap_or_default()
    }

    /// Whether a key that asks for objects of this type waits until they are known.
    pub fn set_waiting(&mut self, key: &K, type_ref: &TypeRef, is_waiting: bool) {
        let Some(of_type) = self.by_type.get_mut(type_ref) else { return };
        match is_waiting {
            true => _ = of_type.waiting.insert(key.clone()),
            false => _ = of_type.waiting.remove(key),
        }
    }

    /// The keys that waited for this type, which do so no longer: they look for themselves.
    pub fn take_waiting(&mut self, type_ref: &TypeRef) -> HashSet<K> {
        self.by_type.get_mut(type_ref).map(|of_type| std::mem::take(&mut of_type.waiting)).unwrap_or_default()
    }

    /// The keys that asked for an object of which something was told, by the watch of a selection or by one without labels. What is part
    /// of a first list is no news to who waits for that.
    pub fn of(&self, type_ref: &TypeRef, labels: Option<&str>, name: &ObjectName, initial: bool) -> HashSet<K> {
        let Some(of_type) = self.by_type.get(type_ref) else { return HashSet::new() };
        let place = |namespace: &Option<_>, name: Option<_>| Place {
            labels: labels.map(Into::into),
            namespace: namespace.clone(),
            name,
        };
        let places = HashSet::from([
            place(&name.namespace, Some(name.name.clone())),
            place(&name.namespace, None),
            place(&None, Some(name.name.clone())),
            place(&None, None),
        ]);
        let keys = places.iter().filter_map(|place| of_type.by_place.get(place)).flatten();
        keys.filter(|key| !initial || !of_type.waiting.contains(*key)).cloned().collect()
    }

    /// Whether it is the first to ask.
    fn begin(&mut self, key: &K, source: &Source) -> bool {
        let new = || OfType { by_place: HashMap::new(), waiting: HashSet::new() };
        let of_type = self.by_type.entry(source.type_ref.clone()).or_insert_with(new);
        let keys = of_type.by_place.entry(source.place.clone()).or_default();
        keys.insert(key.clone());
        keys.len() == 1
    }

    /// Whether it was the last to ask.
    fn end(&mut self, key: &K, source: &Source) -> bool {
        let Some(of_type) = self.by_type.get_mut(&source.type_ref) else { return false };
        let Some(keys) = of_type.by_place.get_mut(&source.place) else { return false };
        keys.remove(key);
        let is_last = keys.is_empty();
        if is_last {
            of_type.by_place.remove(&source.place);
        }
        is_last
    }

    /// Forgets a type that a key, or nobody, asks for any more.
    fn tidy(&mut self, key: &K, type_ref: &TypeRef, still: &HashSet<Source>) {
        if !still.iter().any(|source| source.type_ref == *type_ref) {
            self.set_waiting(key, type_ref, false);
        }
        if self.by_type.get(type_ref).is_some_and(|of_type| of_type.by_place.is_empty()) {
            self.by_type.remove(type_ref);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn source(kind: &str, labels: Option<&str>, namespace: Option<&str>, name: Option<&str>) -> Source {
        let arc = |text: Option<&str>| text.map(Arc::from);
        let place = Place { labels: arc(labels), namespace: arc(namespace), name: arc(name) };
        Source { type_ref: TypeRef::new("v1", kind), place }
    }

    /// What the index must say, by looking at everything.
    #[derive(Default)]
    struct Model(HashMap<u8, HashSet<Source>>);

    impl Model {
        fn of(&self, type_ref: &TypeRef, labels: Option<&str>, name: &ObjectName) -> HashSet<u8> {
            let is_meant = |source: &Source| {
                source.type_ref == *type_ref
                    && source.place.labels.as_deref() == labels
                    && source.place.namespace.as_ref().is_none_or(|of| Some(of) == name.namespace.as_ref())
                    && source.place.name.as_ref().is_none_or(|of| *of == name.name)
            };
            let asks = |(key, sources): (&u8, &HashSet<Source>)| sources.iter().any(is_meant).then_some(*key);
            self.0.iter().filter_map(asks).collect()
        }

        fn asked(&self) -> HashSet<Source> {
            self.0.values().flatten().cloned().collect()
        }
    }

    #[test]
    fn whoever_asks_in_whatever_order_is_found_and_each_source_begins_and_ends_once() {
        let mut sources = Vec::new();
        for kind in ["ConfigMap", "Node"] {
            for labels in [None, Some("app=web")] {
                for namespace in [None, Some("shop"), Some("bank")] {
                    sources.push(source(kind, labels, namespace, None));
                    if labels.is_none() {
                        sources.push(source(kind, None, namespace, Some("a")));
                    }
                }
            }
        }
        let names = ["shop", "bank"].map(|namespace| ObjectName::new(Some(namespace), "a"));
        let names: Vec<ObjectName> = names.into_iter().chain([ObjectName::new(None, "b")]).collect();
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut askers, mut model, mut running) = (Askers::default(), Model::default(), HashSet::new());
            for _ in 0..60 {
                let key = rng.u8(..5);
                let wanted: HashSet<Source> =
                    (0..rng.usize(..4)).map(|_| sources[rng.usize(..sources.len())].clone()).collect();
                let Moved { begun, ended } = askers.set(&key, wanted.clone());
                begun.into_iter().for_each(|source| assert!(running.insert(source), "begun twice (seed {seed})"));
                ended.iter().for_each(|source| assert!(running.remove(source), "ended twice (seed {seed})"));
                model.0.insert(key, wanted);
                assert_eq!(running, model.asked(), "seed {seed}");
                for (type_ref, labels) in
                    sources.iter().map(|source| (&source.type_ref, source.place.labels.as_deref()))
                {
                    for name in &names {
                        assert_eq!(
                            askers.of(type_ref, labels, name, false),
                            model.of(type_ref, labels, name),
                            "seed {seed}"
                        );
                    }
                }
            }
            for key in 0..5 {
                let _ = askers.set(&key, HashSet::new());
            }
            assert!(askers.by_type.is_empty() && askers.by_key.is_empty(), "something is kept of nobody (seed {seed})");
        }
    }

    #[test]
    fn a_first_list_wakes_who_is_past_it_and_its_end_who_waits_for_it() {
        let mut askers = Askers::default();
        let everywhere = source("ConfigMap", None, None, None);
        let (type_ref, name) = (everywhere.type_ref.clone(), ObjectName::new(Some("shop"), "a"));
        for key in ["new", "old"] {
            let _ = askers.set(&key, HashSet::from([everywhere.clone()]));
        }
        askers.set_waiting(&"new", &type_ref, true);
        assert_eq!(askers.of(&type_ref, None, &name, true), HashSet::from(["old"]));
        assert_eq!(askers.of(&type_ref, None, &name, false), HashSet::from(["new", "old"]));
        assert_eq!(askers.take_waiting(&type_ref), HashSet::from(["new"]));
        assert_eq!(askers.of(&type_ref, None, &name, true), HashSet::from(["new", "old"]));
    }
}
