//! Why a file can't be loaded, in one voice: what it is, what was expected, what to do.
//!
//! In: a [`Problem`] from any step of loading. Out: the text that a user reads. No other place words a load error.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::module::contract::SPOKEN;
use crate::module::error::CallError;
use crate::module::grant::Ungranted;

/// A module that can't be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

impl LoadError {
    pub(crate) fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.to_owned(), problem }
    }

    /// Its text in one line, as a log has it.
    pub(crate) fn line(&self) -> String {
        self.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

/// What is wrong with a module. Its text says what was expected and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No such file.
    NotFound,
    /// The file can't be read.
    Unreadable(String),
    /// It is a directory.
    Directory,
    /// It is a pipe, a socket or a device.
    NotAFile,
    /// It has no bytes.
    Empty,
    /// It is larger than the host reads.
    TooLarge {
        /// In bytes.
        limit: u64,
    },
    /// It is no Wasm; how one can tell.
    NotWasm(&'static str),
    /// It is Wasm's text format.
    TextFormat,
    /// It is native code that wasmtime compiled.
    Precompiled,
    /// Neither a module nor a component of today's binary format.
    UnknownVersion,
    /// It ends too early.
    Truncated {
        /// Bytes that are there.
        len: usize,
    },
    /// It is not valid; the validator's words.
    Invalid(String),
    /// A core module that never had anything to do with the contract.
    NoMetadata,
    /// A core module that lost wit-bindgen's metadata.
    Stripped,
    /// wit-bindgen's metadata is in a format that this host does not know.
    UnreadableMetadata {
        /// The tool that wrote it, where it says so.
        bindgen: Option<String>,
        /// The decoder's words.
        detail: String,
    },
    /// The core module and its metadata do not fit together.
    NotComponentized {
        /// The tool that wrote the metadata, where it says so.
        bindgen: Option<String>,
        /// The encoder's words.
        detail: String,
    },
    /// It exports something else than the contract.
    OtherWorld {
        /// Interfaces that are missing.
        missing: Vec<&'static str>,
        /// What it exports.
        exports: Vec<String>,
    },
    /// It is built for a version of the contract that this host does not speak.
    OtherContract {
        /// The export that tells.
        name: String,
    },
    /// It exports hooks of the contract that this host does not call yet.
    UnsupportedHooks(Vec<String>),
    /// It exports interfaces of the contract's package that this host has never heard of.
    UnknownHooks(Vec<String>),
    /// It needs something that no module is given.
    UnknownImports(Vec<String>),
    /// The names are right, the types are not; wasmtime's words.
    OtherShape(String),
    /// Compiling failed.
    NotCompiled(String),
    /// The host itself could not go on.
    Host(String),
    /// `describe` gave no answer.
    Describe(CallError),
    /// What `describe` says can't be used; every reason.
    Descriptor(Vec<String>),
    /// It asks for what nobody granted.
    NotGranted(Ungranted),
    /// It can't take the place of the module that runs; every reason.
    Incompatible(Vec<String>),
}

impl Problem {
    pub(crate) fn unreadable(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

const BUILD: &str =
    "build it with `cargo build --target wasm32-unknown-unknown` (or wasm32-wasip2) and pass the .wasm file";

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => write!(f, "no such file; build the module first, or check the path"),
            Self::Unreadable(error) => write!(f, "can't be read: {error}"),
            Self::Directory => {
                write!(f, "is a directory; pass the .wasm file in it (cargo writes to target/<target>/<profile>/)")
            }
            Self::NotAFile => write!(f, "is not a regular file; pass the path of a .wasm file"),
            Self::Empty => write!(f, "the file is empty; build the module again"),
            Self::TooLarge { limit } => {
                write!(
                    f,
                    "the file is larger than {} MiB; build with `--release`, and without debug information",
                    limit >> 20
                )
            }
            Self::NotWasm(why) => write!(f, "is not WebAssembly: {why}; {BUILD}"),
            Self::TextFormat => {
                write!(f, "is WebAssembly in text format; turn it into a binary first, with `wasm-tools parse`")
            }
            Self::Precompiled => write!(
                f,
                "is native code that wasmtime compiled (.cwasm); that can't be checked, so it is never run: pass the \
                 .wasm file it was made from"
            ),
            Self::UnknownVersion => write!(
                f,
                "is WebAssembly of a binary version that this host does not know; it runs core modules (version 1) and \
                 components"
            ),
            Self::Truncated { len } => {
                write!(f, "the file ends after {len} bytes, in the middle of something; copy or build it again")
            }
            Self::Invalid(detail) => write!(f, "is not valid WebAssembly: {detail}; build it again"),
            Self::NoMetadata => write!(
                f,
                "is a core module without wit-bindgen's metadata, so it can't be an operator module; it has to \
                 implement the world `operator:reconciler/reconciler` of contract {SPOKEN}, with the guest SDK or \
                 wit-bindgen"
            ),
            Self::Stripped => write!(
                f,
                "has lost its wit-bindgen metadata (the custom section `component-type`), as after wasm-strip or \
                 wasm-opt --strip; pass the file as cargo wrote it, or make it a component before stripping it"
            ),
            Self::UnreadableMetadata { bindgen, detail } => write!(
                f,
                "was built with {}, whose metadata this host can't read ({detail}); build it with wit-bindgen 0.61, \
                 or as a component (`--target wasm32-wasip2`), or use a newer host",
                bindgen.as_deref().unwrap_or("a wit-bindgen of another version")
            ),
            Self::NotComponentized { bindgen, detail } => write!(
                f,
                "can't be made into a component ({detail}); it was built with {}: build it with wit-bindgen 0.61, or \
                 as a component (`--target wasm32-wasip2`)",
                bindgen.as_deref().unwrap_or("an unknown wit-bindgen")
            ),
            Self::OtherWorld { missing, exports } => write!(
                f,
                "is a component of another world: it does not export {} of `operator:reconciler@{SPOKEN}` (it \
                 exports {}); implement the world `operator:reconciler/reconciler`{}",
                list(missing),
                if exports.is_empty() { "nothing".to_owned() } else { list(exports) },
                if exports.iter().any(|name| name.starts_with("wasi:cli/run")) {
                    ", as a library (crate-type cdylib), not as a program"
                } else {
                    ""
                }
            ),
            Self::OtherContract { name } => write!(
                f,
                "is built for another contract: it exports `{name}`, this host speaks operator:reconciler {SPOKEN}; \
                 use a host of that version, or build the module against {SPOKEN}"
            ),
            Self::UnsupportedHooks(hooks) => write!(
                f,
                "exports {}, hooks that this host does not call yet; use a newer host, or build without them",
                list(hooks)
            ),
            Self::UnknownHooks(hooks) => write!(
                f,
                "exports {}, unknown to this host, which speaks operator:reconciler {SPOKEN}; ignoring them could \
                 lose work that the module relies on: use a newer host",
                list(hooks)
            ),
            Self::UnknownImports(imports) => write!(
                f,
                "needs {}, which no module is given: there is `log` and `clock` of operator:reconciler {SPOKEN}, and \
                 WASI 0.2 without files and network (those are granted to modules with the hook `external` alone)",
                list(imports)
            ),
            Self::OtherShape(detail) => write!(
                f,
                "does not fit operator:reconciler {SPOKEN}: {detail}; build it against the wit of this host's version"
            ),
            Self::NotCompiled(detail) => write!(f, "can't be compiled: {detail}"),
            Self::Host(detail) => write!(f, "can't be loaded by this host: {detail}"),
            Self::Describe(error) => write!(f, "`describe` gave no answer ({}): {error}", error.reason()),
            Self::Descriptor(problems) => {
                write!(f, "what `describe` returns can't be used:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
            Self::NotGranted(ungranted) => {
                write!(f, "asks for what is not granted; if it may have it:")?;
                ungranted.reasons.iter().try_for_each(|reason| write!(f, "\n  - {reason}"))
            }
            Self::Incompatible(reasons) => {
                write!(f, "can't take the place of the module that runs: {}", reasons.join("; "))
            }
        }
    }
}

fn list(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}
