//! A module with hooks for an object's end, which does what its objects tell it to.
//!
//! `spec.children` are wanted while the object lives: objects, or `{object, wave, release, orphan}`. `spec.onDelete` says what `finalize`
//! does: fail (`failure`), want `children`, or not be done (`waits`). `spec.outside` says what `ensure` observes (`observation`,
//! `recheckMs`) or fails with (`failure`), and what `remove` fails with (`removeFailure`) or waits for (`removeWaits`). The observation is
//! shown in the status.

use std::time::Duration;

use operator_guest::{
    Child, ChildType, Context, Descriptor, External, Failure, Finalize, Observed, OnPrune, Operator, Outcome, Progress,
    Removal, Snapshot, Status, TypeRef,
};
use serde_json::{Value, json};

struct Keeper;

operator_guest::operator!(Keeper, hooks: [finalize, external]);

impl Operator for Keeper {
    type Spec = Value;
    type Status = Value;

    fn describe() -> Descriptor {
        Descriptor::new("keeper", "0.1.0", TypeRef::new("fixtures.example.com/v1", "Keeper"))
            .child(ChildType::new("v1", "ConfigMap").any_namespace())
            .child(ChildType::new("rbac.authorization.k8s.io/v1", "ClusterRole").any_namespace())
            .child(ChildType::new("apps/v1", "Deployment"))
            .replaces_manager("old-operator")
            .crd(include_str!("../../crds/keepers.json"))
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let status = Status::new(&json!({ "observation": ctx.observation()? }))?;
        Ok(Outcome::new(children(&ctx.spec()["children"])).status(status))
    }
}

impl Finalize for Keeper {
    fn finalize(object: &Snapshot<Self>) -> Result<Progress, Failure> {
        let plan = &object.spec()?["onDelete"];
        fail(&plan["failure"])?;
        let outcome = match &plan["children"] {
            Value::Null => Outcome::waiting(),
            wanted => Outcome::new(children(wanted)),
        };
        Ok(Progress { done: plan["waits"] != true, outcome })
    }
}

impl External for Keeper {
    type Observation = Value;

    fn ensure(ctx: &Context<Self>) -> Result<Observed<Value>, Failure> {
        let plan = &ctx.spec()["outside"];
        fail(&plan["failure"])?;
        let recheck_after = plan["recheckMs"].as_u64().map(Duration::from_millis);
        Ok(Observed { observation: plan["observation"].clone(), recheck_after })
    }

    fn remove(object: &Snapshot<Self>) -> Result<Removal, Failure> {
        let plan = &object.spec()?["outside"];
        fail(&plan["removeFailure"])?;
        Ok(plan["removeWaits"].as_str().map_or_else(Removal::done, Removal::waiting))
    }
}

fn fail(message: &Value) -> Result<(), Failure> {
    message.as_str().map_or(Ok(()), |message| Err(Failure::retry("AsTold", message)))
}

fn children(objects: &Value) -> Vec<Child> {
    objects.as_array().into_iter().flatten().map(child).collect()
}

fn child(wanted: &Value) -> Child {
    let child = Child::new(wanted.get("object").unwrap_or(wanted).clone());
    let child = child.wave(wanted["wave"].as_u64().unwrap_or(0) as u32);
    let released = wanted["release"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let child = released.fold(child, Child::release);
    if wanted["orphan"] == true { child.on_prune(OnPrune::Orphan) } else { child }
}
