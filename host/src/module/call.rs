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
use crate::module::bindings::working_outside::WorkingOutsidePre;
use crate::module::engine::Sandbox;
use crate::module::error::CallError;
use crate::module::limits::{Limits, MemoryMeter};
use crate::module::log::{GuestLog, LogSink};
use crate::module::wasi::Wasi;

/// Why the host stopped a module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// The thread's CPU time is used up.
    #[error("CPU time is used up")]
    Cpu,
    /// It took too long on the wall.
    #[error("wall time is used up")]
    Wall,
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
    pub(crate) log: LogSink,
    pub(crate) wasi: Wasi,
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

/// The optional interfaces that a module exports.
pub(crate) struct Hooks {
    pub(crate) relate: Option<RelatingPre<Guest>>,
    pub(crate) finalize: Option<FinalizingPre<Guest>>,
    pub(crate) external: Option<WorkingOutsidePre<Guest>>,
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
        let _entered = self.sandbox.enter();
        let started = Started::now();
        let mut store = self.store(now_ms, started);
        let answer = match instantiate(&mut store) {
            Ok(instance) => function(&mut store, &instance).map_err(|error| (Stage::Calling, error)),
            Err(error) => Err((Stage::Starting, error)),
        };
        let guest = store.data_mut();
        guest.log.flush();
        let result = answer.map_err(|(stage, error)| CallError::classify(stage, &error, guest, &self.limits));
        let (asked_clock, memory_peak) = (guest.asked_clock, guest.memory.used());
        let log = store.into_data().log.finish();
        Ran { result, asked_clock, cpu: started.cpu(), wall: started.wall(), memory_peak, log }
    }

    fn store(&self, now_ms: u64, started: Started) -> Store<Guest> {
        let guest = Guest {
            memory: MemoryMeter::new(self.limits.memory),
            log: LogSink::new(&self.limits),
            wasi: Wasi::new(self.seed),
            now_ms,
            asked_clock: false,
        };
        let mut store = Store::new(self.sandbox.engine(), guest);
        store.limiter(|guest| &mut guest.memory);
        store.set_hostcall_fuel(self.limits.output);
        let (cpu, wall) = (self.limits.cpu, self.limits.wall);
        store.epoch_deadline_callback(move |_: StoreContextMut<'_, Guest>| {
            if started.cpu() >= cpu {
                return Err(Stop::Cpu.into());
            }
            if started.wall() >= wall {
                return Err(Stop::Wall.into());
            }
            Ok(UpdateDeadline::Continue(1))
        });
        store.set_epoch_deadline(1);
        store
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
