//! WASI 0.2 for code that must be a pure function: empty, deterministic, and never blocking.
//!
//! In: the `wasi:*@0.2.x` imports of a component. Out: a linker that serves them. No environment, arguments, files or
//! sockets; the wall clock stands still for a call; the monotonic clock starts at 0 and moves only when the module
//! sleeps, which returns at once; random numbers are the same in every call of a module (never make secrets of them);
//! standard output and error go to the log.
//!
//! wasmtime-wasi is not used here: it sleeps on the real clock whatever clock it is given, and no epoch interrupts it.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use wasmtime::StoreContextMut;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType, Val};

use crate::module::call::{Guest, Stop};
use crate::module::log::Stream;

/// Every handle that a module holds. What it stands for follows from the WIT type, which wasmtime checks; for streams
/// the number is the stream, for pollables it names a timer.
type Handle = Resource<()>;

/// A pollable without a timer: always ready.
const READY: u32 = 0;
const STDIN: u32 = 0;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;
/// Told to guests as room in a stream; a longer write is taken too.
const STREAM_ROOM: u64 = 64 << 10;
/// Most random bytes of one call: the host allocates them.
const RANDOM_MAX: u64 = 1 << 20;

/// The clocks, timers and random numbers of one call.
#[derive(Debug)]
pub(crate) struct Wasi {
    /// Nanoseconds slept so far.
    monotonic: u64,
    timers: HashMap<u32, u64>,
    next_timer: u32,
    random: Random,
}

impl Wasi {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { monotonic: 0, timers: HashMap::new(), next_timer: READY + 1, random: Random::new(seed) }
    }

    fn timer(&mut self, due: u64) -> Handle {
        let id = self.next_timer;
        // Wrapping past four billion timers of one call could only make a timer early.
        self.next_timer = id.checked_add(1).unwrap_or(READY + 1);
        self.timers.insert(id, due);
        Resource::new_own(id)
    }

    fn due(&self, pollable: &Handle) -> u64 {
        self.timers.get(&pollable.rep()).copied().unwrap_or(0)
    }

    /// Indexes of what is ready; if nothing is, time moves on to the first that will be.
    fn poll(&mut self, pollables: &[Handle]) -> Vec<u32> {
        let first = pollables.iter().map(|pollable| self.due(pollable)).min().unwrap_or(0);
        self.monotonic = self.monotonic.max(first);
        (0u32..).zip(pollables).filter(|(_, pollable)| self.due(pollable) <= self.monotonic).map(|(i, _)| i).collect()
    }
}

/// Random numbers that only look random: SHA-256 of the module's digest and a counter.
#[derive(Debug)]
struct Random {
    seed: [u8; 32],
    counter: u64,
}

impl Random {
    fn new(seed: [u8; 32]) -> Self {
        Self { seed, counter: 0 }
    }

    fn block(&mut self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(self.seed);
        hash.update(self.counter.to_le_bytes());
        self.counter += 1;
        hash.finalize().into()
    }

    fn number(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.block();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    fn bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        if len > RANDOM_MAX {
            return Err(Stop::Random { asked: len, limit: RANDOM_MAX }.into());
        }
        let mut bytes = Vec::with_capacity(len as usize + 32);
        while (bytes.len() as u64) < len {
            bytes.extend_from_slice(&self.block());
        }
        bytes.truncate(len as usize);
        Ok(bytes)
    }
}

/// `wasi:clocks/wall-clock.datetime`.
#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// `wasi:io/streams.stream-error`.
#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum StreamError {
    /// Never made here, but part of the type.
    #[component(name = "last-operation-failed")]
    LastOperationFailed(Handle),
    #[component(name = "closed")]
    Closed,
}

/// Whether this host serves an import by that name, as far as the name tells.
pub(crate) fn serves(import: &str) -> bool {
    interface(import).is_some()
}

/// `io/poll` of `wasi:io/poll@0.2.3`; the versions of 0.2 only add.
fn interface(import: &str) -> Option<&str> {
    let (name, version) = import.strip_prefix("wasi:")?.split_once('@')?;
    version.starts_with("0.2.").then_some(name)
}

