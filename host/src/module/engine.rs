//! The Wasm engines: how code is compiled, where instances live, and the tick that ends calls which run too long.
//!
//! In: what the loaded modules need, and how many threads call them. Out: [`Sandbox`], an engine with its slots.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use wasmtime::component::Component;
use wasmtime::{Config, Enabled, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

/// How often a running call is checked against its limits.
const TICK: Duration = Duration::from_millis(10);
/// Bytes of a memory that stay mapped between calls: more than a call of a small module touches.
const KEEP_MEMORY: usize = 1 << 20;
/// Bytes of a table that stay mapped between calls.
const KEEP_TABLE: usize = 64 << 10;
/// Room for tables that grow while a module runs.
const TABLE_ELEMENTS: usize = 20_000;

/// What code depends on, the same in the process that compiles and in the one that calls.
fn config() -> Config {
    let mut config = Config::new();
    // The same snapshot gives the same bytes, on every machine. Threads are not compiled in at all.
    config.relaxed_simd_deterministic(true).wasm_memory64(false);
    config.epoch_interruption(true);
    // Backtraces walk frame pointers; registering unwind tables would slow down every load and swap.
    config.native_unwind_info(false);
    if address_space_limited() {
        // The usual 4 GiB of reserved addresses a memory would not fit. What does not grow beyond this is never copied.
        let memory = 64 << 20;
        config.memory_reservation(memory).memory_reservation_for_growth(memory).memory_guard_size(0);
    }
    config
}

/// Whether `ulimit -v` or a service manager limits the addresses of this process.
pub(crate) fn address_space_limited() -> bool {
    getrlimit(Resource::As).current.is_some()
}

/// An engine that only compiles.
pub(crate) fn compiler() -> wasmtime::Result<Engine> {
    Engine::new(config().cranelift_nan_canonicalization(true))
}

/// Of an engine that never compiles: the process that calls need not have the compiler in its memory.
fn caller() -> Config {
    let mut config = config();
    config.enable_compiler(false);
    config
}

/// What the largest of some modules takes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    memories: u32,
    tables: u32,
    table_elements: u64,
    memory_pages: u64,
}

impl Demand {
    /// What an instance of `component` takes; None if that is only known when it is instantiated.
    pub(crate) fn of(component: &Component) -> Option<Self> {
        let needed = component.resources_required()?;
        Some(Self {
            memories: needed.num_memories,
            tables: needed.num_tables,
            table_elements: needed.max_initial_table_size.unwrap_or(0),
            memory_pages: needed.max_initial_memory_size.unwrap_or(0),
        })
    }

    /// Enough for both.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            memories: self.memories.max(other.memories),
            tables: self.tables.max(other.tables),
            table_elements: self.table_elements.max(other.table_elements),
            memory_pages: self.memory_pages.max(other.memory_pages),
        }
    }

    /// Whether a memory starts larger than `limit` bytes.
    pub(crate) fn exceeds(self, limit: usize) -> bool {
        self.memory_pages.saturating_mul(64 << 10) > limit as u64
    }
}

/// An engine, its tick, and as many slots as it has room for instances.
#[derive(Debug)]
pub(crate) struct Sandbox {
    engine: Engine,
    ticker: Ticker,
    slots: Option<Slots>,
}

impl Sandbox {
    /// Instances in memory that is set up and torn down for each.
    pub(crate) fn on_demand() -> wasmtime::Result<Self> {
        let engine = Engine::new(&caller())?;
        Ok(Self { ticker: Ticker::start(&engine)?, engine, slots: None })
    }

    /// Instances in memory that is reused: `slots` at a time, each of at most `memory` bytes a memory.
    pub(crate) fn pooled(demand: Demand, slots: u32, memory: usize) -> wasmtime::Result<Self> {
        let (memories, tables) = (demand.memories.max(1), demand.tables.max(1));
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(slots)
            .total_memories(slots.saturating_mul(memories))
            .total_tables(slots.saturating_mul(tables))
            .max_memories_per_component(memories)
            .max_memories_per_module(memories)
            .max_tables_per_component(tables)
            .max_tables_per_module(tables)
            .table_elements(TABLE_ELEMENTS.max(usize::try_from(demand.table_elements)?))
            .max_memory_size(memory)
            .max_unused_warm_slots(slots)
            // Calls that wait have stacks of their own; what waits runs on demand.
            .total_stacks(0)
            .linear_memory_keep_resident(KEEP_MEMORY)
            .table_keep_resident(KEEP_TABLE)
            .pagemap_scan(Enabled::Auto);
        let mut config = caller();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config)?;
        Ok(Self { ticker: Ticker::start(&engine)?, engine, slots: Some(Slots::new(slots)) })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.slots.is_some()
    }

    /// Waits for a slot, and keeps the tick going until the answer is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        let slot = self.slots.as_ref().map(Slots::take);
        Entered { _slot: slot, _running: self.ticker.run() }
    }
}

/// The right to run one instance.
pub(crate) struct Entered<'a> {
    _slot: Option<Slot<'a>>,
    _running: Running<'a>,
}

/// Counts the free slots of a pool: a full pool makes callers wait, it is not the module's error.
#[derive(Debug)]
struct Slots {
    free: Mutex<u32>,
    freed: Condvar,
}

impl Slots {
    fn new(slots: u32) -> Self {
        Self { free: Mutex::new(slots), freed: Condvar::new() }
    }

    fn take(&self) -> Slot<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }
}

struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// A thread that moves the engine's epoch on while calls run, and sleeps while none does.
#[derive(Debug)]
struct Ticker {
    state: Arc<TickerState>,
    thread: Thread,
}

#[derive(Debug)]
struct TickerState {
    calls: AtomicUsize,
    asleep: AtomicBool,
    stop: AtomicBool,
}

impl Ticker {
    fn start(engine: &Engine) -> io::Result<Self> {
        let state = Arc::new(TickerState {
            calls: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let (of_thread, engine) = (Arc::clone(&state), engine.weak());
        let handle = thread::Builder::new().name("module-tick".into()).spawn(move || of_thread.tick(&engine))?;
        Ok(Self { state, thread: handle.thread().clone() })
    }

    fn run(&self) -> Running<'_> {
        self.state.calls.fetch_add(1, Ordering::SeqCst);
        // Ordered after the count, as the thread reads the count after it says that it sleeps: one sees the other.
        if self.state.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Running(&self.state)
    }
}

impl TickerState {
    fn tick(&self, engine: &EngineWeak) {
        while !self.stop.load(Ordering::SeqCst) {
            self.asleep.store(true, Ordering::SeqCst);
            if self.calls.load(Ordering::SeqCst) == 0 {
                thread::park();
                continue;
            }
            self.asleep.store(false, Ordering::SeqCst);
            thread::sleep(TICK);
            let Some(engine) = engine.upgrade() else { return };
            engine.increment_epoch();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

struct Running<'a>(&'a TickerState);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}
