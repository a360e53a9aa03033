//! Calls that never end or end badly, and outcomes that the host must refuse. Beside what is wrong there is always a
//! sound ConfigMap, so that tests see whether siblings are applied.

use std::hint::black_box;
use std::time::Duration;

use operator_guest::{Child, Condition, Context, Failure, Outcome, Status, log};
use serde_json::{Value, json};

use crate::{Behaviour, Probe};

/// The behaviour of this name.
pub(crate) fn find(name: &str) -> Option<Behaviour> {
    Some(match name {
        "ok" => ok,
        "spin" => spin,
        // Calls
        "loop" => endless_loop,
        "sleep-loop" => sleep_loop,
        "eat-memory" => eat_memory,
        "overflow-stack" => overflow_stack,
        "panic" => panic,
        "trap" => trap,
        "exit" => exit,
        "log-flood" => log_flood,
        "stdout-flood" => stdout_flood,
        // Outcomes
        "big-output" => big_output,
        "invalid-json" => |ctx| beside(ctx, "{\"apiVersion\":\"v1\",\"kind\":"),
        "not-an-object" => |ctx| beside(ctx, "[]"),
        "duplicate-keys" => |ctx| {
            beside(ctx, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"data":{"a":"1","a":"2"}}"#)
        },
        "nan" => {
            |ctx| beside(ctx, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"data":{"a":NaN}}"#)
        }
        "deep-json" => deep_json,
        "no-name" => |ctx| beside(ctx, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#),
        "undeclared-type" => {
            |ctx| beside(ctx, r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"bad"}}"#)
        }
        "other-namespace" => |ctx| bad_metadata(ctx, "namespace", json!("kube-public")),
        "generate-name" => |ctx| bad_metadata(ctx, "generateName", json!("bad-")),
        "uid" => |ctx| bad_metadata(ctx, "uid", json!("11111111-1111-1111-1111-111111111111")),
        "resource-version" => |ctx| bad_metadata(ctx, "resourceVersion", json!("1")),
        "managed-fields" => |ctx| bad_metadata(ctx, "managedFields", json!([{ "manager": "probe" }])),
        "owner-references" => |ctx| bad_metadata(ctx, "ownerReferences", json!([{ "kind": "Probe", "name": "bad" }])),
        "host-label" => |ctx| bad_metadata(ctx, "labels", json!({ "operatorhost.dev/installation": "mine" })),
        "host-annotation" => |ctx| bad_metadata(ctx, "annotations", json!({ "operatorhost.dev/desired": "v1:0" })),
        "child-status" => child_status,
        "duplicate-child" => |ctx| beside(ctx, &config_map(ctx, ctx.name()).object),
        "many-children" => many_children,
        "return-live" => return_live,
        "status-reserved" => |ctx| with_status(ctx, r#"{"observedGeneration":1,"conditions":[]}"#),
        "status-not-an-object" => |ctx| with_status(ctx, "[1]"),
        "counts" => counts,
        "status-broken" => |ctx| with_status(ctx, "{"),
        "undeclared-condition" => undeclared_condition,
        "host-condition" => host_condition,
        _ => return None,
    })
}

/// A ConfigMap of the Probe's name with `spec.data`, and a status that says so.
fn ok(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let status = Status::new(&json!({ "keys": ctx.spec().data.len() }))?.condition(Condition::is_true(
        "Ready",
        "AsWanted",
        "the ConfigMap is as wanted",
    ));
    Ok(Outcome::new([config_map(ctx, ctx.name())]).status(status))
}

/// Takes its time: `spec.amount` thousand turns of a loop, then as `ok`.
fn spin(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    for turn in 0..ctx.spec().amount.unwrap_or(1000) as u64 * 1000 {
        black_box(turn);
    }
    ok(ctx)
}

fn endless_loop(_: &Context<Probe>) -> Result<Outcome, Failure> {
    loop {
        black_box(());
    }
}

/// Uses no CPU time where sleeping really sleeps. Targets without sleep panic.
fn sleep_loop(_: &Context<Probe>) -> Result<Outcome, Failure> {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn eat_memory(_: &Context<Probe>) -> Result<Outcome, Failure> {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(black_box(vec![1; 1 << 20]));
    }
}

fn overflow_stack(_: &Context<Probe>) -> Result<Outcome, Failure> {
    fn descend(depth: usize) -> usize {
        let frame = black_box([depth; 64]);
        match black_box(depth) {
            usize::MAX => 0,
            _ => descend(depth + 1) + frame[depth % 64],
        }
    }
    let depth = descend(0);
    Err(Failure::terminal("NoOverflow", depth.to_string()))
}

fn panic(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    panic!("the probe {} panics on purpose", ctx.name())
}

fn trap(_: &Context<Probe>) -> Result<Outcome, Failure> {
    core::arch::wasm32::unreachable()
}

fn exit(_: &Context<Probe>) -> Result<Outcome, Failure> {
    std::process::exit(3)
}

fn log_flood(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let line = "flood ".repeat(170);
    for _ in 0..ctx.spec().amount.unwrap_or(100_000) {
        log::info(&line);
    }
    ok(ctx)
}

fn stdout_flood(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let line = "flood ".repeat(170);
    for _ in 0..ctx.spec().amount.unwrap_or(1_000_000) {
        println!("{line}");
    }
    ok(ctx)
}

/// 100 MB of output from one MB of memory: a hundred children share one text.
fn big_output(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let padding = "x".repeat(ctx.spec().amount.unwrap_or(100_000_000) / 100);
    let shared = config_map_with(ctx.name(), json!({ "padding": padding })).object;
    let children = (0..100).map(|_| {
        let mut child = config_map(ctx, ctx.name());
        // SAFETY: nothing here frees or changes the texts; the host reads them, and then the instance is gone.
        child.object = unsafe { String::from_raw_parts(shared.as_ptr().cast_mut(), shared.len(), shared.len()) };
        child
    });
    let outcome = Outcome::new(children);
    std::mem::forget(shared);
    Ok(outcome)
}

fn deep_json(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let depth = ctx.spec().amount.unwrap_or(100_000);
    let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    beside(ctx, &format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"bad"}},"data":{nested}}}"#))
}