/// Serves every `wasi:*@0.2.x` import of `component`, at the version it asks for. A function that is not here stops the
/// module when it is called, not before: toolchains import much that is never used.
pub(crate) fn add_to_linker(linker: &mut Linker<Guest>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine().clone();
    for (import, item) in component.component_type().imports(&engine) {
        let (Some(interface), ComponentItem::ComponentInstance(instance)) = (interface(import), item.ty) else {
            continue;
        };
        let mut defined = linker.instance(import)?;
        for (name, export) in instance.exports(&engine) {
            match export.ty {
                ComponentItem::Resource(_) => {
                    defined.resource(name, ResourceType::host::<()>(), drop_of(interface, name))?;
                }
                ComponentItem::ComponentFunc(_) if !define(&mut defined, interface, name)? => {
                    let function = format!("{import}#{name}");
                    defined.func_new(name, move |_, _, _, _| Err(Stop::NotServed(function.clone()).into()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn drop_of(interface: &str, name: &str) -> fn(StoreContextMut<'_, Guest>, u32) -> wasmtime::Result<()> {
    match (interface, name) {
        ("io/poll", "pollable") => |mut store, timer| {
            store.data_mut().wasi.timers.remove(&timer);
            Ok(())
        },
        _ => |_, _| Ok(()),
    }
}

type Store<'a> = StoreContextMut<'a, Guest>;

/// Defines one function; false for one that is not served.
fn define(linker: &mut LinkerInstance<'_, Guest>, interface: &str, name: &str) -> wasmtime::Result<bool> {
    match interface {
        "cli/environment"
        | "cli/exit"
        | "cli/stdin"
        | "cli/stdout"
        | "cli/stderr"
        | "cli/terminal-stdin"
        | "cli/terminal-stdout"
        | "cli/terminal-stderr"
        | "filesystem/preopens" => define_cli(linker, name),
        "clocks/monotonic-clock" => define_monotonic(linker, name),
        "clocks/wall-clock" => define_wall(linker, name),
        "random/random" | "random/insecure" | "random/insecure-seed" => define_random(linker, name),
        "io/poll" => define_poll(linker, name),
        "io/streams" => define_streams(linker, name),
        "sockets/instance-network" => define_network(linker, name),
        "sockets/tcp-create-socket" | "sockets/udp-create-socket" | "sockets/ip-name-lookup" => refuse(linker, name),
        _ => Ok(false),
    }
}

fn define_cli(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "get-environment" => linker.func_wrap(name, |_: Store, (): ()| Ok((Vec::<(String, String)>::new(),)))?,
        "get-arguments" => linker.func_wrap(name, |_: Store, (): ()| Ok((Vec::<String>::new(),)))?,
        "initial-cwd" => linker.func_wrap(name, |_: Store, (): ()| Ok((None::<String>,)))?,
        "get-directories" => linker.func_wrap(name, |_: Store, (): ()| Ok((Vec::<(Handle, String)>::new(),)))?,
        "exit" => linker
            .func_wrap(name, |_: Store, (_,): (Result<(), ()>,)| -> wasmtime::Result<()> { Err(Stop::Exit.into()) })?,
        "exit-with-code" => {
            linker.func_wrap(name, |_: Store, (_,): (u8,)| -> wasmtime::Result<()> { Err(Stop::Exit.into()) })?;
        }
        "get-stdin" => linker.func_wrap(name, |_: Store, (): ()| Ok((Handle::new_own(STDIN),)))?,
        "get-stdout" => linker.func_wrap(name, |_: Store, (): ()| Ok((Handle::new_own(STDOUT),)))?,
        "get-stderr" => linker.func_wrap(name, |_: Store, (): ()| Ok((Handle::new_own(STDERR),)))?,
        "get-terminal-stdin" | "get-terminal-stdout" | "get-terminal-stderr" => {
            linker.func_wrap(name, |_: Store, (): ()| Ok((None::<Handle>,)))?
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn define_monotonic(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "now" => linker.func_wrap(name, |store: Store, (): ()| Ok((store.data().wasi.monotonic,)))?,
        "resolution" => linker.func_wrap(name, |_: Store, (): ()| Ok((1u64,)))?,
        "subscribe-instant" => {
            linker.func_wrap(name, |mut store: Store, (when,): (u64,)| Ok((store.data_mut().wasi.timer(when),)))?
        }
        "subscribe-duration" => linker.func_wrap(name, |mut store: Store, (duration,): (u64,)| {
            let wasi = &mut store.data_mut().wasi;
            let due = wasi.monotonic.saturating_add(duration);
            Ok((wasi.timer(due),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn define_wall(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "now" => linker.func_wrap(name, |mut store: Store, (): ()| {
            let now = store.data_mut().ask_clock();
            Ok((Datetime { seconds: now / 1000, nanoseconds: (now % 1000) as u32 * 1_000_000 },))
        })?,
        "resolution" => {
            linker.func_wrap(name, |_: Store, (): ()| Ok((Datetime { seconds: 0, nanoseconds: 1_000_000 },)))?
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn define_random(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => {
            linker
                .func_wrap(name, |mut store: Store, (len,): (u64,)| Ok((store.data_mut().wasi.random.bytes(len)?,)))?;
        }
        "get-random-u64" | "get-insecure-random-u64" => {
            linker.func_wrap(name, |mut store: Store, (): ()| Ok((store.data_mut().wasi.random.number(),)))?
        }
        "insecure-seed" => linker.func_wrap(name, |mut store: Store, (): ()| {
            let random = &mut store.data_mut().wasi.random;
            Ok(((random.number(), random.number()),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn define_poll(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "[method]pollable.ready" => linker.func_wrap(name, |store: Store, (pollable,): (Handle,)| {
            let wasi = &store.data().wasi;
            Ok((wasi.due(&pollable) <= wasi.monotonic,))
        })?,
        "[method]pollable.block" => linker.func_wrap(name, |mut store: Store, (pollable,): (Handle,)| {
            store.data_mut().wasi.poll(&[pollable]);
            Ok(())
        })?,
        "poll" => linker.func_wrap(name, |mut store: Store, (pollables,): (Vec<Handle>,)| {
            if pollables.is_empty() {
                return Err(Stop::EmptyPoll.into());
            }
            Ok((store.data_mut().wasi.poll(&pollables),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn define_streams(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            linker.func_wrap(name, |_: Store, (_, _): (Handle, u64)| {
                Ok((Err::<Vec<u8>, StreamError>(StreamError::Closed),))
            })?;
        }
        "[method]input-stream.skip" | "[method]input-stream.blocking-skip" => {
            linker.func_wrap(name, |_: Store, (_, _): (Handle, u64)| {
                Ok((Err::<u64, StreamError>(StreamError::Closed),))
            })?;
        }
        "[method]input-stream.subscribe" | "[method]output-stream.subscribe" => {
            linker.func_wrap(name, |_: Store, (_,): (Handle,)| Ok((Handle::new_own(READY),)))?;
        }
        "[method]output-stream.check-write" => {
            linker.func_wrap(name, |_: Store, (_,): (Handle,)| Ok((Ok::<u64, StreamError>(STREAM_ROOM),)))?
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            linker.func_wrap(name, |mut store: Store, (stream, bytes): (Handle, Vec<u8>)| {
                let stream = if stream.rep() == STDERR { Stream::Stderr } else { Stream::Stdout };
                store.data_mut().log.sink().write(stream, &bytes);
                Ok((Ok::<(), StreamError>(()),))
            })?;
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            linker.func_wrap(name, |_: Store, (_,): (Handle,)| Ok((Ok::<(), StreamError>(()),)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn define_network(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    if name != "instance-network" {
        return Ok(false);
    }
    linker.func_wrap(name, |_: Store, (): ()| Ok((Handle::new_own(READY),)))?;
    Ok(true)
}

/// What opens a socket says that it may not, so that a library that can do without one goes on.
fn refuse(linker: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    if !name.starts_with("create-") && name != "resolve-addresses" {
        return Ok(false);
    }
    linker.func_new(name, |_, _, _, results| {
        if let Some(result) = results.first_mut() {
            *result = Val::Result(Err(Some(Box::new(Val::Enum("access-denied".into())))));
        }
        Ok(())
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_moves_time_on_at_once() {
        let mut wasi = Wasi::new([0; 32]);
        let (late, soon) = (wasi.timer(5_000), wasi.timer(1_000));
        let both = [Handle::new_borrow(late.rep()), Handle::new_borrow(soon.rep())];
        assert_eq!(wasi.poll(&both), [1], "only the first that is due is ready");
        assert_eq!(wasi.monotonic, 1_000);
        assert_eq!(wasi.poll(&both[..1]), [0]);
        assert_eq!(wasi.monotonic, 5_000);
        assert_eq!(wasi.poll(&both), [0, 1]);
    }

    #[test]
    fn random_numbers_are_a_constant_of_the_module() {
        let (mut a, mut b, mut other) = (Random::new([1; 32]), Random::new([1; 32]), Random::new([2; 32]));
        let first = a.bytes(100).unwrap();
        assert_eq!(first, b.bytes(100).unwrap());
        assert_ne!(first, other.bytes(100).unwrap());
        assert_ne!(first, a.bytes(100).unwrap(), "they differ within a call");
        assert!(a.bytes(RANDOM_MAX + 1).is_err());
    }

    #[test]
    fn any_0_2_is_served_and_nothing_else() {
        assert!(serves("wasi:io/poll@0.2.0"));
        assert!(serves("wasi:io/poll@0.2.12"));
        assert!(!serves("wasi:io/poll@0.3.0"));
        assert!(!serves("wasi:io/poll"));
        assert!(!serves("acme:io/poll@0.2.0"));
    }
}
