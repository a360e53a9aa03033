//! Modules under test, built from this workspace.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};

const TARGET: &str = "wasm32-unknown-unknown";
const PROFILE: &str = "guest";

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
