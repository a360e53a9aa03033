//! A module with hooks for an object's end, which does what its objects tell it to.
//!
//! `spec.children` are wanted while the object lives. `spec.onDelete` says what `finalize` does: fail (`failure`), want `children`, or
//! not be done (`waits`). `spec.outside` says what `ensure` observes (`observation`, `recheckMs`) or fails with (`failure`), and what
//! `remove` fails with (`removeFailure`) or waits for (`removeWaits`). The observation is shown in the status.

wit_bindgen::generate!({
    inline: "
        package fixtures:keeper;
        world module {
            include operator:reconciler/reconciler@0.1.0;
            include operator:reconciler/finalizing@0.1.0;
            include operator:reconciler/working-outside@0.1.0;
        }
    ",
    path: "../../wit",
    generate_all,
});

use exports::operator::reconciler::{describe, external, finalize, reconcile};
use operator::reconciler::types::{
    Child, Failure, Key, OnImmutable, OnPrune, Outcome, Snapshot, Status, TypeRef,
};
use serde_json::{Value, json};

struct Keeper;

export!(Keeper);

impl describe::Guest for Keeper {
    fn describe() -> describe::Descriptor {
        let child = |api_version: &str, kind: &str| describe::ChildType {
            api_version: api_version.into(),
            kind: kind.into(),
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Delete,
            any_namespace: false,
            optional: false,
        };
        describe::Descriptor {
            name: "keeper".into(),
            version: "0.1.0".into(),
            primary: TypeRef { api_version: "fixtures.example.com/v1".into(), kind: "Keeper".into() },
            children: vec![child("v1", "ConfigMap")],
            related: Vec::new(),
            condition_types: Vec::new(),
            crds: vec![include_str!("../../crds/keepers.json").into()],
            capabilities: Vec::new(),
            hooks: vec!["finalize".into(), "external".into()],
            field_manager: None,
            replaces_managers: Vec::new(),
            finalizer: None,
            extensions: Vec::new(),
        }
    }
}

impl reconcile::Guest for Keeper {
    fn reconcile(_: Key, snapshot: Snapshot) -> Result<Outcome, Failure> {
        let spec = spec(&snapshot);
        let seen = snapshot.observation.as_deref().map_or(Value::Null, parse);
        let status = Status { fields: json!({ "observation": seen }).to_string(), conditions: Vec::new() };
        Ok(Outcome { status: Some(status), ..outcome(children(&spec["children"])) })
    }
}

impl finalize::Guest for Keeper {
    fn finalize(_: Key, snapshot: Snapshot) -> Result<finalize::Progress, Failure> {
        let plan = &spec(&snapshot)["onDelete"];
        fail(&plan["failure"])?;
        let outcome = outcome(plan["children"].as_array().and_then(|_| children(&plan["children"])));
        Ok(finalize::Progress { done: plan["waits"] != true, outcome })
    }
}

impl external::Guest for Keeper {
    fn ensure(_: Key, snapshot: Snapshot) -> Result<external::Observed, Failure> {
        let plan = &spec(&snapshot)["outside"];
        fail(&plan["failure"])?;
        let observation = plan["observation"].to_string();
        Ok(external::Observed { observation, recheck_after: plan["recheckMs"].as_u64() })
    }

    fn remove(_: Key, snapshot: Snapshot) -> Result<external::Removal, Failure> {
        let plan = &spec(&snapshot)["outside"];
        fail(&plan["removeFailure"])?;
        let waits = plan["removeWaits"].as_str();
        Ok(external::Removal { done: waits.is_none(), message: waits.unwrap_or_default().into(), retry_after: None })
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the host gives JSON")
}

fn spec(snapshot: &Snapshot) -> Value {
    parse(&snapshot.primary)["spec"].take()
}

fn fail(message: &Value) -> Result<(), Failure> {
    let Some(message) = message.as_str() else { return Ok(()) };
    Err(Failure {
        terminal: false,
        reason: "AsTold".into(),
        message: message.into(),
        retry_after: None,
        status: None,
        events: Vec::new(),
        extensions: Vec::new(),
    })
}

fn children(objects: &Value) -> Option<Vec<Child>> {
    let child = |object: &Value| Child {
        object: object.to_string(),
        on_immutable: OnImmutable::Fail,
        on_prune: OnPrune::Delete,
        wave: 0,
        release: Vec::new(),
        extensions: Vec::new(),
    };
    Some(objects.as_array().into_iter().flatten().map(child).collect())
}

fn outcome(children: Option<Vec<Child>>) -> Outcome {
    Outcome { children, status: None, events: Vec::new(), requeue_after: None, extensions: Vec::new() }
}
