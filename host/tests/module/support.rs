//! Guests, built once a run, and calls of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use operator_core::contract::{Key, ObjectName, Outcome, Snapshot};
use operator_host::module::{CallReport, Limits, LoadError, Module, Runtime, RuntimeOptions};
use serde_json::{Value, json};

/// A fixture of `guest-fixtures/`, such as `probe` or `variant-sound`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = scratch("fixtures");
        run(Command::new(workspace().join("guest-fixtures/build.sh")).arg(&folder).env("CARGO_TARGET_DIR", target()));
        folder
    });
    folder.join(format!("{name}.wasm"))
}

/// The WebApp module, as `cargo build --target` leaves it.
pub(crate) fn webapp(target_triple: &str) -> PathBuf {
    run(Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args(["build", "--quiet", "--profile", "guest", "-p", "webapp", "--target", target_triple, "--target-dir"])
        .arg(target()));
    target().join(target_triple).join("guest/webapp.wasm")
}

/// A folder for the files of one test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned()
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

pub(crate) fn options() -> RuntimeOptions {
    RuntimeOptions {
        cache: Some(scratch("module-cache")),
        compiler: Some(env!("CARGO_BIN_EXE_operator").into()),
        ..RuntimeOptions::default()
    }
}

pub(crate) fn load(path: &Path) -> Result<Arc<Module>, LoadError> {
    Runtime::new(options()).unwrap().load(&[path.to_owned()]).remove(0)
}

/// A fixture with limits of a test's choice.
pub(crate) fn limited(name: &str, limits: Limits) -> Arc<Module> {
    let runtime = Runtime::new(RuntimeOptions { limits, ..options() }).unwrap();
    runtime.load(&[fixture(name)]).remove(0).unwrap()
}

pub(crate) fn key() -> Key {
    Key { name: ObjectName::new(Some("shop"), "shop"), uid: "5f0c1f9e".into() }
}

/// The snapshot of a Probe without children.
pub(crate) fn probe(spec: Value) -> Snapshot {
    let primary = json!({
        "apiVersion": "fixtures.example.com/v1",
        "kind": "Probe",
        "metadata": {"namespace": "shop", "name": "shop", "uid": "5f0c1f9e", "generation": 1},
        "spec": spec,
    });
    Snapshot {
        primary: primary.to_string().into(),
        children: vec![],
        related: vec![],
        observation: None,
        unavailable: vec![],
    }
}

/// Calls the probe; the clock stands at 1 s after the epoch.
pub(crate) fn behave(module: &Module, behaviour: &str) -> CallReport {
    module.reconcile(&key(), &probe(json!({"behaviour": behaviour})), 1_000)
}

#[track_caller]
pub(crate) fn outcome(report: CallReport) -> Outcome {
    report.result.expect("the call ends well").expect("the module says what it wants")
}

/// What the probe's sandbox behaviours learned.
#[track_caller]
pub(crate) fn learned(report: CallReport) -> Value {
    let fields = outcome(report).status.expect("a status").fields;
    serde_json::from_str::<Value>(&fields).unwrap()["learned"].take()
}

/// Makes a bad call while two other threads make good ones; all of theirs must succeed.
#[track_caller]
pub(crate) fn beside_healthy(module: &Module, bad: impl FnOnce() -> CallReport) -> CallReport {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let healthy = || {
            let mut calls = 0;
            while !done.load(Ordering::Relaxed) || calls < 50 {
                outcome(behave(module, "ok"));
                calls += 1;
            }
        };
        let beside = [scope.spawn(healthy), scope.spawn(healthy)];
        let report = bad();
        done.store(true, Ordering::Relaxed);
        for thread in beside {
            thread.join().expect("healthy calls beside a bad one succeed");
        }
        report
    })
}
