//! Modules: a file becomes a callable, limited thing.
//!
//! In: `.wasm` files, then a key and a snapshot a call. Out: the module's answer, or a [`CallError`] whose class is the
//! reason of a condition. Guaranteed: a call ends within its limits and frees its thread; it sees nothing but its
//! snapshot; the same snapshot gives the same bytes; nothing is left of one call in the next.

mod bindings;
mod cache;
mod call;
mod compile;
mod contract;
mod convert;
mod descriptor;
mod engine;
mod error;
mod file;
mod grant;
mod imports;
mod limits;
mod live;
pub(crate) mod log;
mod map;
mod outgoing;
mod outside;
mod preflight;
mod runtime;
mod source;
mod wasi;

use std::fmt;
use std::time::Duration;

use operator_core::contract::{Descriptor, Failure, Key, Observed, Outcome, Progress, Query, Removal, Snapshot};
use operator_core::lead::ModuleVersion;
use wasmtime::Store;

pub use compile::{CompileArgs, compile_main};
pub use descriptor::misplaced;
pub use error::{CallError, TimeLimit};
pub use file::{Content, Folders, ModuleFile};
pub use grant::{Grant, Granted, Grants, Ungranted, flag};
pub use limits::Limits;
pub use log::{GuestLog, LogLevel, LogLine};
pub use outgoing::Servers;
pub use preflight::{LoadError, Problem};
pub use runtime::{Runtime, RuntimeOptions, conflicts};
pub use source::ModuleKind;

use bindings::operator::reconciler::types as wit;
use bindings::working_outside::WorkingOutside;
use call::{Callee, Guest, Ran};
use contract::Surface;
use outside::Outside;

/// A loaded module, shared by all threads that call it.
pub struct Module {
    descriptor: Descriptor,
    digest: String,
    kind: ModuleKind,
    surface: Surface,
    callee: Callee,
    outside: Option<Outside>,
}

/// What came of a call, and what it cost.
#[derive(Debug)]
pub struct CallReport<T = Outcome> {
    /// The module's answer, or why there is none.
    pub result: Result<Result<T, Failure>, CallError>,
    /// Whether the module read the time: then an equal snapshot need not give an equal answer later.
    pub asked_clock: bool,
    /// CPU time of the calling thread, making and dropping the instance included.
    pub cpu: Duration,
    /// Time on the wall.
    pub wall: Duration,
    /// Bytes of memories and tables that the instance had in the end.
    pub memory_peak: usize,
    /// What the module wrote; it was traced already.
    pub log: GuestLog,
}

impl<T> CallReport<T> {
    fn without_a_call(result: Result<Result<T, Failure>, CallError>) -> Self {
        let (cpu, wall) = (Duration::ZERO, Duration::ZERO);
        Self { result, asked_clock: false, cpu, wall, memory_peak: 0, log: GuestLog::default() }
    }
}

impl Module {
    fn new(
        descriptor: Descriptor,
        source: (&[u8; 32], ModuleKind),
        surface: Surface,
        callee: Callee,
        outside: Option<Outside>,
    ) -> Self {
        let (digest, kind) = source;
        Self { descriptor, digest: cache::hex(digest), kind, surface, callee, outside }
    }

    /// What the module says of itself; checked at load.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// SHA-256 of the file, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The beginning of [`Module::digest`], enough to tell builds apart in a log.
    pub fn short_digest(&self) -> &str {
        &self.digest[..12]
    }

    /// As the Lease names it.
    pub fn version(&self) -> ModuleVersion {
        let Descriptor { name, version, .. } = &self.descriptor;
        ModuleVersion { name: name.clone(), version: version.clone(), digest: format!("sha256:{}", self.digest) }
    }

    /// What kind of file it came from.
    pub fn kind(&self) -> ModuleKind {
        self.kind
    }

    /// Names of its imports, as the file orders them.
    pub fn imports(&self) -> &[String] {
        &self.surface.imports
    }

    /// Names of its exports, as the file orders them.
    pub fn exports(&self) -> &[String] {
        &self.surface.exports
    }

    /// Version of `operator:reconciler` that it was built against.
    pub fn contract_version(&self) -> &str {
        &self.surface.contract
    }

    /// Limits of each call.
    pub fn limits(&self) -> &Limits {
        &self.callee.limits
    }

    /// Whether its instances come from the pool.
    pub fn is_pooled(&self) -> bool {
        self.callee.sandbox.is_pooled()
    }

    /// Asks the module what it wants, on this thread, in an instance of its own.
    ///
    /// `now_ms` is the time that the module sees if it asks, in milliseconds since the Unix epoch. Returns within the
    /// limits whatever the module does.
    pub fn reconcile(&self, key: &Key, snapshot: &Snapshot, now_ms: u64) -> CallReport {
        let instantiate = |store: &mut Store<Guest>| self.callee.pre.instantiate(store);
        self.call(key, snapshot, now_ms, instantiate, convert::of_outcome, |store, instance, snapshot| {
            instance.operator_reconciler_reconcile().call_reconcile(store, convert::key(key), snapshot)
        })
    }

    /// Asks what else its decision reads; as [`Module::reconcile`].
    ///
    /// # Panics
    /// Where the module has no such hook.
    pub fn relate(&self, key: &Key, snapshot: &Snapshot, now_ms: u64) -> CallReport<Vec<Query>> {
        let hook = self.callee.hooks.relate.as_ref().expect("the module relates");
        self.call(
            key,
            snapshot,
            now_ms,
            |store| hook.instantiate(store),
            convert::of_queries,
            |store, instance, snapshot| {
                instance.operator_reconciler_relate().call_relate(store, convert::key(key), snapshot)
            },
        )
    }

