//! What an author of hooks can rely on, seen through an operator that has them all.

use std::time::Duration;

use operator_guest::live::{Deployment, Live};
use operator_guest::testing::Call;
use operator_guest::{
    Capability, Child, ChildType, Context, Descriptor, External, Failure, Finalize, Observed, Operator, Outcome,
    Progress, Query, Relate, RelatedType, Removal, Selection, Snapshot, Status, TypeRef,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Shows an address that something outside gives to it, and what of the settings that its spec names is for it.
struct Sign;

#[derive(Deserialize)]
struct SignSpec {
    settings: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Address {
    host: String,
}

#[derive(Deserialize)]
struct Settings<'a> {
    #[serde(borrow)]
    data: SettingsData<'a>,
}

#[derive(Deserialize)]
struct SettingsData<'a> {
    next: Option<&'a str>,
}

impl<'a> Live<'a> for Settings<'a> {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "ConfigMap";
}

operator_guest::operator!(Sign, hooks: [relate, finalize, external]);

impl Operator for Sign {
    type Spec = SignSpec;
    type Status = Value;

    fn describe() -> Descriptor {
        Descriptor::new("sign", "1.0.0", TypeRef::new("example.com/v1", "Sign"))
            .child(ChildType::new("apps/v1", "Deployment"))
            .related(RelatedType::new("v1", "ConfigMap"))
            .related(RelatedType::new("example.com/v1", "Wall").optional())
            .capability(Capability::new("addresses", "/addresses", "keeps an address for each sign"))
            .replaces_manager("sign-controller")
            .finalizer("example.com/address")
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let address = ctx.observation()?.map(|address| address.host);
        let settings: Vec<&str> = ctx.related("settings").map(|settings| settings.name()).collect();
        let status = json!({ "address": address, "settings": settings, "cut": ctx.is_truncated("settings") });
        Ok(Outcome::waiting().status(Status::new(&status)?))
    }
}

impl Relate for Sign {
    /// Settings may name further ones.
    fn relate(ctx: &Context<Self>) -> Result<Vec<Query>, Failure> {
        let namespace = ctx.namespace().unwrap_or_default();
        let mut queries = vec![Query::named::<Settings>("settings", &ctx.spec().settings).in_namespace(namespace)];
        for object in ctx.related("settings") {
            let next = object.read::<Settings>()?.data.next;
            queries.extend(next.map(|next| Query::named::<Settings>("next", next).in_namespace(namespace)));
        }
        Ok(queries)
    }
}

impl Finalize for Sign {
    fn finalize(object: &Snapshot<Self>) -> Result<Progress, Failure> {
        match object.child::<Deployment>(object.name())? {
            Some(_) => Ok(Progress::unfinished(Outcome::new([]))),
            None => Ok(Progress::done()),
        }
    }
}

impl External for Sign {
    type Observation = Address;

    fn ensure(ctx: &Context<Self>) -> Result<Observed<Address>, Failure> {
        Ok(Observed::new(Address { host: format!("{}.example.com", ctx.name()) })
            .recheck_after(Duration::from_secs(60)))
    }

    fn remove(object: &Snapshot<Self>) -> Result<Removal, Failure> {
        match object.metadata().annotations.get("busy") {
            Some(with) => Ok(Removal::waiting(format!("busy with {with}")).retry_after(Duration::from_secs(2))),
            None => Ok(Removal::done()),
        }
    }
}

fn sign(spec: Value) -> Call {
    Call::new(json!({
        "metadata": { "name": "exit", "namespace": "hall", "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "spec": spec,
    }))
}

fn sound() -> Call {
    sign(json!({ "settings": "plain" }))
}

fn settings(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "hall" }, "data": data })
}

fn seen(call: Call) -> Value {
    call.reconcile::<Sign>().unwrap().status.unwrap().fields_json()
}

#[test]
fn a_query_may_follow_from_what_another_found() {
    let names = |call: Call| -> Vec<(String, Selection)> {
        let queries = call.relate::<Sign>().unwrap();
        assert!(queries.iter().all(|query| query.namespace.as_deref() == Some("hall") && query.kind == "ConfigMap"));
        queries.into_iter().map(|query| (query.id, query.select)).collect()
    };
    let first = ("settings".to_owned(), Selection::Name("plain".into()));
    assert_eq!(names(sound()), std::slice::from_ref(&first));
    let found = sound().related("settings", [settings("plain", json!({ "next": "fancy" }))]);
    assert_eq!(names(found), [first, ("next".to_owned(), Selection::Name("fancy".into()))]);
}

#[test]
fn queries_select_by_name_by_label_or_everything() {
    let query = Query::all::<Deployment>("all");
    assert_eq!((query.api_version.as_str(), query.kind.as_str(), &query.namespace), ("apps/v1", "Deployment", &None));
    assert_eq!(query.select, Selection::All);
    let query = Query::labelled::<Deployment>("web", "app=web").in_namespace("shop");
    assert_eq!((query.namespace.as_deref(), query.select), (Some("shop"), Selection::Labels("app=web".into())));
}

