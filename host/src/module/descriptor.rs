//! Whether what a module says of itself can be served.
//!
//! In: a [`Descriptor`]. Out: nothing, or every reason why not, so that an author fixes them in one go.

use std::collections::BTreeSet;

use operator_core::contract::{Capability, Descriptor, Hook, RelatedType, TypeRef};
use operator_core::names::{FIELD_MANAGER_MAX, RECONCILED};
use operator_core::schema::Definition;

use crate::module::contract::NOT_YET;

/// Every reason why this host can't serve a module that describes itself like that and exports these hooks.
pub(crate) fn problems(descriptor: &Descriptor, exported: &[Hook]) -> Vec<String> {
    let mut problems = Vec::new();
    identity(descriptor, &mut problems);
    types(descriptor, &mut problems);
    conditions(descriptor, &mut problems);
    crds(descriptor, &mut problems);
    hooks(descriptor, exported, &mut problems);
    capabilities(descriptor, &mut problems);
    not_yet(descriptor, &mut problems);
    problems
}

fn identity(descriptor: &Descriptor, problems: &mut Vec<String>) {
    if !is_dns_label(&descriptor.name) {
        problems.push(format!(
            "name {:?} is not a DNS label (at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit)",
            descriptor.name
        ));
    }
    if let Err(error) = semver::Version::parse(&descriptor.version) {
        problems.push(format!("version {:?} is not a semantic version such as 1.2.3: {error}", descriptor.version));
    }
    let manager = descriptor.manager();
    if manager.is_empty() || manager.len() > FIELD_MANAGER_MAX || !manager.chars().all(|c| c.is_ascii_graphic()) {
        problems.push(format!(
            "field-manager {manager:?} must be 1 to {FIELD_MANAGER_MAX} printable characters, as the API server has it"
        ));
    }
    for replaced in &descriptor.replaces_managers {
        if *replaced == manager {
            problems.push(format!("replaces-managers: {replaced:?} is the module's own field manager"));
        } else if replaced.is_empty() || replaced.len() > FIELD_MANAGER_MAX {
            problems
                .push(format!("replaces-managers: {replaced:?} is no field manager: 1 to {FIELD_MANAGER_MAX} bytes"));
        }
    }
    if let Some(finalizer) = descriptor.finalizer.as_deref().filter(|finalizer| !is_qualified(finalizer)) {
        problems
            .push(format!("finalizer {finalizer:?} must be domain-qualified, such as example.com/{}", descriptor.name));
    }
}

fn types(descriptor: &Descriptor, problems: &mut Vec<String>) {
    if let Some(why) = why_no_type(&descriptor.primary) {
        problems.push(format!("primary {}: {why}", descriptor.primary));
    }
    let mut seen = BTreeSet::new();
    for child in &descriptor.children {
        let type_ref = &child.type_ref;
        if let Some(why) = why_no_type(type_ref) {
            problems.push(format!("child type {type_ref}: {why}"));
        }
        if is_same_kind(type_ref, &descriptor.primary) {
            problems.push(format!("child type {type_ref} is the primary type: a module can't make its own inputs"));
        }
        if !seen.insert((type_ref.group(), &type_ref.kind)) {
            problems.push(format!("child type {type_ref} is declared twice (versions of one kind count as one)"));
        }
    }
    let mut seen = BTreeSet::new();
    for RelatedType { type_ref, .. } in &descriptor.related {
        if let Some(why) = why_no_type(type_ref) {
            problems.push(format!("related type {type_ref}: {why}"));
        }
        if !seen.insert((type_ref.group(), &type_ref.kind)) {
            problems.push(format!("related type {type_ref} is declared twice (versions of one kind count as one)"));
        }
    }
}

fn conditions(descriptor: &Descriptor, problems: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for type_ in &descriptor.condition_types {
        if type_ == RECONCILED {
            problems.push(format!("condition type {RECONCILED:?} is the host's own"));
        } else if !is_condition_type(type_) {
            problems.push(format!("condition type {type_:?} is not one that Kubernetes takes, such as Ready"));
        }
        if !seen.insert(type_) {
            problems.push(format!("condition type {type_:?} is declared twice"));
        }
    }
}

fn crds(descriptor: &Descriptor, problems: &mut Vec<String>) {
    let primary = &descriptor.primary;
    for (index, text) in descriptor.crds.iter().enumerate() {
        match Definition::parse(text) {
            Err(error) => problems.push(format!("crds[{index}] {error}")),
            Ok(definition) if definition.is_of(primary) && !definition.serves(primary.version()) => {
                problems.push(format!(
                    "crds[{index}] defines {} but does not serve its version {}",
                    primary.kind,
                    primary.version()
                ));
            }
            Ok(_) => {}
        }
    }
}

