//! `operator rbac`: the rights that the host needs for some modules, and no more, as manifests for `kubectl apply -f -`.

use super::modules::ModuleArgs;
use super::{print, units};
use clap::Args;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use operator_core::contract::{ChildType, Descriptor, OnImmutable, OnPrune, TypeRef};
use operator_core::schema::Definition;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const RBAC: &str = "rbac.authorization.k8s.io";

#[derive(Debug, Args)]
pub(super) struct RbacArgs {
    #[command(flatten)]
    modules: ModuleArgs,
    /// Namespace that the host is to work in, as with `operator host`. May be given several times [default: all]
    #[arg(
        short,
        long = "namespace",
        env = "OPERATOR_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = units::namespace,
        help_heading = "Rights"
    )]
    namespaces: Vec<String>,
    /// Name of the roles and their bindings [default: operator-host-<module>]
    #[arg(long, value_name = "NAME", value_parser = units::object_name, help_heading = "Rights")]
    role_name: Option<String>,
    /// Service account that the host runs as
    #[arg(long, value_name = "NAME", default_value = "operator-host", value_parser = units::object_name, help_heading = "Rights")]
    service_account: String,
    /// Namespace of the service account, and of the Lease
    #[arg(long, value_name = "NAME", default_value = "operator-host", value_parser = units::namespace, help_heading = "Rights")]
    service_account_namespace: String,
    /// Name of the Lease, where the host takes part in a leader election
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_ID", value_name = "NAME", default_value = "operator-host-default", value_parser = units::object_name, help_heading = "Rights")]
    leader_election_id: String,
    /// Also print what --metrics-authorization of `operator host` needs, and a role for those who read /metrics
    #[arg(long, help_heading = "Rights")]
    metrics_authorization: bool,
}

pub(super) fn run(args: &RbacArgs) -> anyhow::Result<()> {
    let loaded = args.modules.look_at()?;
    loaded.check()?;
    let mut manifests = Manifests::default();
    manifests.add(
        "The host's own account.",
        &ServiceAccount {
            metadata: meta(&args.service_account, Some(&args.service_account_namespace)),
            ..Default::default()
        },
    )?;
    for module in &loaded.modules {
        args.module(module.descriptor(), &mut manifests)?;
    }
    args.lease(&mut manifests)?;
    if args.metrics_authorization {
        args.metrics(&mut manifests)?;
    }
    print(&manifests.0)?;
    Ok(())
}

impl RbacArgs {
    fn module(&self, descriptor: &Descriptor, manifests: &mut Manifests) -> anyhow::Result<()> {
        let name = self.role_name.clone().unwrap_or_else(|| format!("operator-host-{}", descriptor.name));
        let mut comment = format!("What the host needs for module {} {}.", descriptor.name, descriptor.version);
        let is_guessed = |type_ref: &&TypeRef| Definition::of(descriptor, type_ref).is_none() && !is_built_in(type_ref);
        let related = descriptor.related.iter().map(|related| &related.type_ref);
        let types: BTreeSet<&TypeRef> = descriptor.types().chain(related).collect();
        for guessed in types.into_iter().filter(is_guessed) {
            let plural = plural(descriptor, guessed);
            comment
                .push_str(&format!("\n{plural:?} for {guessed} is a guess: the module does not bring its definition."));
        }
        let (here, anywhere) = rules(descriptor);
        if self.namespaces.is_empty() {
            return self.cluster_role(manifests, &comment, &name, [here, anywhere].concat());
        }
        if descriptor.related.iter().any(|related| !is_cluster_scoped(descriptor, &related.type_ref)) {
            comment.push_str("\nWhat the module reads in other namespaces needs rights there.");
        }
        for namespace in &self.namespaces {
            self.role(manifests, &comment, &name, namespace, Some(here.clone()))?;
        }
        if anywhere.is_empty() {
            return Ok(());
        }
        let comment = format!("What module {} makes in any namespace, and makes or reads in none.", descriptor.name);
        self.cluster_role(manifests, &comment, &format!("{name}-anywhere"), anywhere)
    }

