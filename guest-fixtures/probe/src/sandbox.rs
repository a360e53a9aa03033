//! What a call can learn of the world: the answers go into the status, so that tests see what leaked.
//!
//! Most of it exists for WASI targets alone; elsewhere the standard library has stubs, whose answers are as empty.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use operator_guest::{Context, Failure, Outcome, Status};
use serde_json::{Value, json};

use crate::misbehave::config_map;
use crate::{Behaviour, Probe};

/// The behaviour of this name.
pub(crate) fn find(name: &str) -> Option<Behaviour> {
    Some(match name {
        "clock" => |ctx| report(ctx, clock(ctx)),
        "wasi-clock" => |ctx| report(ctx, wasi_clock()),
        "random" => |ctx| report(ctx, random()),
        "environment" => |ctx| report(ctx, environment()),
        "files" => |ctx| report(ctx, files()),
        "network" => |ctx| report(ctx, network()),
        "memory" => |ctx| report(ctx, memory()),
        _ => return None,
    })
}

/// The host's clock, twice: frozen for a call.
fn clock(ctx: &Context<Probe>) -> Value {
    let milliseconds = || ctx.now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    json!({ "first": milliseconds(), "second": milliseconds() })
}

/// The wall clock and the monotonic one of WASI, before and after a sleep of ten minutes.
#[cfg(target_os = "wasi")]
fn wasi_clock() -> Value {
    use std::time::{Duration, Instant, SystemTime};

    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let (wall_before, before) = (wall(), Instant::now());
    std::thread::sleep(Duration::from_secs(600));
    json!({ "before": wall_before, "after": wall(), "slept": before.elapsed().as_millis() as u64 })
}

#[cfg(not(target_os = "wasi"))]
fn wasi_clock() -> Value {
    json!("no WASI")
}

/// As text: the API server rounds big numbers.
fn random() -> Value {
    json!(RandomState::new().hash_one("probe").to_string())
}

fn environment() -> Value {
    json!({ "variables": std::env::vars().count(), "arguments": std::env::args().count() })
}

fn files() -> Value {
    json!({
        "read": outcome_of(std::fs::read_to_string("/etc/passwd")),
        "write": outcome_of(std::fs::write("/tmp/probe", "leak")),
        "list": outcome_of(std::fs::read_dir("/")),
    })
}

fn network() -> Value {
    json!({
        "connect": outcome_of(std::net::TcpStream::connect(("192.0.2.1", 443))),
        "listen": outcome_of(std::net::TcpListener::bind(("127.0.0.1", 0))),
    })
}

/// How often this instance was called: always once, because each call has its own.
fn memory() -> Value {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    json!(CALLS.fetch_add(1, Ordering::Relaxed) + 1)
}

fn outcome_of<T>(result: std::io::Result<T>) -> &'static str {
    if result.is_ok() { "done" } else { "refused" }
}

fn report(ctx: &Context<Probe>, learned: Value) -> Result<Outcome, Failure> {
    let status = Status::new(&json!({ "learned": learned }))?;
    Ok(Outcome::new([config_map(ctx, ctx.name())]).status(status))
}
