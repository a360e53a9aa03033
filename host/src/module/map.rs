//! Maps compiled code from an open file into this process: the one place that must trust bytes.

#![allow(
    unsafe_code,
    reason = "wasmtime can't check native code; the cache hashed this very file against its manifest"
)]

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use wasmtime::Engine;
use wasmtime::component::Component;

/// Maps the code in `file`, which must come from [`ModuleCache::get`](crate::module::cache::ModuleCache::get).
pub(crate) fn component(engine: &Engine, mut file: &File) -> wasmtime::Result<Component> {
    // The open file by its own name: a path could lead to another file by now.
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    if Path::new(&open).exists() {
        // SAFETY: the content was written by this program's compiler (another one's digest would not be in a manifest),
        // its digest was compared on this open file, and the folder can be written to by this user alone.
        return unsafe { Component::deserialize_file(engine, open) };
    }
    let mut code = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut code)?;
    // SAFETY: as above.
    unsafe { Component::deserialize(engine, code) }
}