    /// A ClusterRole, and its binding to the account.
    fn cluster_role(
        &self,
        manifests: &mut Manifests,
        comment: &str,
        name: &str,
        rules: Vec<PolicyRule>,
    ) -> anyhow::Result<()> {
        let rules = Some(rules);
        manifests.add(comment, &ClusterRole { metadata: meta(name, None), rules, ..Default::default() })?;
        let (role_ref, subjects) = (role_ref("ClusterRole", name), Some(vec![self.subject()]));
        manifests.add("", &ClusterRoleBinding { metadata: meta(name, None), role_ref, subjects })
    }

    fn metrics(&self, manifests: &mut Manifests) -> anyhow::Result<()> {
        let reviews = vec![
            rule("authentication.k8s.io", ["tokenreviews"], &["create"]),
            rule("authorization.k8s.io", ["subjectaccessreviews"], &["create"]),
        ];
        let name = format!("{}-metrics-auth", self.service_account);
        self.cluster_role(manifests, "Who may read /metrics: to ask the API server.", &name, reviews)?;
        let name = format!("{}-metrics-reader", self.service_account);
        let read = PolicyRule {
            non_resource_urls: Some(vec!["/metrics".into()]),
            verbs: vec!["get".into()],
            ..Default::default()
        };
        let rules = Some(vec![read]);
        let reader = ClusterRole { metadata: meta(&name, None), rules, ..Default::default() };
        manifests.add("To be bound to the account that reads /metrics.", &reader)
    }

    fn lease(&self, manifests: &mut Manifests) -> anyhow::Result<()> {
        let name = format!("{}-leader-election", self.service_account);
        let mut named = rule("coordination.k8s.io", ["leases"], &["get", "list", "update", "watch"]);
        named.resource_names = Some(vec![self.leader_election_id.clone()]);
        // A create can't be bound to a name.
        let rules = Some(vec![rule("coordination.k8s.io", ["leases"], &["create"]), named]);
        let comment = "The Lease that replicas share; not needed where leader election is off.";
        self.role(manifests, comment, &name, &self.service_account_namespace, rules)
    }

    /// A Role, and its binding to the account.
    fn role(
        &self,
        manifests: &mut Manifests,
        comment: &str,
        name: &str,
        namespace: &str,
        rules: Option<Vec<PolicyRule>>,
    ) -> anyhow::Result<()> {
        let metadata = meta(name, Some(namespace));
        manifests.add(comment, &Role { metadata: metadata.clone(), rules })?;
        let (role_ref, subjects) = (role_ref("Role", name), Some(vec![self.subject()]));
        manifests.add("", &RoleBinding { metadata, role_ref, subjects })
    }

    fn subject(&self) -> Subject {
        Subject {
            kind: "ServiceAccount".into(),
            name: self.service_account.clone(),
            namespace: Some(self.service_account_namespace.clone()),
            ..Default::default()
        }
    }
}

fn meta(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..Default::default() }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some(RBAC.into()), kind: kind.into(), name: name.into() }
}

/// YAML documents, each below its comment.
#[derive(Default)]
struct Manifests(String);

impl Manifests {
    fn add(&mut self, comment: &str, manifest: &impl Serialize) -> anyhow::Result<()> {
        if !self.0.is_empty() {
            self.0.push_str("---\n");
        }
        comment.lines().for_each(|line| self.0.push_str(&format!("# {line}\n")));
        self.0.push_str(&serde_saphyr::to_string(manifest)?);
        Ok(())
    }
}

