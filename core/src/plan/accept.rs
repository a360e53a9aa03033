//! From a module's outcome to wanted children: every check that needs no live object.
//!
//! Each child that breaks a rule is refused by index, name and field, and its siblings go on. What is refused still counts as wanted
//! where its identity is known; where it is not, nothing may be pruned in that pass.

use crate::contract::{Child, ChildType, Descriptor, ObjectName, OnImmutable, OnPrune, TypeRef};
use crate::plan::canonical::Desired;
use crate::reconciled::{Problem, Reason};
use serde::Deserialize;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// What the rules depend on beside the outcome itself.
pub struct Rules<'a> {
    /// The module's own words.
    pub descriptor: &'a Descriptor,
    /// The primary's namespace; None for a cluster-scoped primary.
    pub namespace: Option<&'a str>,
    /// Whether a declared type is namespaced; None while it is not served.
    pub namespaced: &'a dyn Fn(&TypeRef) -> Option<bool>,
    /// Most children of one primary.
    pub max_children: usize,
}

/// A desired child that passed.
#[derive(Debug)]
pub struct Wanted {
    /// Its canonical form.
    pub desired: Desired,
    /// What to do about an immutable field.
    pub on_immutable: OnImmutable,
    /// What to do when it is no longer wanted.
    pub on_prune: OnPrune,
    /// Paths that are handed to others: left out of what is applied, and of what our manager owns.
    pub released: Vec<String>,
    /// Applied when every child of a lower wave is ready.
    pub wave: u32,
    /// It lives where no owner reference leads to the primary: an annotation stands for it.
    pub is_tracked: bool,
}

/// The outcome's children, sorted out.
#[derive(Debug, Default)]
pub struct Accepted {
    /// To be kept, made or changed.
    pub wanted: Vec<Wanted>,
    /// What was refused.
    pub problems: Vec<Problem>,
    /// Identities that were refused, and are wanted all the same.
    pub refused: HashSet<(TypeRef, ObjectName)>,
    /// Whether an identity could not be read: then nothing is pruned.
    pub unknown: bool,
}

/// Sorts an outcome's children into what can be planned and what is refused.
pub fn accept(children: Vec<Child>, rules: &Rules<'_>) -> Accepted {
    let mut accepted = Accepted::default();
    if children.len() > rules.max_children {
        accepted.unknown = true;
        accepted.problems.push(Problem::new(
            Reason::LimitExceeded,
            format!("the outcome has {} children, {} is the most for one object", children.len(), rules.max_children),
        ));
        return accepted;
    }
    let mut seen: HashMap<(TypeRef, ObjectName), usize> = HashMap::with_capacity(children.len());
    for (index, child) in children.into_iter().enumerate() {
        match accept_one(child, rules) {
            Ok(wanted) => {
                let identity = (wanted.desired.type_ref.clone(), wanted.desired.name.clone());
                match seen.entry(identity) {
                    Entry::Vacant(place) => {
                        place.insert(index);
                        accepted.wanted.push(wanted);
                    }
                    Entry::Occupied(first) => accepted.refuse_twins(wanted, *first.get(), index),
                }
            }
            Err(refusal) => accepted.refuse(index, *refusal),
        }
    }
    accepted
}

struct Refusal {
    identity: Option<(TypeRef, ObjectName)>,
    reason: Reason,
    message: String,
}

impl Accepted {
    fn refuse(&mut self, index: usize, refusal: Refusal) {
        let message = match &refusal.identity {
            Some((type_ref, name)) => format!("children[{index}] ({} {name}): {}", type_ref.kind, refusal.message),
            None => format!("children[{index}]: {}", refusal.message),
        };
        self.problems.push(Problem::new(refusal.reason, message));
        match refusal.identity {
            Some(identity) => drop(self.refused.insert(identity)),
            None => self.unknown = true,
        }
    }