/// Why a module can't work in these namespaces alone: a cluster-scoped primary can't be watched in some. The module's own CRD tells its
/// scope.
pub fn misplaced(descriptor: &Descriptor, namespaces: &[String]) -> Option<String> {
    let is_cluster_scoped = Definition::of(descriptor, &descriptor.primary)?.is_cluster_scoped();
    (is_cluster_scoped && !namespaces.is_empty()).then(|| {
        format!(
            "module {:?}: {} is cluster-scoped, so it can't be limited by --namespace; leave the flag out",
            descriptor.name, descriptor.primary
        )
    })
}

/// What the file exports and what it says it does have to agree: an export that a toolchain made by itself must not become a finalizer on
/// every object, and a finalizer must not be lost silently.
fn hooks(descriptor: &Descriptor, exported: &[Hook], problems: &mut Vec<String>) {
    for hook in Hook::ALL {
        let name = hook.as_str();
        match (descriptor.has(hook), exported.contains(&hook)) {
            (true, false) => problems.push(format!(
                "hooks names {name:?}, but the file does not export `operator:reconciler/{name}`; export it, or leave it out of hooks"
            )),
            (false, true) => problems.push(format!(
                "the file exports `operator:reconciler/{name}`, but hooks does not name {name:?}; name it, or build without it"
            )),
            _ => {}
        }
    }
    for hook in &descriptor.hooks {
        if !is_known(hook) {
            let known: Vec<_> = Hook::ALL.into_iter().map(Hook::as_str).chain(NOT_YET).collect();
            problems.push(format!("hook {hook:?} is unknown: the contract has {}", known.join(", ")));
        }
    }
    if !descriptor.capabilities.is_empty() && !descriptor.has(Hook::External) {
        problems.push(
            "capabilities are asked for without the hook \"external\", the only place where they are live".into(),
        );
    }
    if !descriptor.related.is_empty() && !descriptor.has(Hook::Relate) {
        problems.push("related types are declared without the hook \"relate\", which reads them".into());
    }
}

/// Grants are by name, in a flag that lists of commas separate.
fn capabilities(descriptor: &Descriptor, problems: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for Capability { name, .. } in &descriptor.capabilities {
        if !is_name(name) {
            problems.push(format!(
                "capability {name:?} has no name that a grant could use: 1 to 63 letters, digits, '-', '_' and '.', as in \"records\""
            ));
        }
        if !seen.insert(name) {
            problems.push(format!("capability {name:?} is declared twice"));
        }
    }
}

/// Parts of the contract that this host does not serve yet: refused by name, never ignored.
fn not_yet(descriptor: &Descriptor, problems: &mut Vec<String>) {
    let hooks: Vec<_> = descriptor.hooks.iter().filter(|hook| NOT_YET.contains(&hook.as_str())).cloned().collect();
    let required = descriptor.extensions.iter().filter(|extension| extension.required);
    let parts = [
        ("hooks", hooks),
        ("extensions that the module requires", required.map(|extension| extension.name.clone()).collect()),
    ];
    for (what, names) in parts.iter().filter(|(_, names)| !names.is_empty()) {
        problems.push(format!("{what} are not served by this host yet: {}; use a newer host", names.join(", ")));
    }
}

fn is_known(hook: &str) -> bool {
    Hook::ALL.iter().any(|known| known.as_str() == hook) || NOT_YET.contains(&hook)
}

fn is_same_kind(a: &TypeRef, b: &TypeRef) -> bool {
    a.kind == b.kind && a.group() == b.group()
}

fn why_no_type(type_ref: &TypeRef) -> Option<&'static str> {
    let parts: Vec<_> = type_ref.api_version.split('/').collect();
    let version = match parts.as_slice() {
        [version] => version,
        [group, version] if is_dns_name(group) => version,
        _ => return Some("its apiVersion is not of the form group/version"),
    };
    if !is_dns_label(version) {
        return Some("its apiVersion has no version such as v1");
    }
    let kind = &type_ref.kind;
    let is_kind = kind.len() <= 63
        && kind.starts_with(|c: char| c.is_ascii_uppercase())
        && is_dns_label(&kind.to_ascii_lowercase());
    (!is_kind).then_some("its kind is not CamelCase")
}

/// RFC 1123 label.
fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// RFC 1123 subdomain.
fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// `domain/name`, as finalizers have to be.
fn is_qualified(text: &str) -> bool {
    text.split_once('/').is_some_and(|(domain, name)| is_dns_name(domain) && domain.contains('.') && is_name(name))
}

/// The name part of a label key: what apimachinery's `IsQualifiedName` takes.
fn is_name(text: &str) -> bool {
    let edge = |c: u8| c.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.first().copied().is_some_and(edge)
        && bytes.last().copied().is_some_and(edge)
        && bytes.iter().all(|c| edge(*c) || matches!(c, b'-' | b'_' | b'.'))
}

/// metav1's pattern of `Condition.type`.
fn is_condition_type(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_dns_name(domain) && is_name(name),
        None => is_name(text),
    }
}

#[cfg(test)]
mod tests {
    use operator_core::contract::{ChildType, Extension, OnImmutable, OnPrune};

