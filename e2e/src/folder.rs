//! Temporary folders: one per test process, with one inside per cluster or host, all removed at the end.
//!
//! `OPERATOR_E2E_KEEP=1` keeps them, so that logs can be read after a failure.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;

use crate::process;

/// A folder that disappears when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a new empty folder whose name starts with `name`.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn new(name: &str) -> crate::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = process::scratch()?.join(format!("{name}-{number}"));
        fs::create_dir_all(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    /// Writes a file in this folder and returns its path. Who reads it meanwhile sees the old content or the new one.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> crate::Result<PathBuf> {
        let path = self.0.join(name);
        let new = self.0.join(format!(".{name}-{:016x}", fastrand::u64(..)));
        let written = fs::write(&new, content).and_then(|()| fs::rename(&new, &path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !process::keeps_files() {
            // What is left over goes with the process's folder.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Copies a folder with all that is in it.
///
/// # Errors
/// When something can't be read or written.
pub fn copy(from: &Path, to: &Path) -> crate::Result<()> {
    let context = || format!("cannot copy {} to {}", from.display(), to.display());
    fs::create_dir_all(to).with_context(context)?;
    for entry in fs::read_dir(from).with_context(context)? {
        let entry = entry.with_context(context)?;
        let target = to.join(entry.file_name());
        if entry.file_type().with_context(context)?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target).with_context(context)?;
        }
    }
    Ok(())
}
