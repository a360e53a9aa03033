//! Modules under test, built from this workspace.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::sync::OnceCell;

/// The smallest, for modules that only answer.
const TARGET: &str = "wasm32-unknown-unknown";
/// Has files, for modules that work outside.
const WASI_TARGET: &str = "wasm32-wasip2";
const PROFILE: &str = "guest";
/// Bytes of a plan, spaces at the end included.
const PLAN_LEN: usize = 512;

/// The WebApp module, built once for all tests of this process.
///
/// # Errors
/// When it does not build.
pub async fn webapp() -> crate::Result<&'static Path> {
    static MODULE: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(MODULE.get_or_try_init(|| build("webapp")).await?)
}

/// The WebApp module of `examples/webapp-apps`, built once for all tests of this process.
///
/// # Errors
/// When it does not build.
pub async fn webapp_apps() -> crate::Result<&'static Path> {
    static MODULE: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(MODULE.get_or_try_init(|| build("webapp-apps")).await?)
}

/// The StaticSite module, built once for all tests of this process.
///
/// # Errors
/// When it does not build.
pub async fn staticsite() -> crate::Result<&'static Path> {
    static MODULE: OnceCell<PathBuf> = OnceCell::const_new();
    let build = || async { build_for(WASI_TARGET, &workspace(), &target_folder()?, "staticsite").await };
    Ok(MODULE.get_or_try_init(build).await?)
}

/// A module of `guest-fixtures`, such as `probe`; all of them are built once for all tests of this process.
///
/// # Errors
/// When they do not build, or there is none of that name.
pub async fn fixture(name: &str) -> crate::Result<PathBuf> {
    static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
    let file = FOLDER.get_or_try_init(build_fixtures).await?.join(format!("{name}.wasm"));
    ensure!(file.is_file(), "guest-fixtures has no module {name}");
    Ok(file)
}

/// Another build of the fixture `probe`: the same code with this plan (`guest-fixtures/probe/src/plan.rs`), as a file's content.
///
/// # Errors
/// When it does not build, or has no room for the plan.
pub async fn probe_with(plan: &Value) -> crate::Result<Vec<u8>> {
    const BEGINS: &[u8] = br#"{"plan": "#;
    let mut module = std::fs::read(fixture("probe").await?).context("cannot read the module")?;
    let at = module.windows(BEGINS.len()).position(|bytes| bytes == BEGINS).context("the module has no plan")?;
    let plan = plan.to_string();
    ensure!(plan.len() <= PLAN_LEN, "the plan has no room: {plan}");
    module[at..at + PLAN_LEN].copy_from_slice(format!("{plan:PLAN_LEN$}").as_bytes());
    Ok(module)
}

/// The same module as another file: a custom section more, which nothing reads.
#[must_use]
pub fn stamped(module: &[u8], stamp: &str) -> Vec<u8> {
    let name = b"stamp";
    let section = [&[name.len() as u8], &name[..], stamp.as_bytes()].concat();
    assert!(section.len() < 128, "the length takes one byte");
    [module, &[0, section.len() as u8], &section].concat()
}

async fn build_fixtures() -> crate::Result<PathBuf> {
    let target = target_folder()?;
    let folder = target.join("fixture-modules");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-fixtures/build.sh");
    let status = tokio::process::Command::new(script)
        .arg(&folder)
        .env("CARGO_TARGET_DIR", &target)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("cannot run guest-fixtures/build.sh")?;
    ensure!(status.success(), "the fixtures did not build: {status}");
    Ok(folder)
}

/// Builds a guest package of the workspace, such as `webapp`, for Wasm and returns the module's file.
///
/// # Errors
/// When it does not build.
pub async fn build(package: &str) -> crate::Result<PathBuf> {
    build_in(&workspace(), &target_folder()?, package).await
}

/// The same, of a workspace that lies elsewhere, into a target folder of its own.
///
/// # Errors
/// When it does not build.
pub async fn build_in(workspace: &Path, target: &Path, package: &str) -> crate::Result<PathBuf> {
    build_for(TARGET, workspace, target, package).await
}

async fn build_for(triple: &str, workspace: &Path, target: &Path, package: &str) -> crate::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = tokio::process::Command::new(cargo)
        .current_dir(workspace)
        .args(["build", "--profile", PROFILE, "--quiet", "--target", triple, "-p", package])
        .arg("--target-dir")
        .arg(target)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("cannot run cargo")?;
    ensure!(status.success(), "{package} did not build for {triple}: {status}");
    let file = target.join(triple).join(PROFILE).join(format!("{}.wasm", package.replace('-', "_")));
    ensure!(file.is_file(), "{package} built no {}", file.display());
    Ok(file)
}

/// The folder of this workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder that cargo builds into: `CARGO_TARGET_DIR`, else the one that this program lies in.
///
/// # Errors
/// When this program was not built by cargo.
pub fn target_folder() -> crate::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CARGO_TARGET_DIR") {
        return Ok(PathBuf::from(folder));
    }
    let exe = std::env::current_exe().context("where is this program?")?;
    let profile = exe.ancestors().find(|folder| folder.ends_with("debug") || folder.ends_with("release"));
    let target = profile.and_then(Path::parent).context("this program lies in no target folder of cargo")?;
    Ok(target.to_owned())
}