    use super::*;

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
            crds: vec![],
            capabilities: vec![],
            hooks: vec![],
            field_manager: None,
            replaces_managers: vec![],
            finalizer: None,
            extensions: vec![],
        }
    }

    #[track_caller]
    fn assert_refused(change: impl FnOnce(&mut Descriptor), with: &str) {
        let mut descriptor = webapp();
        change(&mut descriptor);
        let problems = problems(&descriptor, &[]);
        assert!(problems.iter().any(|problem| problem.contains(with)), "{with:?} is not said: {problems:#?}");
        assert_eq!(problems.len(), 1, "{problems:#?}");
    }

    #[test]
    fn the_webapp_is_served() {
        assert_eq!(problems(&webapp(), &[]), Vec::<String>::new());
    }

    #[test]
    fn identity_is_checked() {
        assert_refused(|d| d.name = "WebApp".into(), "DNS label");
        assert_refused(|d| d.name = "a".repeat(64), "DNS label");
        assert_refused(|d| d.version = "1.2".into(), "semantic version");
        assert_refused(|d| d.field_manager = Some("x".repeat(129)), "field-manager");
        assert_refused(|d| d.field_manager = Some(String::new()), "field-manager");
        assert_refused(|d| d.finalizer = Some("cleanup".into()), "domain-qualified");
    }

    #[test]
    fn types_are_checked() {
        assert_refused(|d| d.primary.kind = String::new(), "CamelCase");
        assert_refused(|d| d.primary.api_version = "a/b/c".into(), "group/version");
        assert_refused(|d| d.children.push(child("webapp.example.com/v2", "WebApp")), "is the primary type");
        assert_refused(|d| d.children.push(child("apps/v1beta1", "Deployment")), "declared twice");
    }

    #[test]
    fn related_types_are_checked_and_may_be_those_of_children_too() {
        let relating = |kinds: &[&str]| {
            let related = |kind: &&str| RelatedType { type_ref: TypeRef::new("v1", *kind), optional: false };
            let related = kinds.iter().map(related).collect();
            problems(&Descriptor { related, hooks: vec!["relate".into()], ..webapp() }, &[Hook::Relate])
        };
        assert_eq!(relating(&["ConfigMap", "Service"]), Vec::<String>::new());
        assert_eq!(relating(&["configMap"]), ["related type configMap.v1: its kind is not CamelCase"]);
        assert!(relating(&["Pod", "Pod"]).join("\n").starts_with("related type Pod.v1 is declared twice"));
    }

    #[test]
    fn conditions_are_checked() {
        assert_refused(|d| d.condition_types.push("Reconciled".into()), "host's own");
        assert_refused(|d| d.condition_types.push("Ready".into()), "declared twice");
        assert_refused(|d| d.condition_types.push("not ready".into()), "not one that Kubernetes takes");
    }

    #[test]
    fn crds_are_checked() {
        assert_refused(|d| d.crds.push("{".into()), "crds[0] is not the JSON");
        let crd = |kind: &str, version: &str| {
            serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "spec": {
                "group": "webapp.example.com", "scope": "Namespaced", "names": {"kind": "WebApp", "plural": "webapps"},
                "versions": [{"name": version, "served": true}]}})
            .to_string()
        };
        assert_refused(|d| d.crds.push(crd("Deployment", "v1")), "not a CustomResourceDefinition");
        assert_refused(|d| d.crds.push(crd("CustomResourceDefinition", "v2")), "does not serve its version v1");
        let mut good = webapp();
        good.crds.push(crd("CustomResourceDefinition", "v1"));
        assert_eq!(problems(&good, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_served_yet_is_refused_by_name() {
        assert_refused(|d| d.hooks.push("conversion".into()), "hooks are not served by this host yet: conversion");
        assert_refused(|d| d.hooks.push("levitate".into()), "hook \"levitate\" is unknown");
        let related = RelatedType { type_ref: TypeRef::new("v1", "Pod"), optional: false };
        assert_refused(|d| d.related.push(related), "related types are declared without the hook");
        let extension = |required| Extension { name: "x".into(), required, value: "1".into() };
        assert_refused(|d| d.extensions.push(extension(true)), "extensions that the module requires");
        let mut tolerant = webapp();
        tolerant.extensions.push(extension(false));
        assert_eq!(problems(&tolerant, &[]), Vec::<String>::new());
    }

    #[test]
    fn hooks_are_exported_and_named_or_neither() {
        assert!(problems_of(&["finalize"], &[]).contains("does not export `operator:reconciler/finalize`"));
        assert!(problems_of(&[], &[Hook::Finalize]).contains("hooks does not name \"finalize\""));
    }

    fn problems_of(named: &[&str], exported: &[Hook]) -> String {
        let mut descriptor = webapp();
        descriptor.hooks = named.iter().map(|&hook| hook.to_owned()).collect();
        problems(&descriptor, exported).join("\n")
    }

    #[test]
    fn every_reason_is_told_at_once() {
        let mut descriptor = webapp();
        descriptor.name = "?".into();
        descriptor.version = "?".into();
        assert_eq!(problems(&descriptor, &[]).len(), 2);
    }
}
