//! Whether one build of a module may take the place of another while it runs, and what is different about it.
//!
//! In come what both say of themselves; out come the changes that a person wants to see named, or every reason why not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::contract::{Capability, ChildType, Descriptor, Hook, OnImmutable, OnPrune, TypeRef};

/// What is different about `candidate`, in words; empty where nothing is that its descriptor tells.
///
/// # Errors
/// Every reason why it can't go on with what `running` made.
pub fn compare(running: &Descriptor, candidate: &Descriptor) -> Result<Vec<String>, Vec<String>> {
    let refused = refusals(running, candidate);
    if !refused.is_empty() {
        return Err(refused);
    }
    let mut changes = Vec::new();
    if running.version != candidate.version {
        changes.push(format!("version {} is now {}", running.version, candidate.version));
    }
    if running.primary != candidate.primary {
        changes.push(format!("primary type {} is now {}", running.primary, candidate.primary));
    }
    hooks(running, candidate, &mut changes);
    children(running, candidate, &mut changes);
    related(running, candidate, &mut changes);
    conditions(running, candidate, &mut changes);
    capabilities(running, candidate, &mut changes);
    definitions(running, candidate, &mut changes);
    Ok(changes)
}

fn refusals(running: &Descriptor, candidate: &Descriptor) -> Vec<String> {
    let mut refused = Vec::new();
    if running.name != candidate.name {
        refused.push(format!(
            "it is named {:?}, not {:?}: the name is a module's identity in the cluster; run it as a module of its own",
            candidate.name, running.name
        ));
        // All else that is different comes of that.
        return refused;
    }
    let (before, after) = (&running.primary, &candidate.primary);
    if (before.group(), &before.kind) != (after.group(), &after.kind) {
        refused
            .push(format!("its primary type is {after}, not {before}: what was made for those would be left behind"));
    }
    let (before, after) = (running.manager(), candidate.manager());
    if before != after {
        refused.push(format!(
            "its field manager is {after:?}, not {before:?}: what was written so far would stay with the old one, and fields \
             that are no longer returned would never go; keep the field manager"
        ));
    }
    finalizers(running, candidate, &mut refused);
    refused
}

/// What objects were promised at their creation has to be kept when they are deleted.
fn finalizers(running: &Descriptor, candidate: &Descriptor, refused: &mut Vec<String>) {
    for hook in [Hook::Finalize, Hook::External] {
        if running.has(hook) && !candidate.has(hook) {
            refused.push(format!(
                "it has no hook {:?} any more, and objects carry the finalizer {} for it: they would never go; keep the hook, or let go \
                 of the objects first: operator release --module FILE --dry-run",
                hook.as_str(),
                running.finalizer()
            ));
        }
    }
    match (running.needed_finalizer(), candidate.needed_finalizer()) {
        (Some(before), Some(after)) if before != after => refused.push(format!(
            "its finalizer is {after}, not {before}: nobody would take the one off that objects carry; keep the finalizer"
        )),
        // A hook that is gone was said.
        (Some(before), None) if refused.is_empty() => refused.push(format!(
            "no type of its children is any-namespace any more, and objects carry the finalizer {before} for those: they would never go; \
             keep a type any-namespace"
        )),
        _ => {}
    }
}

fn hooks(running: &Descriptor, candidate: &Descriptor, changes: &mut Vec<String>) {
    for hook in Hook::ALL.into_iter().filter(|hook| candidate.has(*hook) && !running.has(*hook)) {
        changes.push(format!("hook {} is new", hook.as_str()));
    }
    for hook in Hook::ALL.into_iter().filter(|hook| running.has(*hook) && !candidate.has(*hook)) {
        changes.push(format!("hook {} is no longer there", hook.as_str()));
    }
}

fn children(running: &Descriptor, candidate: &Descriptor, changes: &mut Vec<String>) {
    let by_type = |descriptor: &Descriptor| -> BTreeMap<TypeRef, ChildType> {
        descriptor.children.iter().map(|child| (child.type_ref.clone(), child.clone())).collect()
    };
    let (before, after) = (by_type(running), by_type(candidate));
    for (type_ref, child) in &after {
        match before.get(type_ref) {
            None => changes.push(format!("child type {type_ref} is new")),
            Some(before) if before != child => {
                changes.push(format!("child type {type_ref} is now {}, it was {}", policies(child), policies(before)));
            }
            Some(_) => {}
        }
    }
    for type_ref in before.keys().filter(|type_ref| !after.contains_key(type_ref)) {
        changes.push(format!("child type {type_ref} is no longer declared: children of it are left as they are"));
    }
}

