//! One call of a module: a fresh instance, its limits, and what came of it.
//!
//! In: a linked component and what to call. Out: [`Ran`], the answer or a [`CallError`] with what the call cost. No
//! state is left behind, and whatever the module does, the calling thread is free again within the limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Store, StoreContextMut, UpdateDeadline};

use crate::module::bindings::ReconcilerPre;
use crate::module::bindings::finalizing::FinalizingPre;
use crate::module::bindings::relating::RelatingPre;
use crate::module::engine::{Entered, Sandbox};
use crate::module::error::{CallError, TimeLimit};
use crate::module::limits::{Limits, MemoryMeter};
use crate::module::live::Live;
use crate::module::log::{GuestLog, SharedSink};
use crate::module::wasi::Wasi;

/// Why the host stopped a module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// A limit on time is reached.
    #[error("{0}")]
    Time(TimeLimit),
    /// WASI's `exit`.
    #[error("the module exited instead of answering")]
    Exit,
    /// An import that this host has only a name for.
    #[error("the module called `{0}`, which modules are not given")]
    NotServed(String),
    /// More random numbers at once than the host hands out.
    #[error("the module asked for {asked} random bytes at once, the limit is {limit}")]
    Random { asked: u64, limit: u64 },
    /// WASI says that polling nothing is an error.
    #[error("the module polled an empty list")]
    EmptyPoll,
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The instance was being made.
    Starting,
    /// The instance was called.
    Calling,
}

/// What belongs to one instance on the host's side.
pub(crate) struct Guest {
    pub(crate) memory: MemoryMeter,
    pub(crate) log: SharedSink,
    pub(crate) wasi: Wasi,
    /// What was granted, in calls of `external`.
    pub(crate) live: Option<Live>,
    now_ms: u64,
    asked_clock: bool,
}

impl Guest {
    /// The frozen time; the call depends on time from here on.
    pub(crate) fn ask_clock(&mut self) -> u64 {
        self.asked_clock = true;
        self.now_ms
    }
}

/// What a call gave and cost.
pub(crate) struct Ran<R> {
    pub(crate) result: Result<R, CallError>,
    pub(crate) asked_clock: bool,
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    pub(crate) memory_peak: usize,
    pub(crate) log: GuestLog,
}

/// The optional interfaces that a module exports, those that see nothing but their snapshot.
pub(crate) struct Hooks {
    pub(crate) relate: Option<RelatingPre<Guest>>,
    pub(crate) finalize: Option<FinalizingPre<Guest>>,
}

/// What stays the same from call to call of one module.
pub(crate) struct Callee {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) pre: ReconcilerPre<Guest>,
    pub(crate) hooks: Hooks,
    pub(crate) limits: Limits,
    pub(crate) seed: [u8; 32],
}

impl Callee {
    /// Makes a fresh instance and calls `function` on it.
    pub(crate) fn run<I, R>(
        &self,
        now_ms: u64,
        instantiate: impl FnOnce(&mut Store<Guest>) -> wasmtime::Result<I>,
        function: impl FnOnce(&mut Store<Guest>, &I) -> wasmtime::Result<R>,
    ) -> Ran<R> {
        let too_long = TimeLimit::Wall(self.limits.wall);
        let mut call = Call::begin(&self.sandbox, &self.limits, too_long, self.seed, now_ms, None);
        let answer = match instantiate(&mut call.store) {
            Ok(instance) => function(&mut call.store, &instance).map_err(|error| (Stage::Calling, error)),
            Err(error) => Err((Stage::Starting, error)),
        };
        call.end(answer)
    }
}

/// A call that runs: the store of its instance, and since when.
pub(crate) struct Call<'a> {
    pub(crate) store: Store<Guest>,
    limits: &'a Limits,
    started: Started,
    _entered: Entered<'a>,
}

impl<'a> Call<'a> {
    /// Waits for its slot. `too_long` is its limit on the wall.
    pub(crate) fn begin(
        sandbox: &'a Sandbox,
        limits: &'a Limits,
        too_long: TimeLimit,
        seed: [u8; 32],
        now_ms: u64,
        live: Option<Live>,
    ) -> Self {
        let entered = sandbox.enter();
        let started = Started::now();
        let guest = Guest {
            memory: MemoryMeter::new(limits.memory),
            log: live.as_ref().map_or_else(|| SharedSink::new(limits), Live::log),
            wasi: Wasi::new(seed),
            live,
            now_ms,
            asked_clock: false,
        };
        let mut store = Store::new(sandbox.engine(), guest);
        store.limiter(|guest| &mut guest.memory);
        store.set_hostcall_fuel(limits.output);
        let cpu = limits.cpu;
        store.epoch_deadline_callback(move |_: StoreContextMut<'_, Guest>| {
            if started.cpu() >= cpu {
                return Err(Stop::Time(TimeLimit::Cpu(cpu)).into());
            }
            if started.wall() >= too_long.time() {
                return Err(Stop::Time(too_long).into());
            }
            Ok(UpdateDeadline::Continue(1))
        });
        store.set_epoch_deadline(1);
        Self { store, limits, started, _entered: entered }
    }

    pub(crate) fn end<R>(mut self, answer: Result<R, (Stage, wasmtime::Error)>) -> Ran<R> {
        let guest = self.store.data_mut();
        guest.log.sink().flush();
        let result = answer.map_err(|(stage, error)| CallError::classify(stage, &error, guest, self.limits));
        let (asked_clock, memory_peak) = (guest.asked_clock, guest.memory.used());
        let log = guest.log.sink().finish();
        drop(self.store);
        Ran { result, asked_clock, cpu: self.started.cpu(), wall: self.started.wall(), memory_peak, log }
    }
}

/// When a call began, on the wall and on this thread's CPU clock: another thread's load is not charged to the module.
#[derive(Clone, Copy)]
struct Started {
    wall: Instant,
    cpu: Duration,
}

impl Started {
    fn now() -> Self {
        Self { wall: Instant::now(), cpu: thread_cpu() }
    }

    fn wall(self) -> Duration {
        self.wall.elapsed()
    }

    fn cpu(self) -> Duration {
        thread_cpu().saturating_sub(self.cpu)
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
