//! The programs of the control plane, built on first use.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};

/// Runs `hack/control-plane/build.sh` and returns the folder with the programs.
///
/// What it says goes to this process's stderr: a first build takes minutes.
pub(super) async fn build(all: bool) -> crate::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/control-plane/build.sh");
    let output = tokio::process::Command::new(&script)
        .arg(if all { "--all" } else { "--bare" })
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run {}", script.display()))?;
    ensure!(output.status.success(), "{} failed: {}", script.display(), output.status);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let bin = stdout.lines().last().unwrap_or_default();
    ensure!(Path::new(bin).is_dir(), "{} named no folder of programs", script.display());
    Ok(PathBuf::from(bin))
}