fn related(running: &Descriptor, candidate: &Descriptor, changes: &mut Vec<String>) {
    let by_type = |descriptor: &Descriptor| -> BTreeMap<TypeRef, bool> {
        descriptor.related.iter().map(|related| (related.type_ref.clone(), related.optional)).collect()
    };
    let (before, after) = (by_type(running), by_type(candidate));
    for (type_ref, is_optional) in &after {
        match (before.get(type_ref), is_optional) {
            (None, _) => changes.push(format!("related type {type_ref} is new")),
            (Some(false), true) => changes.push(format!("related type {type_ref} is now optional")),
            (Some(true), false) => changes.push(format!("related type {type_ref} is no longer optional")),
            _ => {}
        }
    }
    for type_ref in before.keys().filter(|type_ref| !after.contains_key(type_ref)) {
        changes.push(format!("related type {type_ref} is no longer declared"));
    }
}

fn capabilities(running: &Descriptor, candidate: &Descriptor, changes: &mut Vec<String>) {
    let find = |of: &Descriptor, name: &str| of.capabilities.iter().find(|one| one.name == name).cloned();
    for Capability { name, target, .. } in &candidate.capabilities {
        match find(running, name) {
            None => changes.push(format!("capability {name} ({target}) is new")),
            Some(before) if before.target != *target => {
                changes.push(format!("capability {name} is now {target}, it was {}", before.target));
            }
            Some(_) => {}
        }
    }
    for Capability { name, .. } in running.capabilities.iter().filter(|one| find(candidate, &one.name).is_none()) {
        changes.push(format!("capability {name} is no longer asked for"));
    }
}

fn policies(child: &ChildType) -> String {
    let mut words = vec![match child.on_immutable {
        OnImmutable::Fail => "on-immutable fail",
        OnImmutable::Recreate => "on-immutable recreate",
    }];
    words.push(match child.on_prune {
        OnPrune::Orphan => "on-prune orphan",
        OnPrune::Delete => "on-prune delete",
    });
    words.extend(child.any_namespace.then_some("any-namespace"));
    words.extend(child.optional.then_some("optional"));
    words.join(" and ")
}

fn conditions(running: &Descriptor, candidate: &Descriptor, changes: &mut Vec<String>) {
    let set = |descriptor: &Descriptor| -> BTreeSet<String> { descriptor.condition_types.iter().cloned().collect() };
    let (before, after) = (set(running), set(candidate));
    changes.extend(after.difference(&before).map(|type_| format!("condition type {type_} is new")));
    changes.extend(
        before.difference(&after).map(|type_| {
            format!("condition type {type_} is no longer declared: conditions of it are left as they are")
        }),
    );
}

