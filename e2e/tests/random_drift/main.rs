//! Random drifts on the real API server, with a dry-run apply as the truth of what is drift.
//!
//! Each case applies a random object as the host would, lets another manager PUT a random change, and compares what
//! `keep` says of the object as the server then gives it with what an apply would change. Right is: no apply of an
//! untouched object, an apply where one would change something, none where it would not, and no second one after the
//! first.
//!
//! `OPERATOR_E2E_DRIFTS` is the number of cases (default 300), `OPERATOR_E2E_SEED` the first one's seed; a failure names
//! the seed of its case.

mod drift;
mod truth;
mod wish;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use futures::StreamExt as _;
use operator_core::contract::{ObjectName, OnPrune, TypeRef};
use operator_core::object::Decoder;
use operator_core::plan::canonical::{ApplyBody, Desired, Owner, Precondition};
use operator_core::plan::keep::{Verdict, keep};
use operator_core::schema::{Published, Schema};
use operator_e2e::client::{DEPLOYMENTS, Resource, SERVICES};
use operator_e2e::{Client, Cluster, Result};
use serde_json::{Value, json};

use truth::Change;
use wish::{GADGETS, GIZMOS};

const MANAGER: &str = "operator-host/random";
const AT_ONCE: usize = 6;

/// A kind of object that cases are made of.
struct Kind {
    resource: Resource<'static>,
    type_ref: TypeRef,
    wish: fn(&mut fastrand::Rng, &str) -> Value,
    schema: Schema,
}

/// What became of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    /// Nothing that was ours was touched, and nothing would be written.
    Kept,
    /// Something was, and it is written back, once.
    Reverted,
    /// The order alone of a list was changed, which ownership does not show.
    OrderMissed,
    /// An empty list was taken away, which leaves no mark.
    EmptyListMissed,
    /// Another filled an empty map that the server had not stored: one spare apply.
    Spare,
    /// The server did not accept the other's change, or the apply against it.
    Refused,
}

#[tokio::test]
async fn keep_agrees_with_what_an_apply_would_change() -> Result<()> {
    let cluster = Cluster::shared().await;
    cluster.apply(&wish::definitions().to_string()).await?;
    let namespace = cluster.namespace("drift").await?;
    let count = number("OPERATOR_E2E_DRIFTS")?.unwrap_or(300);
    let first = number("OPERATOR_E2E_SEED")?.unwrap_or(1);
    let client = cluster.client_as("admin", "host-in-the-test/1.0");
    let kinds = kinds(&client).await?;
    let bench = Bench { client, other: cluster.client_as("admin", "other/1.0"), namespace };

    let (bench, kinds) = (&bench, &kinds);
    let cases = (first..first + count).map(|seed| async move {
        let kind = &kinds[usize::try_from(seed).unwrap_or_default() % kinds.len()];
        let came = bench.case(kind, seed).await;
        came.with_context(|| format!("the case of OPERATOR_E2E_SEED={seed} OPERATOR_E2E_DRIFTS=1"))
    });
    let outcomes: Vec<Result<Came>> = futures::stream::iter(cases).buffer_unordered(AT_ONCE).collect().await;

    let mut counts: BTreeMap<Came, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(came) => *counts.entry(came).or_default() += 1,
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    println!("{count} cases: {counts:?}");
    assert!(wrong.is_empty(), "{} of {count} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let of = |came| counts.get(&came).copied().unwrap_or_default();
    if count >= 100 {
        assert!(of(Came::Kept) > count / 20 && of(Came::Reverted) > count / 4, "the cases show little: {counts:?}");
        assert!(of(Came::Refused) < count / 3, "too many cases come to nothing: {counts:?}");
        assert!(of(Came::Spare) <= count / 100 + 1, "too many spare applies: {counts:?}");
    }
    Ok(())
}

fn number(name: &str) -> Result<Option<u64>> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let text = text.to_str().with_context(|| format!("{name} is no text"))?;
    Ok(Some(text.parse().with_context(|| format!("{name}={text}"))?))
}

async fn kinds(client: &Client) -> Result<[Kind; 4]> {
    let schema = |api_version: &'static str, kind: &'static str| async move {
        let group = if api_version.contains('/') { "apis" } else { "api" };
        let document = client.text(&format!("/openapi/v3/{group}/{api_version}")).await?;
        let schema = Schema::parse(document.as_bytes(), &TypeRef::new(api_version, kind))?;
        schema.with_context(|| format!("the server publishes no schema of {kind}"))
    };
    let kind = |resource: Resource<'static>, kind: &str, wish, schema| Kind {
        resource,
        type_ref: TypeRef::new(resource.api_version, kind),
        wish,
        schema,
    };
    // A new definition's document follows a moment after it is served.
    let gizmo = operator_e2e::eventually("the definitions are published", std::time::Duration::from_secs(30), || {
        schema(GIZMOS.api_version, "Gizmo")
    })
    .await;
    Ok([
        kind(GADGETS, "Gadget", wish::gadget, schema(GADGETS.api_version, "Gadget").await?),
        kind(GIZMOS, "Gizmo", wish::gizmo, gizmo),
        kind(DEPLOYMENTS, "Deployment", wish::deployment, schema("apps/v1", "Deployment").await?),
        kind(SERVICES, "Service", wish::service, schema("v1", "Service").await?),
    ])
}

struct Bench {
    client: Client,
    other: Client,
    namespace: String,
}

