//! The spec is the outcome: children, status, events, timers and failures of a test's choice.

use std::time::Duration;

use operator_guest::{
    Child, Condition, ConditionStatus, Context, Event, Failure, OnImmutable, OnPrune, Outcome, Status,
};
use serde_json::{Value, json};

use crate::Probe;
use crate::spec::{self, ProbeSpec, WantedChild, WantedCondition, WantedEvent, WantedFailure, WantedStatus};

pub(crate) fn answer(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let spec = ctx.spec();
    let status = status(ctx);
    if let Some(wanted) = &spec.failure {
        return Err(failure(wanted, status, events(spec)));
    }
    let outcome = match spec.leave_children {
        true => Outcome::waiting(),
        false => Outcome::new(spec.children.iter().map(child)),
    };
    let outcome = Outcome { status, events: events(spec), ..outcome };
    Ok(match spec.requeue_after_ms {
        Some(time) => outcome.requeue_after(Duration::from_millis(time)),
        None => outcome,
    })
}

fn failure(wanted: &WantedFailure, status: Option<Status>, events: Vec<Event>) -> Failure {
    let mut failure = match wanted.terminal {
        true => Failure::terminal(&wanted.reason, &wanted.message),
        false => Failure::retry(&wanted.reason, &wanted.message),
    };
    if let Some(time) = wanted.retry_after_ms {
        failure = failure.retry_after(Duration::from_millis(time));
    }
    if let Some(status) = status {
        failure = failure.status(status);
    }
    events.into_iter().fold(failure, Failure::event)
}

fn child(wanted: &WantedChild) -> Child {
    Child {
        object: wanted.object.get().to_owned(),
        on_immutable: match wanted.on_immutable {
            spec::OnImmutable::Fail => OnImmutable::Fail,
            spec::OnImmutable::Recreate => OnImmutable::Recreate,
        },
        on_prune: match wanted.on_prune {
            spec::OnPrune::Delete => OnPrune::Delete,
            spec::OnPrune::Orphan => OnPrune::Orphan,
        },
        wave: wanted.wave,
        release: wanted.release.clone(),
        extensions: Vec::new(),
    }
}

fn status(ctx: &Context<Probe>) -> Option<Status> {
    let empty = WantedStatus { fields: Value::Null, conditions: Vec::new() };
    let wanted = match (&ctx.spec().status, ctx.spec().report) {
        (Some(wanted), _) => wanted,
        (None, true) => &empty,
        (None, false) => return None,
    };
    let mut fields = match &wanted.fields {
        Value::Null => json!({}),
        fields => fields.clone(),
    };
    if ctx.spec().report {
        fields["seen"] = seen(ctx);
    }
    let conditions = wanted.conditions.iter().map(condition).collect();
    Some(Status { fields: fields.to_string(), conditions })
}

/// What the snapshot shows. Without versions, which would change with every status write.
fn seen(ctx: &Context<Probe>) -> Value {
    let children: Vec<String> =
        ctx.children().map(|child| format!("{}/{}", child.type_ref().kind, child.name())).collect();
    let unavailable: Vec<&str> = ctx.unavailable().iter().map(|type_ref| type_ref.kind.as_str()).collect();
    json!({ "children": children, "unavailable": unavailable })
}

fn condition(wanted: &WantedCondition) -> Condition {
    let status = match wanted.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Condition::new(&wanted.type_, status, &wanted.reason, &wanted.message)
}

fn events(spec: &ProbeSpec) -> Vec<Event> {
    let event = |wanted: &WantedEvent| match wanted.warning {
        true => Event::warning(&wanted.reason, &wanted.message),
        false => Event::normal(&wanted.reason, &wanted.message),
    };
    spec.events.iter().map(event).collect()
}