/// The rights on the types that a module declares: those in its primaries' namespaces, and those on children that may live anywhere.
/// Discovery, which every account has, is not among them.
fn rules(descriptor: &Descriptor) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let (primary, group) = (plural(descriptor, &descriptor.primary), descriptor.primary.group());
    // Patch: for the finalizer.
    let verbs: &[&str] = match descriptor.needed_finalizer() {
        Some(_) => &["list", "watch", "patch"],
        None => &["list", "watch"],
    };
    let mut rules = vec![rule(group, [&*primary], verbs)];
    let status = Definition::of(descriptor, &descriptor.primary)
        .is_none_or(|definition| definition.has_status(descriptor.primary.version()));
    let status = if status { format!("{primary}/status") } else { primary.clone() };
    rules.push(rule(group, [&*status], &["patch"]));
    if !descriptor.children.is_empty() {
        // To set blockOwnerDeletion on children.
        rules.push(rule(group, [&*format!("{primary}/finalizers")], &["update"]));
    }
    // What is told about the primaries.
    rules.push(rule("events.k8s.io", ["events"], &["create", "patch"]));
    let (anywhere, here): (Vec<_>, Vec<_>) = descriptor.children.iter().partition(|child| child.any_namespace);
    rules.extend(of_children(descriptor, &here));
    let related = descriptor.related.iter().map(|related| &related.type_ref);
    let (nowhere, somewhere): (Vec<_>, Vec<_>) = related.partition(|type_ref| is_cluster_scoped(descriptor, type_ref));
    rules.extend(of_related(descriptor, &somewhere));
    (rules, [of_children(descriptor, &anywhere), of_related(descriptor, &nowhere)].concat())
}

/// What is read alone; types of which children are made may be read anyway.
fn of_related(descriptor: &Descriptor, related: &[&TypeRef]) -> Vec<PolicyRule> {
    let mut by_group: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for type_ref in related.iter().filter(|type_ref| !descriptor.uses(type_ref)) {
        by_group.entry(type_ref.group()).or_default().push(plural(descriptor, type_ref));
    }
    let rule =
        |(group, plurals): (&str, Vec<String>)| rule(group, plurals.iter().map(String::as_str), &["list", "watch"]);
    by_group.into_iter().map(rule).collect()
}

fn of_children(descriptor: &Descriptor, children: &[&ChildType]) -> Vec<PolicyRule> {
    let mut alike: BTreeMap<(&str, bool), Vec<String>> = BTreeMap::new();
    for child in children {
        let plural = plural(descriptor, &child.type_ref);
        alike.entry((child.type_ref.group(), is_deleted(child))).or_default().push(plural);
    }
    let rule = |((group, is_deleted), plurals): ((&str, bool), Vec<String>)| {
        // Create: what an apply of an absent object asks for.
        let verbs: &[&str] = match is_deleted {
            true => &["get", "list", "watch", "create", "patch", "delete"],
            false => &["get", "list", "watch", "create", "patch"],
        };
        rule(group, plurals.iter().map(String::as_str), verbs)
    };
    alike.into_iter().map(rule).collect()
}

/// Whether the host may come to delete a child of this type: the garbage collector has rights of its own.
fn is_deleted(child: &ChildType) -> bool {
    child.on_prune == OnPrune::Delete || child.on_immutable == OnImmutable::Recreate
}

fn rule<'a>(group: &str, resources: impl IntoIterator<Item = &'a str>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.into_iter().map(str::to_owned).collect()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..Default::default()
    }
}

/// What RBAC calls the type: by its definition if the module brings it, else as kube derives it from the kind.
fn plural(descriptor: &Descriptor, type_ref: &TypeRef) -> String {
    if let Some(definition) = Definition::of(descriptor, type_ref) {
        return definition.plural().to_owned();
    }
    let kind = GroupVersionKind::gvk(type_ref.group(), type_ref.version(), &type_ref.kind);
    ApiResource::from_gvk(&kind).plural
}

