//! What `relate` asks for: from an answer to what has to be watched, and from a change back to who asked.
//!
//! In come a module's queries and the changes of the tables; out come [`Source`]s, each of which is watched once however many ask for it,
//! and the keys that a change matters to. Matching is the API server's: a table of a selection holds what the server says matches.

mod askers;
mod budget;
mod selector;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::contract::{Query, RelatedType, Selection, TypeRef};

pub use askers::{Askers, Moved};
pub use budget::Budget;

/// Calls of `relate` in a row of which the last has to answer as the one before it.
pub const ROUNDS: usize = 4;

/// Queries of one answer.
pub const QUERIES_MAX: usize = 64;

/// Objects of one snapshot, over all of its queries.
pub const OBJECTS_MAX: usize = 1_000;

/// Which objects of a type are asked for: what has to be watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The type.
    pub type_ref: TypeRef,
    /// Where of it.
    pub place: Place,
}

/// Which objects of some type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// A label selector in the one form that all of its spellings have in common; None: with whatever labels.
    pub labels: Option<Arc<str>>,
    /// None: everywhere.
    pub namespace: Option<Arc<str>>,
    /// None: all of them.
    pub name: Option<Arc<str>>,
}

/// A query that can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The query's id.
    pub id: String,
    /// What answers it.
    pub source: Source,
}

/// An answer of `relate`, sorted by id.
///
/// # Errors
/// What of it breaks the contract.
pub fn check(queries: Vec<Query>, declared: &[RelatedType]) -> Result<Vec<Asked>, String> {
    if queries.len() > QUERIES_MAX {
        return Err(format!("relate answered with {} queries; at most {QUERIES_MAX} are served", queries.len()));
    }
    let mut ids = BTreeSet::new();
    let mut asked = Vec::new();
    for query in queries {
        let invalid = |why: String| format!("relate: query {:?}: {why}", query.id);
        if !ids.insert(query.id.clone()) {
            return Err(invalid("asked twice; each needs an id of its own".into()));
        }
        if !declared.iter().any(|related| related.type_ref == query.type_ref) {
            return Err(invalid(format!("{} is not among the related types of describe", query.type_ref)));
        }
        if let Some(namespace) = query.namespace.as_deref().filter(|namespace| !is_name(namespace)) {
            return Err(invalid(format!("{namespace:?} can't be a namespace")));
        }
        let (labels, name) = match &query.select {
            Selection::All => (None, None),
            Selection::Labels(text) => (selector::canonical(text).map_err(invalid)?, None),
            Selection::Name(name) if is_name(name) => (None, Some(Arc::clone(name))),
            Selection::Name(name) => return Err(invalid(format!("{name:?} can't be the name of an object"))),
        };
        let place = Place { labels: labels.map(Arc::from), namespace: query.namespace.clone(), name };
        asked.push(Asked { id: query.id, source: Source { type_ref: query.type_ref, place } });
    }
    asked.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(asked)
}

/// What can be part of a URL's path and of a field selector as it is: more than any type allows in names.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '%' | ',' | '=' | '!' | '\\');
    (1..=253).contains(&text.len()) && text.chars().all(is_plain) && !matches!(text, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map() -> TypeRef {
        TypeRef::new("v1", "ConfigMap")
    }

    fn query(id: &str, select: Selection) -> Query {
        Query { id: id.into(), type_ref: config_map(), namespace: Some("shop".into()), select }
    }

    fn checked(queries: Vec<Query>) -> Result<Vec<Asked>, String> {
        check(queries, &[RelatedType { type_ref: config_map(), optional: false }])
    }

    #[track_caller]
    fn assert_refused(queries: Vec<Query>, with: &str) {
        let refused = checked(queries).expect_err("it can be answered");
        assert!(refused.contains(with), "{with:?} is not said: {refused}");
    }

    #[test]
    fn queries_are_answered_in_the_order_of_their_ids_whatever_the_order_asked() {
        let asked = checked(vec![query("b", Selection::All), query("a", Selection::Name("x".into()))]).expect("valid");
        assert_eq!(asked.iter().map(|asked| asked.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(asked[0].source.place.name.as_deref(), Some("x"));
    }

    #[test]
    fn spellings_of_a_selector_are_one_watch() {
        let spelled = |text: &str| checked(vec![query("a", Selection::Labels(text.into()))]).expect("valid");
        assert_eq!(spelled("tier!=cache,app==web"), spelled(" app in (web) , tier notin (cache)"));
        assert_eq!(spelled("").first().and_then(|asked| asked.source.place.labels.clone()), None, "it selects all");
    }

    #[test]
    fn what_breaks_the_contract_is_said_with_its_query() {
        assert_refused(vec![query("a", Selection::All), query("a", Selection::All)], "\"a\": asked twice");
        let pods = Query { type_ref: TypeRef::new("v1", "Pod"), ..query("p", Selection::All) };
        assert_refused(vec![pods], "\"p\": Pod.v1 is not among the related types");
        for name in ["", "..", "a/b", "a,metadata.namespace=x"] {
            assert_refused(vec![query("a", Selection::Name(name.into()))], "can't be the name");
        }
        let nowhere = Query { namespace: Some("a/b".into()), ..query("a", Selection::All) };
        assert_refused(vec![nowhere], "can't be a namespace");
        assert_refused(vec![query("a", Selection::Labels("app=(web".into()))], "\"a\": label selector");
        let many = (0..=QUERIES_MAX).map(|number| query(&number.to_string(), Selection::All)).collect();
        assert_refused(many, "65 queries; at most 64");
    }
}
