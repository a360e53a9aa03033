//! The cache of compiled modules: only what was compiled from exactly this file is ever mapped.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use operator_host::module::{Problem, Runtime, RuntimeOptions};

use crate::support::{fixture, options, scratch};

/// A compiler that can't: what loads under it came from the cache.
const NO_COMPILER: &str = "/bin/false";

fn empty(name: &str) -> PathBuf {
    let folder = scratch(name);
    fs::remove_dir_all(&folder).unwrap();
    folder
}

fn load(cache: &Path, compiler: Option<&str>) -> Result<(), Problem> {
    let mut options = RuntimeOptions { cache: Some(cache.to_owned()), ..options() };
    if let Some(compiler) = compiler {
        options.compiler = Some(compiler.into());
    }
    let loaded = Runtime::new(options).unwrap().load(&[fixture("variant-sound")]).remove(0);
    loaded.map(drop).map_err(|error| error.problem)
}

fn entry(cache: &Path, extension: &str) -> PathBuf {
    let mut entries = fs::read_dir(cache).unwrap().map(|file| file.unwrap().path());
    entries.find(|path| path.extension().is_some_and(|found| found == extension)).expect("an entry")
}

#[test]
fn a_module_is_compiled_once_and_then_mapped() {
    let cache = empty("cache-once");
    load(&cache, None).unwrap();
    load(&cache, Some(NO_COMPILER)).unwrap();
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 2, "code and manifest, nothing left over");
}

#[test]
fn changed_code_is_a_miss() {
    let cache = empty("cache-changed");
    load(&cache, None).unwrap();
    let code = entry(&cache, "cwasm");
    let mut bytes = fs::read(&code).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&code, bytes).unwrap();
    assert!(matches!(load(&cache, Some(NO_COMPILER)), Err(Problem::NotCompiled(_))));
    load(&cache, None).unwrap();
    load(&cache, Some(NO_COMPILER)).unwrap();
}

#[test]
fn whatever_is_odd_about_an_entry_is_a_miss() {
    let cache = empty("cache-odd");
    let spoil: [fn(&Path); 4] = [
        |cache| fs::write(entry(cache, "json"), "{").unwrap(),
        |cache| fs::write(entry(cache, "cwasm"), "").unwrap(),
        |cache| fs::remove_file(entry(cache, "cwasm")).unwrap(),
        |cache| fs::remove_file(entry(cache, "json")).unwrap(),
    ];
    for spoil in spoil {
        load(&cache, None).unwrap();
        spoil(&cache);
        assert!(load(&cache, Some(NO_COMPILER)).is_err());
    }
}

#[test]
fn a_folder_that_others_may_read_is_closed_to_them() {
    let cache = empty("cache-open");
    fs::create_dir_all(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    load(&cache, None).unwrap();
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_folder_that_cant_be_made_is_no_reason_not_to_run() {
    load(Path::new("/proc/nowhere/modules"), None).unwrap();
}

#[test]
fn entries_are_bounded() {
    let cache = empty("cache-bounded");
    fs::create_dir_all(&cache).unwrap();
    for n in 0..80 {
        fs::write(cache.join(format!("old-{n}.json")), "{}").unwrap();
        fs::write(cache.join(format!("old-{n}.cwasm")), "").unwrap();
    }
    load(&cache, None).unwrap();
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 2 * 64);
    load(&cache, Some(NO_COMPILER)).unwrap();
}