    /// Neither of two children of one identity is applied: which one is meant can't be known.
    fn refuse_twins(&mut self, twin: Wanted, first: usize, index: usize) {
        let identity = (twin.desired.type_ref, twin.desired.name);
        self.wanted.retain(|wanted| (&wanted.desired.type_ref, &wanted.desired.name) != (&identity.0, &identity.1));
        let message = format!("the same object as children[{first}]; return each child once");
        self.refuse(index, Refusal { identity: Some(identity), reason: Reason::InvalidOutcome, message });
    }
}

fn accept_one(child: Child, rules: &Rules<'_>) -> Result<Wanted, Box<Refusal>> {
    let identity = identity_of(&child.object, rules);
    let refusal = |reason, message| Box::new(Refusal { identity: identity.clone(), reason, message });
    let invalid = |message| refusal(Reason::InvalidOutcome, message);
    let mut desired = Desired::parse(&child.object).map_err(|error| invalid(error.to_string()))?;
    let declared = declared_type(&desired.type_ref, rules).map_err(invalid)?;
    bounds(&child, declared).map_err(invalid)?;
    desired.release(&child.release).map_err(invalid)?;
    let Some(namespaced) = (rules.namespaced)(&desired.type_ref) else {
        let message = format!("type {} is not served, or forbidden", desired.type_ref);
        return Err(refusal(Reason::TypeUnavailable, message));
    };
    desired.name = place(&desired, declared, namespaced, rules.namespace).map_err(invalid)?;
    let is_tracked = rules.namespace.is_some() && desired.name.namespace.as_deref() != rules.namespace;
    Ok(Wanted {
        on_immutable: child.on_immutable,
        on_prune: child.on_prune,
        released: child.release,
        wave: child.wave,
        is_tracked,
        desired,
    })
}

/// Which object a text is about, even where the text breaks other rules.
fn identity_of(text: &str, rules: &Rules<'_>) -> Option<(TypeRef, ObjectName)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Object {
        api_version: String,
        kind: String,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        namespace: Option<String>,
    }
    let object: Object = serde_json::from_str(text).ok()?;
    let type_ref = TypeRef::new(object.api_version, object.kind);
    let namespace = match (rules.namespaced)(&type_ref) {
        Some(false) => None,
        Some(true) | None => rules.namespace,
    };
    let name = ObjectName::new(object.metadata.namespace.as_deref().or(namespace), &object.metadata.name);
    Some((type_ref, name))
}

fn declared_type<'a>(type_ref: &TypeRef, rules: &Rules<'a>) -> Result<&'a ChildType, String> {
    rules.descriptor.children.iter().find(|declared| &declared.type_ref == type_ref).ok_or_else(|| {
        format!("type {type_ref} is not among the children that describe declares; declare it there to use it")
    })
}

/// Where the child lives, or why it may not live there.
fn place(
    desired: &Desired,
    declared: &ChildType,
    namespaced: bool,
    primary: Option<&str>,
) -> Result<ObjectName, String> {
    let asked = desired.name.namespace.as_deref();
    match (namespaced, primary, asked) {
        (false, _, Some(asked)) => {
            Err(format!("metadata.namespace is {asked:?}, but {} is cluster-scoped", declared.type_ref))
        }
        (false, Some(_), None) if !declared.any_namespace => {
            Err(format!("{} is cluster-scoped; its child-type must allow any-namespace", declared.type_ref))
        }
        (false, _, None) => Ok(desired.name.clone()),
        (true, None, None) => {
            Err("metadata.namespace is missing; children of a cluster-scoped primary must name one".into())
        }
        (true, Some(primary), Some(asked)) if asked != primary && !declared.any_namespace => Err(format!(
            "metadata.namespace is {asked:?}, the primary's is {primary:?}; a child lives in its primary's namespace unless its \
             child-type allows any-namespace"
        )),
        (true, _, Some(_)) => Ok(desired.name.clone()),
        (true, Some(primary), None) => Ok(ObjectName::new(Some(primary), &desired.name.name)),
    }
}