#[test]
fn what_a_query_found_is_read_by_its_id() {
    let call = sound()
        .related("settings", [settings("b", json!({})), settings("a", json!({}))])
        .related("others", [settings("c", json!({}))]);
    assert_eq!(seen(call)["settings"], json!(["a", "b"]));
    assert_eq!(seen(sound())["settings"], json!([]), "a query that was not asked yet found nothing");
    assert_eq!(seen(sound())["cut"], false);
}

#[test]
fn an_observation_is_given_to_reconcile_in_its_own_type() {
    assert_eq!(seen(sound()).get("address"), None, "nothing was observed yet");
    assert_eq!(seen(sound().observation(json!({ "host": "exit.example.com" })))["address"], "exit.example.com");
    let observed = sound().ensure::<Sign>().unwrap();
    assert_eq!(observed.observation, Address { host: "exit.example.com".into() });
    assert_eq!(observed.recheck_after, Some(Duration::from_secs(60)));
}

#[test]
fn an_observation_of_an_older_build_is_asked_for_again() {
    let failure = sound().observation(json!({ "host": 4 })).reconcile::<Sign>().unwrap_err();
    assert_eq!((failure.terminal, failure.reason.as_str()), (false, "InvalidObservation"));
    assert!(failure.message.starts_with("host: invalid type"), "{failure}");
}

#[test]
fn finalize_holds_an_object_until_it_is_done() {
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "exit", "namespace": "hall", "generation": 1 },
        "spec": { "replicas": 1 },
    });
    let progress = sound().child(deployment).finalize::<Sign>().unwrap();
    assert_eq!((progress.done, progress.outcome.children), (false, Some(Vec::new())));
    let progress = sound().finalize::<Sign>().unwrap();
    assert_eq!((progress.done, progress.outcome.children), (true, None));
}

#[test]
fn an_object_with_a_bad_spec_can_be_deleted() {
    let bad = sign(json!({ "settings": 5 }));
    assert_eq!(bad.clone().reconcile::<Sign>().unwrap_err().reason, "InvalidSpec");
    assert!(bad.clone().finalize::<Sign>().unwrap().done);
    assert_eq!(bad.remove::<Sign>().unwrap(), Removal::done());
}

#[test]
fn the_spec_of_a_deleted_object_is_decoded_for_who_asks() {
    struct Reader;

    impl Operator for Reader {
        type Spec = SignSpec;
        type Status = Value;

        fn describe() -> Descriptor {
            Sign::describe()
        }

        fn reconcile(_: &Context<Self>) -> Result<Outcome, Failure> {
            Ok(Outcome::waiting())
        }
    }

    impl Finalize for Reader {
        fn finalize(object: &Snapshot<Self>) -> Result<Progress, Failure> {
            let settings = object.spec()?.settings;
            Ok(Progress::unfinished(Outcome::new([Child::new(json!({ "metadata": { "name": settings } }))])))
        }
    }

    let progress = sound().finalize::<Reader>().unwrap();
    assert_eq!(progress.outcome.objects()[0]["metadata"]["name"], "plain");
    let failure = sign(json!({})).finalize::<Reader>().unwrap_err();
    assert_eq!(failure.to_string(), "InvalidSpec: spec: missing field `settings`");
}

#[test]
fn a_removal_says_what_it_waits_for() {
    let mut primary = json!({ "metadata": { "name": "exit", "annotations": { "busy": "visitors" } } });
    let removal = Call::new(primary.clone()).remove::<Sign>().unwrap();
    assert_eq!((removal.done, removal.message.as_str()), (false, "busy with visitors"));
    assert_eq!(removal.retry_after, Some(2000));
    primary["metadata"]["annotations"] = json!({});
    assert_eq!(Call::new(primary).remove::<Sign>().unwrap(), Removal::done());
}

#[test]
fn a_deleted_object_says_since_when() {
    struct Clock;

    impl Operator for Clock {
        type Spec = Value;
        type Status = Value;

        fn describe() -> Descriptor {
            Sign::describe()
        }

        fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
            let status = json!({ "deleted": ctx.metadata().deletion_timestamp });
            Ok(Outcome::waiting().status(Status::new(&status)?))
        }
    }

    let status = sound().reconcile::<Clock>().unwrap().status.unwrap();
    assert_eq!(status.fields_json(), json!({ "deleted": "2026-01-01T00:00:00Z" }));
}

#[test]
fn the_descriptor_carries_what_hooks_need() {
    let descriptor = Sign::describe();
    let related: Vec<_> = descriptor.related.iter().map(|related| (related.kind.as_str(), related.optional)).collect();
    assert_eq!(related, [("ConfigMap", false), ("Wall", true)]);
    let capability = &descriptor.capabilities[0];
    assert_eq!((capability.name.as_str(), capability.target.as_str()), ("addresses", "/addresses"));
    assert_eq!(descriptor.replaces_managers, ["sign-controller"]);
    assert_eq!(descriptor.finalizer.as_deref(), Some("example.com/address"));
}

#[test]
fn children_have_waves_and_hand_fields_over() {
    let child = Child::new(json!({ "kind": "Deployment" })).wave(2).release("spec.replicas");
    assert_eq!((child.wave, child.release.as_slice()), (2, &["spec.replicas".to_owned()][..]));
    assert_eq!(Child::new(json!({})).wave, 0);
}
