//! Modules under test, built from this workspace.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::sync::OnceCell;

const TARGET: &str = "wasm32-unknown-unknown";
const PROFILE: &str = "guest";

/// The WebApp module, built once for all tests of this process.
///
/// # Errors
/// When it does not build.
pub async fn webapp() -> crate::Result<&'static Path> {
    static MODULE: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(MODULE.get_or_try_init(|| build("webapp")).await?)
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
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = target_folder()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = tokio::process::Command::new(cargo)
        .current_dir(&workspace)
        .args(["build", "--profile", PROFILE, "--quiet", "--target", TARGET, "-p", package])
        .arg("--target-dir")
        .arg(&target)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("cannot run cargo")?;
    ensure!(status.success(), "{package} did not build for {TARGET}: {status}");
    let file = target.join(TARGET).join(PROFILE).join(format!("{}.wasm", package.replace('-', "_")));
    ensure!(file.is_file(), "{package} built no {}", file.display());
    Ok(file)
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