/// What a child asks for, against the most that its declared type may ask for.
fn bounds(child: &Child, declared: &ChildType) -> Result<(), String> {
    if child.on_immutable > declared.on_immutable {
        return Err("on-immutable is recreate, but its child-type allows fail at most".into());
    }
    if child.on_prune > declared.on_prune {
        return Err("on-prune is delete, but its child-type allows orphan at most".into());
    }
    if let Some(extension) = child.extensions.iter().find(|e| e.required) {
        return Err(format!("extension {:?} is required and not known to this host", extension.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        let child = |api_version: &str, kind: &str, on_prune, any_namespace| ChildType {
            type_ref: TypeRef::new(api_version, kind),
            on_immutable: OnImmutable::Fail,
            on_prune,
            any_namespace,
            optional: kind == "Widget",
        };
        Descriptor {
            name: "m".into(),
            version: "1.0.0".into(),
            primary: TypeRef::new("example.com/v1", "Thing"),
            children: vec![
                child("v1", "ConfigMap", OnPrune::Delete, false),
                child("v1", "Secret", OnPrune::Orphan, false),
                child("v1", "Namespace", OnPrune::Orphan, false),
                child("example.com/v1", "Widget", OnPrune::Delete, false),
                child("v1", "Anywhere", OnPrune::Delete, true),
            ],
            related: vec![],
            condition_types: vec![],
            crds: vec![],
            capabilities: vec![],
            hooks: vec![],
            field_manager: None,
            replaces_managers: vec![],
            finalizer: None,
            extensions: vec![],
        }
    }

    fn child(object: &str) -> Child {
        Child {
            object: object.into(),
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Orphan,
            wave: 0,
            release: vec![],
            extensions: vec![],
        }
    }

    fn config_map(name: &str, rest: &str) -> Child {
        child(&format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"{rest}}}}}"#))
    }

    fn sorted_out(children: Vec<Child>, namespace: Option<&str>) -> Accepted {
        let namespaced = |type_ref: &TypeRef| match type_ref.kind.as_str() {
            "Widget" => None,
            kind => Some(kind != "Namespace"),
        };
        accept(children, &Rules { descriptor: &descriptor(), namespace, namespaced: &namespaced, max_children: 5 })
    }

    #[track_caller]
    fn only_problem(accepted: &Accepted) -> &str {
        assert_eq!(accepted.problems.len(), 1, "{:?}", accepted.problems);
        &accepted.problems[0].message
    }

    #[test]
    fn a_bad_child_is_refused_by_index_and_its_sibling_goes_on() {
        let accepted = sorted_out(vec![config_map("a", r#","uid":"x""#), config_map("b", "")], Some("shop"));
        assert!(only_problem(&accepted).starts_with("children[0] (ConfigMap shop/a): metadata.uid"));
        assert_eq!(accepted.wanted.len(), 1);
        assert_eq!(accepted.wanted[0].desired.name.to_string(), "shop/b");
        assert!(!accepted.unknown && accepted.refused.len() == 1, "the refused one is wanted all the same");
    }

    #[test]
    fn a_child_whose_identity_is_unreadable_forbids_pruning() {
        for text in ["", "{", "[]", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#] {
            let accepted = sorted_out(vec![child(text), config_map("b", "")], Some("shop"));
            assert!(accepted.unknown, "{text}");
            assert_eq!(accepted.wanted.len(), 1);
        }
    }

    #[test]
    fn of_two_children_of_one_identity_neither_is_applied() {
        let twins = vec![config_map("a", ""), config_map("b", ""), config_map("a", r#","labels":{"x":"y"}"#)];
        let accepted = sorted_out(twins, Some("shop"));
        assert!(only_problem(&accepted).contains("children[2] (ConfigMap shop/a): the same object as children[0]"));
        assert_eq!(accepted.wanted.len(), 1);
        assert_eq!(accepted.refused.len(), 1);
    }

    #[test]
    fn a_third_of_one_identity_is_refused_too() {
        let accepted = sorted_out(vec![config_map("a", ""), config_map("a", ""), config_map("a", "")], Some("shop"));
        assert_eq!(accepted.wanted.len(), 0, "{:?}", accepted.problems);
    }

    #[test]
    fn undeclared_types_and_other_namespaces_are_refused_by_name() {
        let pod = child(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}"#);
        assert!(only_problem(&sorted_out(vec![pod], Some("shop"))).contains("Pod.v1 is not among the children"));
        let elsewhere = config_map("a", r#","namespace":"kube-system""#);
        assert!(
            only_problem(&sorted_out(vec![elsewhere], Some("shop")))
                .contains("\"kube-system\", the primary's is \"shop\"")
        );
        let namespace = child(r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}"#);
        assert!(only_problem(&sorted_out(vec![namespace], Some("shop"))).contains("any-namespace"));
        assert!(only_problem(&sorted_out(vec![config_map("a", "")], None)).contains("metadata.namespace is missing"));
    }

    #[test]
    fn what_lives_elsewhere_is_tracked_by_an_annotation() {
        let role = child(r#"{"apiVersion":"v1","kind":"Anywhere","metadata":{"name":"n"}}"#);
        let here = sorted_out(vec![role.clone()], Some("shop"));
        assert!(!here.wanted[0].is_tracked);
        let there = child(r#"{"apiVersion":"v1","kind":"Anywhere","metadata":{"name":"n","namespace":"depot"}}"#);
        assert!(sorted_out(vec![there.clone()], Some("shop")).wanted[0].is_tracked);
        assert!(
            !sorted_out(vec![there], None).wanted[0].is_tracked,
            "a cluster-scoped owner is reached from everywhere"
        );
    }

    #[test]
    fn what_is_handed_to_others_is_left_out_of_what_is_wanted() {
        let text = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"ours":"1","theirs":"2"}}"#;
        let released = Child { release: vec!["data.theirs".into()], ..child(text) };
        let without = child(&text.replace(r#","theirs":"2""#, ""));
        let hash = |child| sorted_out(vec![child], Some("shop")).wanted[0].desired.hash.clone();
        assert_eq!(hash(released), hash(without));
    }

    #[test]
    fn a_child_may_not_ask_for_more_than_its_type_allows() {
        let recreate = Child { on_immutable: OnImmutable::Recreate, ..config_map("a", "") };
        assert!(only_problem(&sorted_out(vec![recreate], Some("shop"))).contains("allows fail at most"));
        let secret = child(r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}"#);
        let delete = Child { on_prune: OnPrune::Delete, ..secret };
        assert!(only_problem(&sorted_out(vec![delete], Some("shop"))).contains("allows orphan at most"));
    }

    #[test]
    fn what_this_host_does_not_serve_is_refused_and_not_ignored() {
        for path in ["spec", "spec..a", "spec.containers[0].image", "metadata.labels", "status.replicas"] {
            let released = Child { release: vec![path.into()], ..config_map("a", "") };
            assert!(
                only_problem(&sorted_out(vec![released], Some("shop"))).contains(&format!("release {path:?}")),
                "{path}"
            );
        }
        let extension = crate::contract::Extension { name: "x".into(), required: true, value: "1".into() };
        let extended = Child { extensions: vec![extension], ..config_map("a", "") };
        assert!(only_problem(&sorted_out(vec![extended], Some("shop"))).contains("\"x\" is required"));
    }

    #[test]
    fn a_child_of_an_unavailable_optional_type_is_refused_and_wanted() {
        let widget = child(r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}"#);
        let accepted = sorted_out(vec![widget, config_map("a", "")], Some("shop"));
        assert_eq!(accepted.problems[0].reason, Reason::TypeUnavailable);
        assert_eq!((accepted.wanted.len(), accepted.refused.len()), (1, 1));
    }

    #[test]
    fn too_many_children_are_refused_as_a_whole() {
        let many = (0..6).map(|n| config_map(&format!("a{n}"), "")).collect();
        let accepted = sorted_out(many, Some("shop"));
        assert_eq!(accepted.problems[0].reason, Reason::LimitExceeded);
        assert!(accepted.wanted.is_empty() && accepted.unknown, "nothing is written, nothing is pruned");
    }
}