fn definitions(running: &Descriptor, candidate: &Descriptor, changes: &mut Vec<String>) {
    let (before, after) = (by_name(running), by_name(candidate));
    for (name, definition) in &after {
        match before.get(name) {
            None => changes.push(format!("CustomResourceDefinition {name} is new")),
            Some(before) if before != definition => {
                changes.push(format!("CustomResourceDefinition {name} is another"));
            }
            Some(_) => {}
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        changes.push(format!("CustomResourceDefinition {name} is no longer brought"));
    }
}

/// The definitions of a module that was checked at load: each is JSON.
fn by_name(descriptor: &Descriptor) -> BTreeMap<String, Value> {
    let parsed = descriptor.crds.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
    parsed.map(|crd| (crd["metadata"]["name"].as_str().unwrap_or_default().to_owned(), crd)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::RelatedType;

    fn child(api_version: &str, kind: &str) -> ChildType {
        ChildType {
            type_ref: TypeRef::new(api_version, kind),
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Delete,
            any_namespace: false,
            optional: false,
        }
    }

    fn webapp() -> Descriptor {
        Descriptor {
            name: "webapp".into(),
            version: "0.1.0".into(),
            primary: TypeRef::new("webapp.example.com/v1", "WebApp"),
            children: vec![child("apps/v1", "Deployment"), child("v1", "Service")],
            related: vec![],
            condition_types: vec!["Ready".into()],
            crds: vec![r#"{"metadata": {"name": "webapps.webapp.example.com"}, "spec": {}}"#.into()],
            capabilities: vec![],
            hooks: vec![],
            field_manager: None,
            replaces_managers: vec![],
            finalizer: None,
            extensions: vec![],
        }
    }

    fn compared(change: impl FnOnce(&mut Descriptor)) -> Result<Vec<String>, Vec<String>> {
        let mut candidate = webapp();
        change(&mut candidate);
        compare(&webapp(), &candidate)
    }

    #[track_caller]
    fn assert_refused(change: impl FnOnce(&mut Descriptor), with: &str) {
        let refused = compared(change).expect_err("it can go on");
        assert!(refused.len() == 1 && refused[0].contains(with), "{with:?} is not said: {refused:#?}");
    }

    #[track_caller]
    fn assert_changes(change: impl FnOnce(&mut Descriptor), expected: &[&str]) {
        assert_eq!(compared(change).expect("it can't go on"), expected);
    }

    #[test]
    fn what_objects_wait_for_at_their_end_is_not_dropped() {
        let mut running = webapp();
        running.hooks = vec!["finalize".into(), "external".into()];
        let mut candidate = running.clone();
        candidate.hooks = vec!["external".into()];
        let refused = compare(&running, &candidate).expect_err("finalize is gone");
        assert!(refused[0].contains("no hook \"finalize\" any more"), "{refused:?}");
        let mut roaming = webapp();
        roaming.children[0].any_namespace = true;
        let refused = compare(&roaming, &webapp()).expect_err("its children elsewhere would stay");
        assert!(refused[0].contains("any-namespace any more"), "{refused:?}");
        candidate = Descriptor { finalizer: Some("example.com/other".into()), ..running.clone() };
        let refused = compare(&running, &candidate).expect_err("another finalizer");
        assert!(refused[0].contains("its finalizer is example.com/other"), "{refused:?}");
    }

    #[test]
    fn another_operator_is_refused_by_what_makes_it_another() {
        assert_refused(|d| d.name = "other".into(), "it is named \"other\", not \"webapp\"");
        assert_refused(
            |d| d.primary = TypeRef::new("shop.example.com/v1", "WebApp"),
            "its primary type is WebApp.shop.example.com/v1, not WebApp.webapp.example.com/v1",
        );
        assert_refused(
            |d| d.field_manager = Some("mine".into()),
            "its field manager is \"mine\", not \"operator-host/webapp\"",
        );
        assert_eq!(
            compared(|d| d.field_manager = Some("operator-host/webapp".into())),
            Ok(vec![]),
            "it is the default"
        );
    }

    #[test]
    fn an_equal_build_has_no_changes() {
        assert_changes(|_| {}, &[]);
        assert_changes(|d| d.children.reverse(), &[]);
        assert_changes(|d| d.crds[0] = d.crds[0].replace(' ', "\n"), &[]);
    }

    #[test]
    fn each_change_is_named() {
        assert_changes(|d| d.version = "0.2.0".into(), &["version 0.1.0 is now 0.2.0"]);
        let asked = Capability { name: "records".into(), target: "dir:/records".into(), reason: String::new() };
        assert_changes(|d| d.capabilities.push(asked), &["capability records (dir:/records) is new"]);
        assert_changes(
            |d| d.primary.api_version = "webapp.example.com/v2".into(),
            &["primary type WebApp.webapp.example.com/v1 is now WebApp.webapp.example.com/v2"],
        );
        assert_changes(
            |d| d.children[1] = child("v1", "Secret"),
            &[
                "child type Secret.v1 is new",
                "child type Service.v1 is no longer declared: children of it are left as they are",
            ],
        );
        assert_changes(
            |d| d.children[0].on_immutable = OnImmutable::Recreate,
            &["child type Deployment.apps/v1 is now on-immutable recreate and on-prune delete, \
               it was on-immutable fail and on-prune delete"],
        );
        assert_changes(
            |d| d.condition_types = vec!["Available".into()],
            &[
                "condition type Available is new",
                "condition type Ready is no longer declared: conditions of it are left as they are",
            ],
        );
        assert_changes(
            |d| d.crds[0] = d.crds[0].replace("{}", "1"),
            &["CustomResourceDefinition webapps.webapp.example.com is another"],
        );
        assert_changes(
            |d| d.crds.clear(),
            &["CustomResourceDefinition webapps.webapp.example.com is no longer brought"],
        );
        let pods = |optional| vec![RelatedType { type_ref: TypeRef::new("v1", "Pod"), optional }];
        assert_changes(|d| d.related = pods(false), &["related type Pod.v1 is new"]);
        let relating = |optional| Descriptor { related: pods(optional), ..webapp() };
        let changes = |before, after| compare(&relating(before), &relating(after)).expect("it can go on");
        assert_eq!(changes(false, true), ["related type Pod.v1 is now optional"]);
        assert_eq!(changes(true, false), ["related type Pod.v1 is no longer optional"]);
        assert_eq!(
            compare(&relating(true), &webapp()).expect("it can go on"),
            ["related type Pod.v1 is no longer declared"]
        );
    }
}
