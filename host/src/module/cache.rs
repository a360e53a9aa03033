//! Compiled modules on disk.
//!
//! In: a component's digest and the engine's. Out: an open file whose content is what was once compiled from exactly
//! that, or nothing. The folder is ours alone (0700); a manifest beside each file holds both digests; the open file is
//! hashed, and that same open file is then mapped. Whatever is odd is a miss, never an error.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;

use crate::module::compile::Compiler;

/// Compiled modules kept; the ones not used for longest go.
const ENTRIES: usize = 64;
/// Age at which another process's scratch file is taken for left behind.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Longest manifest read.
const MANIFEST_BYTES: u64 = 4 << 10;

/// A folder of compiled modules.
#[derive(Debug)]
pub(crate) struct ModuleCache {
    folder: PathBuf,
    /// Made for this process and removed with it.
    private: bool,
}

/// What a compiled file was made from and must hash to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    wasm: String,
    engine: String,
    compiled: String,
}

impl ModuleCache {
    /// The folder that was asked for, else the user's cache folder; where neither can be ours, a temporary one.
    pub(crate) fn open(wanted: Option<&Path>) -> io::Result<Self> {
        let folder = match wanted {
            Some(folder) => Some(folder.to_owned()),
            None => default_folder(),
        };
        let reason = match &folder {
            Some(folder) => match claim(folder) {
                Ok(()) => return Ok(Self { folder: folder.clone(), private: false }),
                Err(error) => format!("{}: {error}", folder.display()),
            },
            None => "neither XDG_CACHE_HOME nor HOME is set".to_owned(),
        };
        let folder = temporary()?;
        tracing::info!(
            reason,
            "compiled modules are not kept for the next start; --module-cache names a folder that can hold them"
        );
        Ok(Self { folder, private: true })
    }

    /// The component's native code, from the cache or compiled now. The error says why it can't be compiled.
    pub(crate) fn get(&self, component: &[u8], engine: &Engine, compiler: &Compiler) -> Result<File, String> {
        let (wasm, engine) = (hex(&Sha256::digest(component)), engine_key(engine));
        if let Some(file) = self.lookup(&wasm, &engine) {
            return Ok(file);
        }
        let file = self.compile(component, &wasm, &engine, compiler)?;
        self.prune();
        Ok(file)
    }

    fn lookup(&self, wasm: &str, engine: &str) -> Option<File> {
        let entry = self.entry(wasm, engine);
        let mut text = String::new();
        File::open(entry.with_extension("json")).ok()?.take(MANIFEST_BYTES).read_to_string(&mut text).ok()?;
        let manifest: Manifest = serde_json::from_str(&text).ok()?;
        let mut file = File::open(entry.with_extension("cwasm")).ok()?;
        let compiled = digest_of(&mut file).ok()?;
        if manifest != (Manifest { wasm: wasm.into(), engine: engine.into(), compiled }) {
            return None;
        }
        // The time tells which entries are in use; failing to set it only makes this one look old.
        let _ = File::open(entry.with_extension("json")).and_then(|file| file.set_modified(SystemTime::now()));
        Some(file)
    }

    fn compile(&self, component: &[u8], wasm: &str, engine: &str, compiler: &Compiler) -> Result<File, String> {
        let mark = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        let scratch = Scratch::new(&self.folder, &mark);
        let in_cache = |error: io::Error| format!("{}: {error}", self.folder.display());
        write_new(&scratch.wasm, component).map_err(in_cache)?;
        compiler.run(&scratch.wasm, &scratch.cwasm)?;
        let mut file = File::open(&scratch.cwasm).map_err(in_cache)?;
        let compiled = digest_of(&mut file).map_err(in_cache)?;
        // From here on only the next start would lose something.
        let manifest = Manifest { wasm: wasm.into(), engine: engine.into(), compiled };
        if let Err(error) = self.publish(&scratch, &manifest) {
            tracing::warn!(%error, folder = %self.folder.display(), "a compiled module could not be kept");
        }
        Ok(file)
    }

    /// Code first, then the manifest: a manifest without its code, or with another's, is a miss.
    fn publish(&self, scratch: &Scratch, manifest: &Manifest) -> io::Result<()> {
        let entry = self.entry(&manifest.wasm, &manifest.engine);
        write_new(&scratch.json, &serde_json::to_vec(manifest)?)?;
        fs::rename(&scratch.cwasm, entry.with_extension("cwasm"))?;
        fs::rename(&scratch.json, entry.with_extension("json"))
    }

    /// Removes the entries that were not used for longest, beyond [`ENTRIES`], and what a killed process left.
    fn prune(&self) {
        let Ok(files) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<(SystemTime, PathBuf)> = files
            .filter_map(|file| Some(file.ok()?.path()))
            .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
            .collect();
        files.sort();
        let is = |path: &Path, extension: &str| path.extension().is_some_and(|found| found == extension);
        let surplus = files.iter().filter(|(_, path)| is(path, "json")).count().saturating_sub(ENTRIES);
        for (_, manifest) in files.iter().filter(|(_, path)| is(path, "json")).take(surplus) {
            let _ = fs::remove_file(manifest);
            let _ = fs::remove_file(manifest.with_extension("cwasm"));
        }
        let old = |time: &SystemTime| time.elapsed().is_ok_and(|age| age > ABANDONED);
        for (_, path) in files.iter().filter(|(time, path)| is_scratch(path) && old(time)) {
            let _ = fs::remove_file(path);
        }
    }

    fn entry(&self, wasm: &str, engine: &str) -> PathBuf {
        self.folder.join(format!("{wasm}-{engine}"))
    }
}

impl Drop for ModuleCache {
    fn drop(&mut self) {
        if self.private {
            // Code that is mapped stays mapped.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Files of one compilation; what is still there afterwards is removed.
struct Scratch {
    wasm: PathBuf,
    cwasm: PathBuf,
    json: PathBuf,
}

impl Scratch {
    fn new(folder: &Path, mark: &str) -> Self {
        let file = |kind: &str| folder.join(format!("tmp-{mark}.{kind}"));
        Self { wasm: file("wasm"), cwasm: file("cwasm-tmp"), json: file("json-tmp") }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for file in [&self.wasm, &self.cwasm, &self.json] {
            let _ = fs::remove_file(file);
        }
    }
}

fn is_scratch(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"tmp-"))
}

fn default_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("operator-host").join("modules"))
}

/// Makes the folder, or makes sure that an existing one is ours alone and can be written to.
fn claim(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Err(io::Error::other("belongs to somebody else"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    let probe = folder.join(format!("tmp-{:016x}", fastrand::u64(..)));
    write_new(&probe, b"")?;
    fs::remove_file(probe)
}

fn temporary() -> io::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("operator-host-{:016x}", fastrand::u64(..)));
    DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

fn digest_of(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut hash = Sha256::new();
    io::copy(file, &mut hash)?;
    Ok(hex(&hash.finalize()))
}

/// wasmtime's version and settings in short; it compares all, and what the processor can do, when it maps a file.
fn engine_key(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
