//! A module that asks for what its objects tell it to, and shows in the status what it found.
//!
//! `spec.queries` are the queries, as the contract has them. With `spec.follow`, the `data.next` of whatever is found names one more object
//! of the same type and namespace, whose name is the query's id. With `spec.restless` it asks one question more than it was answered.
//! `status.found` has the names by query, each with its `data.a`.

use std::collections::BTreeMap;

use operator_guest::{
    Context, Descriptor, Failure, Operator, Outcome, Query, Relate, RelatedType, Selection, Status, TypeRef,
};
use serde_json::{Value, json};

struct Asker;

operator_guest::operator!(Asker, hooks: [relate]);

impl Operator for Asker {
    type Spec = Value;
    type Status = Value;

    fn describe() -> Descriptor {
        let related = |api_version: &str, kind: &str, optional| RelatedType {
            api_version: api_version.into(),
            kind: kind.into(),
            optional,
        };
        Descriptor::new("asker", "0.1.0", TypeRef::new("fixtures.example.com/v1", "Asker"))
            .related(related("v1", "ConfigMap", false))
            .related(related("v1", "Namespace", false))
            .related(related("example.com/v1", "Gadget", false))
            .related(related("example.com/v1", "Widget", true))
            .crd(include_str!("../../crds/askers.json"))
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let queries = queries(ctx)?;
        let mut found = BTreeMap::new();
        for query in &queries {
            found.insert(&query.id, names(ctx, &query.id)?);
        }
        let truncated: Vec<&str> = queries.iter().map(|query| &*query.id).filter(|id| ctx.is_truncated(id)).collect();
        let unavailable: Vec<&str> = ctx.unavailable().iter().map(|type_ref| &*type_ref.kind).collect();
        let status = json!({"found": found, "truncated": truncated, "unavailable": unavailable});
        Ok(Outcome::waiting().status(Status::new(&status)?))
    }
}

impl Relate for Asker {
    fn relate(ctx: &Context<Self>) -> Result<Vec<Query>, Failure> {
        queries(ctx)
    }
}

fn queries(ctx: &Context<Asker>) -> Result<Vec<Query>, Failure> {
    let spec = ctx.spec();
    let mut queries: Vec<Query> = spec["queries"].as_array().into_iter().flatten().map(query).collect();
    if spec["follow"] == true {
        let mut next = 0;
        while let Some(query) = queries.get(next).cloned() {
            next += 1;
            for object in ctx.related(&query.id) {
                let object: Value = object.read()?;
                if let Some(name) = object["data"]["next"].as_str() {
                    queries.push(Query { id: name.into(), select: Selection::Name(name.into()), ..query.clone() });
                }
            }
        }
    }
    if spec["restless"] == true {
        let answered = (0..).take_while(|number| ctx.related(&format!("r{number}")).next().is_some()).count();
        queries.extend((0..=answered).map(|number| {
            query(&json!({
                "id": format!("r{number}"), "apiVersion": "v1", "kind": "Namespace", "name": "default",
            }))
        }));
    }
    Ok(queries)
}

fn query(told: &Value) -> Query {
    let text = |field: &str| told[field].as_str().map(str::to_owned);
    Query {
        id: text("id").unwrap_or_default(),
        api_version: text("apiVersion").unwrap_or_else(|| "v1".into()),
        kind: text("kind").unwrap_or_else(|| "ConfigMap".into()),
        namespace: text("namespace"),
        select: match (text("name"), text("labels")) {
            (Some(name), _) => Selection::Name(name),
            (None, Some(labels)) => Selection::Labels(labels),
            (None, None) => Selection::All,
        },
    }
}

fn names(ctx: &Context<Asker>, query: &str) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for object in ctx.related(query) {
        let value: Value = object.read()?;
        names.push(format!("{}={}", object.name(), value["data"]["a"].as_str().unwrap_or_default()));
    }
    Ok(names)
}
