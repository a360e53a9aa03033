//! Calls of `external`, the hook that works outside the cluster: where grants are live, and where a module may wait.
//!
//! In: a component with what was granted to it. Out: [`Ran`], as of every other call. The wait ends at the call's own limit whatever the
//! module waits for; its code runs on the calling thread, so that CPU time is counted as elsewhere. Instances never come from the pool,
//! whose slots are the workers'.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use operator_core::contract::Failure;
use tokio::runtime::{Builder, Runtime};
use wasmtime::Store;

use crate::module::bindings::working_outside::{WorkingOutside, WorkingOutsidePre};
use crate::module::call::{Call, Guest, Ran, Stage, Stop};
use crate::module::engine::Sandbox;
use crate::module::error::TimeLimit;
use crate::module::grant::Granted;
use crate::module::limits::Limits;
use crate::module::live::Live;
use crate::module::outgoing::Outgoing;

/// Threads of one module that may hang in the file system: opening a named pipe, a network mount that is gone.
const BLOCKING: usize = 16;

/// What stays the same from call to call of a module's work outside.
pub(crate) struct Outside {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) pre: WorkingOutsidePre<Guest>,
    pub(crate) limits: Limits,
    pub(crate) seed: [u8; 32],
    pub(crate) granted: Vec<Granted>,
    pub(crate) outgoing: Outgoing,
    pub(crate) driver: Driver,
}

impl Outside {
    /// Makes a fresh instance and calls `function` on it.
    ///
    /// # Errors
    /// What was granted is not there.
    pub(crate) fn run<R>(
        &self,
        now_ms: u64,
        function: impl AsyncFnOnce(&mut Store<Guest>, &WorkingOutside) -> wasmtime::Result<R>,
    ) -> Result<Ran<R>, String> {
        let driver = self.driver.get().map_err(|error| format!("no thread can be started: {error}"))?;
        let live = match self.granted.as_slice() {
            [] => None,
            granted => Some(Live::open(granted, self.outgoing.clone(), &self.limits)?),
        };
        let too_long = TimeLimit::Outside(self.limits.external);
        let mut call = Call::begin(&self.sandbox, &self.limits, too_long, self.seed, now_ms, live);
        let store = &mut call.store;
        let calling = async {
            let instance = self.pre.instantiate_async(&mut *store).await.map_err(|error| (Stage::Starting, error))?;
            function(store, &instance).await.map_err(|error| (Stage::Calling, error))
        };
        let answer = driver.block_on(async { tokio::time::timeout(self.limits.external, calling).await });
        let answer = answer.unwrap_or_else(|_| Err((Stage::Calling, Stop::Time(too_long).into())));
        // What the call opened is closed where it was opened.
        let _entered = driver.enter();
        Ok(call.end(answer))
    }
}

/// How a module's user reads that what was granted is not there; tried again as if the module had said so.
pub(crate) fn unavailable(message: String) -> Failure {
    Failure {
        terminal: false,
        reason: "GrantUnavailable".into(),
        message,
        retry_after: None,
        status: None,
        events: Vec::new(),
        extensions: Vec::new(),
    }
}

/// Drives what calls of one module wait for, on threads of its own: what hangs there is in nobody else's way.
#[derive(Default)]
pub(crate) struct Driver(OnceLock<Runtime>);

impl Driver {
    /// Starts with the first call: a host without work outside has no such threads.
    fn get(&self) -> io::Result<&Runtime> {
        if let Some(runtime) = self.0.get() {
            return Ok(runtime);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING)
            .thread_keep_alive(Duration::from_secs(1))
            .thread_name("module-outside")
            .enable_all()
            .build()?;
        Ok(self.0.get_or_init(|| runtime))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A thread that hangs is not waited for.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
