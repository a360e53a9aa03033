//! WASI with what was granted: files, variables and HTTP, real clocks and real random numbers.
//!
//! In: grants. Out: wasmtime-wasi's context of one call, and a linker that serves it. Only calls of `external` are linked with it; all
//! others get [`super::wasi`]. Sockets stay closed whatever is granted.

use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::module::call::Guest;
use crate::module::grant::{Access, Granted};
use crate::module::limits::Limits;
use crate::module::log::{SharedSink, Stream};
use crate::module::outgoing::Outgoing;

/// Handles that a module may hold at the same time: open files, streams, requests.
const HANDLES: usize = 1 << 10;
/// Told to guests as room in a standard stream.
const STREAM_ROOM: usize = 64 << 10;
/// Most random bytes at once: the host allocates them.
const RANDOM_MAX: u64 = 1 << 20;

/// What was granted, opened for one call.
pub(crate) struct Live {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outgoing: Outgoing,
    table: ResourceTable,
    log: SharedSink,
}

impl Live {
    /// Opens everything.
    ///
    /// # Errors
    /// Something is no longer there.
    pub(crate) fn open(granted: &[Granted], outgoing: Outgoing, limits: &Limits) -> Result<Self, String> {
        let log = SharedSink::new(limits);
        let mut wasi = WasiCtx::builder();
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false).max_random_size(RANDOM_MAX);
        let stdio = |stream| Stdio { log: log.clone(), stream };
        wasi.stdout(stdio(Stream::Stdout)).stderr(stdio(Stream::Stderr));
        for one in granted {
            let failed = |error: &dyn std::fmt::Display| format!("--grant {}: {error}", one.grant);
            match &one.grant.access {
                Access::Folder { path, read_only } => {
                    let perms = if *read_only { FsPerms::ReadOnly } else { FsPerms::ReadWrite };
                    wasi.preopened_dir(path, one.guest_path(), perms).map_err(|error| failed(&error.root_cause()))?;
                }
                Access::Variable(key) => {
                    wasi.env(key, std::env::var(key).map_err(|error| failed(&error))?);
                }
                Access::Http { .. } => {}
            }
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        Ok(Self { wasi: wasi.build(), http: WasiHttpCtx::new(), outgoing, table, log })
    }

    /// Where its standard streams go.
    pub(crate) fn log(&self) -> SharedSink {
        self.log.clone()
    }
}

impl WasiView for Guest {
    /// Panics in a store without grants, which is never linked with this.
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Live { wasi, table, .. } = self.live.as_mut().expect("what is linked with grants runs with them");
        WasiCtxView { ctx: wasi, table }
    }
}

impl WasiHttpView for Guest {
    /// Panics where [`WasiView::ctx`] does.
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let Live { http, outgoing, table, .. } = self.live.as_mut().expect("what is linked with grants runs with them");
        WasiHttpCtxView { hooks: outgoing, table, ctx: http }
    }
}

/// Serves WASI as it is granted.
pub(crate) fn add_to_linker(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)
}

/// Standard output or error, which go to the log.
struct Stdio {
    log: SharedSink,
    stream: Stream,
}

impl IsTerminal for Stdio {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stdio {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Asked for by WASI 0.3 alone.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(Self { log: self.log.clone(), stream: self.stream })
    }
}

impl OutputStream for Stdio {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.log.sink().write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STREAM_ROOM)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Stdio {
    async fn ready(&mut self) {}
}