/// Whether objects of the type are in no namespace, as far as it is known: from the definition that the module brings, or of Kubernetes' own
/// types.
fn is_cluster_scoped(descriptor: &Descriptor, type_ref: &TypeRef) -> bool {
    if let Some(definition) = Definition::of(descriptor, type_ref) {
        return definition.is_cluster_scoped();
    }
    let resource = (type_ref.group(), &*plural(descriptor, type_ref));
    CLUSTER_SCOPED.contains(&resource)
}

/// Kubernetes' own types without a namespace, as `kubectl api-resources --namespaced=false` of 1.36 lists them, but for those that can not
/// be watched.
const CLUSTER_SCOPED: [(&str, &str); 28] = [
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumes"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "servicecidrs"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceslices"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
];

/// Kubernetes' own types follow the rule.
fn is_built_in(type_ref: &TypeRef) -> bool {
    let group = type_ref.group();
    !group.contains('.') || group.ends_with(".k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator_core::contract::RelatedType;

    fn plurals(descriptor: &Descriptor) -> Vec<String> {
        rules(descriptor).0.into_iter().filter_map(|rule| rule.resources).flatten().collect()
    }

    fn shepherd() -> Descriptor {
        let definition = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{"group":"example.com",
            "scope":"Namespaced","names":{"kind":"Sheep","plural":"flock"},"versions":[{"name":"v1","served":true}]}}"#;
        let child = |api_version: &str, kind: &str, on_prune| ChildType {
            type_ref: TypeRef::new(api_version, kind),
            on_immutable: OnImmutable::Fail,
            on_prune,
            any_namespace: false,
            optional: false,
        };
        Descriptor {
            name: "shepherd".into(),
            version: "1.0.0".into(),
            primary: TypeRef::new("example.com/v1", "Sheep"),
            children: vec![
                child("networking.k8s.io/v1", "NetworkPolicy", OnPrune::Orphan),
                child("networking.k8s.io/v1", "Ingress", OnPrune::Delete),
            ],
            related: vec![],
            condition_types: vec![],
            crds: vec![definition.into()],
            capabilities: vec![],
            hooks: vec![],
            field_manager: None,
            replaces_managers: vec![],
            finalizer: None,
            extensions: vec![],
        }
    }

    #[test]
    fn a_type_is_called_as_its_definition_says_else_as_its_kind_lets_one_guess() {
        let descriptor = shepherd();
        assert_eq!(
            plurals(&descriptor),
            ["flock", "flock", "flock/finalizers", "events", "networkpolicies", "ingresses"]
        );
        let may_delete = |rule: &&PolicyRule| rule.verbs.iter().any(|verb| verb == "delete");
        let (rules, anywhere) = rules(&descriptor);
        assert!(anywhere.is_empty());
        let deleted: Vec<_> = rules.iter().filter(may_delete).flat_map(|rule| rule.resources.clone()).collect();
        assert_eq!(deleted, [["ingresses"]]);
    }

    #[test]
    fn what_is_only_read_is_listed_and_watched_unless_children_are_anyway() {
        let related =
            |api_version: &str, kind: &str| RelatedType { type_ref: TypeRef::new(api_version, kind), optional: true };
        let descriptor = Descriptor {
            related: vec![
                related("v1", "Secret"),
                related("v1", "ConfigMap"),
                related("networking.k8s.io/v1", "Ingress"),
                related("networking.k8s.io/v1", "IngressClass"),
            ],
            ..shepherd()
        };
        let (rules, anywhere) = rules(&descriptor);
        assert_eq!(
            anywhere,
            [rule("networking.k8s.io", ["ingressclasses"], &["list", "watch"])],
            "it is in no namespace"
        );
        let last = rules.last().expect("there are rules");
        assert_eq!(last.resources.as_deref(), Some(&["secrets".to_owned(), "configmaps".to_owned()][..]));
        assert_eq!(last.verbs, ["list", "watch"]);
        assert_eq!(plurals(&descriptor).iter().filter(|plural| *plural == "ingresses").count(), 1);
    }
}
