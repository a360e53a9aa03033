//! From a path to the bytes of a component.
//!
//! In: a file that a user names. Out: [`Source`]: its digest, what kind of file it was, and a component that is valid
//! and complete, whichever of the accepted kinds it came from.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Encoding, Parser, Payload, ProducersSectionReader, Validator, WasmFeatures};
use wasmtime::Engine;
use wit_component::ComponentEncoder;

use crate::module::preflight::Problem;

/// Largest file read.
pub(crate) const MAX_FILE: u64 = 64 << 20;

/// What kind of file a module came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// A component.
    Component,
    /// A core module with wit-bindgen's metadata, made into a component here.
    CoreModule,
    /// The same, that also calls WASI preview 1; an adapter was added.
    CoreModuleWithWasi,
}

impl ModuleKind {
    /// As `operator inspect` shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::CoreModule => "core module",
            Self::CoreModuleWithWasi => "core module with WASI preview 1",
        }
    }
}

/// A component, and the file that it came from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) digest: [u8; 32],
    pub(crate) kind: ModuleKind,
    pub(crate) component: Vec<u8>,
}

impl Source {
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Self, Problem> {
        let digest = Sha256::digest(&bytes).into();
        let (kind, component) = match sniff(&bytes)? {
            Encoding::Component => {
                validate(&bytes)?;
                (ModuleKind::Component, bytes)
            }
            Encoding::Module => {
                validate(&bytes)?;
                componentize(&bytes)?
            }
        };
        Ok(Self { digest, kind, component })
    }
}

/// All of a file, if it is one and not too large.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Problem> {
    let metadata = std::fs::metadata(path).map_err(Problem::unreadable)?;
    if metadata.is_dir() {
        return Err(Problem::Directory);
    }
    if !metadata.is_file() {
        return Err(Problem::NotAFile);
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(Problem::unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Problem::TooLarge { limit: MAX_FILE });
    }
    Ok(bytes)
}

/// What the first bytes say.
fn sniff(bytes: &[u8]) -> Result<Encoding, Problem> {
    if bytes.is_empty() {
        return Err(Problem::Empty);
    }
    if Engine::detect_precompiled(bytes).is_some() {
        return Err(Problem::Precompiled);
    }
    match bytes {
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Ok(Encoding::Module),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(Encoding::Component),
        [0, b'a', b's', b'm', _, _, _, _, ..] => Err(Problem::UnknownVersion),
        [0, b'a', b's', b'm', ..] => Err(Problem::Truncated { len: bytes.len() }),
        [0x1f, 0x8b, ..] => Err(Problem::NotWasm("it is gzip-compressed")),
        [b'P', b'K', 3, 4, ..] => Err(Problem::NotWasm("it is a zip archive")),
        [0x7f, b'E', b'L', b'F', ..] => Err(Problem::NotWasm("it is a native program")),
        _ if is_text_format(bytes) => Err(Problem::TextFormat),
        _ => Err(Problem::NotWasm("it does not begin with the bytes `\\0asm`")),
    }
}

fn is_text_format(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    text.starts_with(b"(module") || text.starts_with(b"(component") || text.starts_with(b";;")
}

fn validate(bytes: &[u8]) -> Result<(), Problem> {
    match Validator::new_with_features(WasmFeatures::default()).validate_all(bytes) {
        Ok(_) => Ok(()),
        Err(error) if error.message().contains("unexpected end") => Err(Problem::Truncated { len: bytes.len() }),
        Err(error) => Err(Problem::Invalid(error.to_string())),
    }
}

/// What a core module says of how it was built.
#[derive(Debug, Default)]
struct Built {
    metadata: bool,
    wasi_preview1: bool,
    contract_symbols: bool,
    bindgen: Option<String>,
}

impl Built {
    fn of(bytes: &[u8]) -> Self {
        let mut built = Self::default();
        for payload in Parser::new(0).parse_all(bytes).map_while(Result::ok) {
            match payload {
                Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                    built.metadata = true;
                    built.bindgen = built.bindgen.or_else(|| bindgen_version(section.data()));
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports().map_while(Result::ok) {
                        built.wasi_preview1 |= import.module == WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
                        built.contract_symbols |= import.module.starts_with("operator:reconciler/");
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports.into_iter().map_while(Result::ok) {
                        built.contract_symbols |= export.name.contains("operator:reconciler/");
                    }
                }
                _ => {}
            }
        }
        built
    }
}

/// wit-bindgen notes its version in the metadata, which is itself a small component.
fn bindgen_version(metadata: &[u8]) -> Option<String> {
    for payload in Parser::new(0).parse_all(metadata).map_while(Result::ok) {
        let Payload::CustomSection(section) = payload else { continue };
        if section.name() != "producers" {
            continue;
        }
        let producers = ProducersSectionReader::new(wasmparser::BinaryReader::new(section.data(), 0)).ok()?;
        for field in producers.into_iter().map_while(Result::ok) {
            for value in field.values.into_iter().map_while(Result::ok) {
                if value.name.starts_with("wit-bindgen") {
                    return Some(format!("{} {}", value.name, value.version));
                }
            }
        }
    }
    None
}

/// Makes a core module that wit-bindgen's metadata describes into a component, as `cargo component` would.
fn componentize(bytes: &[u8]) -> Result<(ModuleKind, Vec<u8>), Problem> {
    let built = Built::of(bytes);
    if !built.metadata {
        return Err(if built.contract_symbols { Problem::Stripped } else { Problem::NoMetadata });
    }
    wit_component::metadata::decode(bytes).map_err(|error| Problem::UnreadableMetadata {
        bindgen: built.bindgen.clone(),
        detail: format!("{error:#}"),
    })?;
    let component = encode(bytes, built.wasi_preview1)
        .map_err(|error| Problem::NotComponentized { bindgen: built.bindgen, detail: format!("{error:#}") })?;
    let kind = if built.wasi_preview1 { ModuleKind::CoreModuleWithWasi } else { ModuleKind::CoreModule };
    Ok((kind, component))
}

fn encode(bytes: &[u8], wasi_preview1: bool) -> anyhow::Result<Vec<u8>> {
    let mut encoder = ComponentEncoder::default().validate(true).module(bytes)?;
    if wasi_preview1 {
        encoder = encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?;
    }
    encoder.encode()
}