    /// Asks what is to be done in the cluster while the primary is being deleted; as [`Module::reconcile`].
    ///
    /// # Panics
    /// Where the module has no such hook.
    pub fn finalize(&self, key: &Key, snapshot: &Snapshot, now_ms: u64) -> CallReport<Progress> {
        let hook = self.callee.hooks.finalize.as_ref().expect("the module finalizes");
        self.call(
            key,
            snapshot,
            now_ms,
            |store| hook.instantiate(store),
            convert::of_progress,
            |store, instance, snapshot| {
                instance.operator_reconciler_finalize().call_finalize(store, convert::key(key), snapshot)
            },
        )
    }

    /// Has the module make or look at what it keeps outside the cluster, with what was granted to it; as [`Module::reconcile`], and not on
    /// a thread that runs async tasks.
    ///
    /// # Panics
    /// Where the module has no such hook.
    pub fn ensure(&self, key: &Key, snapshot: &Snapshot, now_ms: u64) -> CallReport<Observed> {
        self.call_outside(key, snapshot, now_ms, convert::of_observed, async |store, instance, snapshot| {
            instance.operator_reconciler_external().call_ensure(store, convert::key(key), snapshot).await
        })
    }

    /// Has the module remove what it keeps outside the cluster; as [`Module::ensure`].
    ///
    /// # Panics
    /// Where the module has no such hook.
    pub fn remove(&self, key: &Key, snapshot: &Snapshot, now_ms: u64) -> CallReport<Removal> {
        self.call_outside(key, snapshot, now_ms, convert::of_removal, async |store, instance, snapshot| {
            instance.operator_reconciler_external().call_remove(store, convert::key(key), snapshot).await
        })
    }

    /// What is live in calls of `external`.
    pub fn granted(&self) -> &[Granted] {
        self.outside.as_ref().map_or(&[], |outside| &outside.granted)
    }

    fn call_outside<W, C>(
        &self,
        key: &Key,
        snapshot: &Snapshot,
        now_ms: u64,
        of: impl FnOnce(W) -> Result<C, CallError>,
        function: impl AsyncFnOnce(
            &mut Store<Guest>,
            &WorkingOutside,
            wit::Snapshot<'_>,
        ) -> wasmtime::Result<Result<W, wit::Failure>>,
    ) -> CallReport<C> {
        if convert::snapshot_bytes(snapshot) > self.limits().snapshot {
            return self.too_large();
        }
        let outside = self.outside.as_ref().expect("the module works outside");
        let ran = outside.run(now_ms, async |store, instance| {
            let lists = convert::Lists::of(snapshot);
            let related = lists.related();
            function(store, instance, lists.snapshot(&related)).await
        });
        match ran {
            Ok(ran) => self.report(key, ran, of),
            Err(message) => CallReport::without_a_call(Ok(Err(outside::unavailable(message)))),
        }
    }

    fn call<I, W, C>(
        &self,
        key: &Key,
        snapshot: &Snapshot,
        now_ms: u64,
        instantiate: impl FnOnce(&mut Store<Guest>) -> wasmtime::Result<I>,
        of: impl FnOnce(W) -> Result<C, CallError>,
        function: impl FnOnce(&mut Store<Guest>, &I, wit::Snapshot<'_>) -> wasmtime::Result<Result<W, wit::Failure>>,
    ) -> CallReport<C> {
        if convert::snapshot_bytes(snapshot) > self.limits().snapshot {
            return self.too_large();
        }
        let ran = self.callee.run(now_ms, instantiate, |store, instance| {
            let lists = convert::Lists::of(snapshot);
            let related = lists.related();
            function(store, instance, lists.snapshot(&related))
        });
        self.report(key, ran, of)
    }

    fn report<W, C>(
        &self,
        key: &Key,
        ran: Ran<Result<W, wit::Failure>>,
        of: impl FnOnce(W) -> Result<C, CallError>,
    ) -> CallReport<C> {
        self.trace(&ran.log, Some(key));
        let Ran { result, asked_clock, cpu, wall, memory_peak, log } = ran;
        let result = result.and_then(|answer| convert::answer(answer, of));
        CallReport { result, asked_clock, cpu, wall, memory_peak, log }
    }

    fn too_large<C>(&self) -> CallReport<C> {
        let limit = self.limits().snapshot;
        CallReport::without_a_call(Err(CallError::LimitExceeded { what: "the object with its children", limit }))
    }

    /// Hands what the module wrote to the host's own log.
    fn trace(&self, log: &GuestLog, key: Option<&Key>) {
        let (module, digest) = (self.descriptor.name.as_str(), self.short_digest());
        let key = key.map(|key| tracing::field::display(&key.name));
        for LogLine { level, message } in &log.lines {
            match level {
                LogLevel::Debug => tracing::debug!(module, digest, key, "{message}"),
                LogLevel::Info => tracing::info!(module, digest, key, "{message}"),
                LogLevel::Warn => tracing::warn!(module, digest, key, "{message}"),
                LogLevel::Error => tracing::error!(module, digest, key, "{message}"),
            }
        }
        if log.dropped_bytes > 0 {
            let (lines, bytes) = (log.dropped_lines, log.dropped_bytes);
            tracing::warn!(
                module,
                digest,
                key,
                lines,
                bytes,
                "the module logs too much: the rest of this call's log was dropped"
            );
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("name", &self.descriptor.name)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