fn child_status(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "bad" },
        "spec": { "ports": [{ "port": 80 }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
    });
    beside(ctx, &service.to_string())
}

fn many_children(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let amount = ctx.spec().amount.unwrap_or(10_000);
    Ok(Outcome::new((0..amount).map(|index| config_map(ctx, &format!("{}-{index}", ctx.name())))))
}

/// The common mistake of authors who come from imperative clients: read, edit, return.
fn return_live(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let Some(live) = ctx.children().find(|child| child.type_ref().kind == "ConfigMap") else {
        return ok(ctx);
    };
    let mut edited: Value = live.read()?;
    edited["data"]["edited"] = json!("yes");
    Ok(Outcome::new([Child::new(edited)]))
}

/// A message that counts the calls, read back from the live status: never the same twice.
fn counts(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let status = ctx.status()?.unwrap_or_default();
    let ready = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let calls = ready.and_then(|ready| ready["message"].as_str()?.parse::<u64>().ok()).unwrap_or_default();
    let counted = Condition::is_true("Ready", "Counted", (calls + 1).to_string());
    let status = Status::conditions_only().condition(counted);
    let outcome = Outcome::new([]).status(status);
    Ok(match ctx.spec().requeue_after_ms {
        Some(time) => outcome.requeue_after(Duration::from_millis(time)),
        None => outcome,
    })
}

fn undeclared_condition(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let status = Status::conditions_only().condition(Condition::is_true("Undeclared", "Made", "up"));
    Ok(ok(ctx)?.status(status))
}

fn host_condition(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let status = Status::conditions_only().condition(Condition::is_true("Reconciled", "Made", "up"));
    Ok(ok(ctx)?.status(status))
}

pub(crate) fn config_map(ctx: &Context<Probe>, name: &str) -> Child {
    config_map_with(name, Value::Object(ctx.spec().data.clone()))
}

fn config_map_with(name: &str, data: Value) -> Child {
    Child::new(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data }))
}

/// A sound child, and one of this text.
fn beside(ctx: &Context<Probe>, text: &str) -> Result<Outcome, Failure> {
    let sound = config_map(ctx, ctx.name());
    let bad = Child { object: text.to_owned(), ..sound.clone() };
    Ok(Outcome::new([sound, bad]))
}

fn bad_metadata(ctx: &Context<Probe>, field: &str, value: Value) -> Result<Outcome, Failure> {
    let mut object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "bad" }, "data": { "a": "1" } });
    object["metadata"][field] = value;
    beside(ctx, &object.to_string())
}

fn with_status(ctx: &Context<Probe>, fields: &str) -> Result<Outcome, Failure> {
    Ok(ok(ctx)?.status(Status { fields: fields.to_owned(), conditions: Vec::new() }))
}