impl Bench {
    async fn case(&self, kind: &Kind, seed: u64) -> Result<Came> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let name = format!("case-{seed}");
        let wish = (kind.wish)(&mut rng, &name);
        let mut desired = Desired::parse(&wish.to_string()).with_context(|| format!("{wish}"))?;
        desired.name = ObjectName { namespace: Some(Arc::from(&*self.namespace)), name: Arc::from(&*name) };
        if desired.empty_element(Published::Schema(&kind.schema)).is_ok_and(|found| found.is_some()) {
            return Ok(Came::Refused);
        }
        let applied = self.apply(kind, &desired, Precondition::Absent, "").await;
        let untouched = match applied {
            Ok(object) => object,
            Err(error) => anyhow::bail!("the wish {wish} is not one that the server accepts: {error:#}"),
        };
        if self.keeps(kind, &desired, &untouched)? != Verdict::Keep {
            anyhow::bail!("an untouched object would be applied again: {wish}\nlive: {untouched}");
        }
        let came = self.drift(kind, &desired, &untouched, &mut rng).await;
        // A server full of Deployments answers slowly.
        let _ = self.client.delete(&kind.resource, &self.namespace, &name).await;
        came.with_context(|| format!("wish {wish}"))
    }

    async fn drift(&self, kind: &Kind, desired: &Desired, untouched: &Value, rng: &mut fastrand::Rng) -> Result<Came> {
        let (drifted, what) = drift::change(untouched, rng);
        let path = format!("{}?fieldManager=other", kind.resource.path(&self.namespace, &desired.name.name));
        let put = self.other.request("PUT", &path, "application/json", &drifted).await;
        let Ok(live) = put else { return Ok(Came::Refused) };
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let Ok(would_be) = self.apply(kind, desired, Precondition::Uid(&uid), "&dryRun=All").await else {
            return Ok(Came::Refused);
        };
        let change = truth::change(&live, &would_be);
        let verdict = self.keeps(kind, desired, &live)?;
        let told = || format!("after {what:?}: {verdict:?}, but an apply changes {change:?}\nlive: {live}");
        let came = match (verdict, &change) {
            (Verdict::Keep, Change::Nothing) => return Ok(Came::Kept),
            (Verdict::Keep, Change::Order) => return Ok(Came::OrderMissed),
            (Verdict::Keep, Change::EmptyList) => return Ok(Came::EmptyListMissed),
            (Verdict::Keep, Change::Values(_)) => anyhow::bail!("a drift is missed {}", told()),
            (Verdict::Apply(_), Change::Nothing) if drift::fills_an_empty_map(desired, &live) => Came::Spare,
            (Verdict::Apply(_), Change::Nothing) => anyhow::bail!("a spare apply {}", told()),
            (Verdict::Apply(_), _) => Came::Reverted,
        };
        let reverted = self.apply(kind, desired, Precondition::Uid(&uid), "").await?;
        match self.keeps(kind, desired, &reverted)? {
            Verdict::Keep => Ok(came),
            again => anyhow::bail!("a second apply ({again:?}) {}\nthen: {reverted}", told()),
        }
    }

    /// What the check says of an object as the server gave it, with nothing remembered.
    fn keeps(&self, kind: &Kind, desired: &Desired, live: &Value) -> Result<Verdict> {
        let stored = Decoder::new([MANAGER]).decode(live.to_string().as_bytes(), &kind.type_ref, None)?;
        let verdict = keep(desired, OnPrune::Delete, false, &stored, MANAGER, None, Published::Schema(&kind.schema));
        verdict.map_err(|_| anyhow::anyhow!("the schema is at hand and asked for"))
    }

    async fn apply(&self, kind: &Kind, desired: &Desired, on: Precondition<'_>, query: &str) -> Result<Value> {
        let owner = Owner {
            type_ref: &TypeRef::new("v1", "ConfigMap"),
            name: &ObjectName::new(Some(&self.namespace), "owner"),
            uid: "00000000-0000-4000-8000-000000000000",
        };
        let body = ApplyBody { installation: "random", on_prune: OnPrune::Delete, owner, precondition: on };
        let path = kind.resource.path(&self.namespace, &desired.name.name);
        let path = format!("{path}?force=true&fieldManager={}{query}", MANAGER.replace('/', "%2F"));
        let body: Value = serde_json::from_str(&body.render(desired))?;
        Ok(self.client.request("PATCH", &path, "application/apply-patch+yaml", &body).await?)
    }
}

/// A list of this many at most, each made by `make`.
fn some(rng: &mut fastrand::Rng, most: usize, mut make: impl FnMut(&mut fastrand::Rng, usize) -> Value) -> Value {
    let count = rng.usize(0..=most);
    (0..count).map(|index| make(rng, index)).collect()
}

/// Whether a coin that shows heads once in `times` does.
fn once_in(rng: &mut fastrand::Rng, times: u32) -> bool {
    rng.u32(0..times) == 0
}

/// Sets fields, each with a chance of one half.
fn maybe(rng: &mut fastrand::Rng, object: &mut Value, field: &str, make: impl FnOnce(&mut fastrand::Rng) -> Value) {
    if rng.bool() {
        object[field] = make(rng);
    }
}

#[test]
fn the_comparison_tells_order_and_empty_lists_from_values() {
    let live = json!({"spec": {"a": [1, 2], "b": {"c": 1}}, "metadata": {"resourceVersion": "1", "managedFields": []}});
    let with = |spec: Value| json!({"spec": spec, "metadata": {"resourceVersion": "2"}});
    let change = |spec| truth::change(&live, &with(spec));
    assert_eq!(change(json!({"a": [1, 2], "b": {"c": 1}})), Change::Nothing);
    assert_eq!(change(json!({"a": [2, 1], "b": {"c": 1}})), Change::Order);
    assert_eq!(change(json!({"a": [1, 2], "b": {"c": 1}, "d": []})), Change::EmptyList);
    assert_eq!(change(json!({"a": [1, 2], "b": {"c": 2}})), Change::Values(vec!["/spec/b/c".into()]));
}
