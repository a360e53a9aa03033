//! The WebApp module built from a copy of its source in which a few lines are changed, as its author would change them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use operator_e2e::{Result, folder, modules};

const PACKAGE: &str = "guest-webapp";

/// A line in a file of the package, wherever it stands, and the line in its place.
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) before: &'static str,
    pub(crate) after: &'static str,
}

/// Makes the edits in a copy of the source, shows them, and builds it.
///
/// The copy and what is built of it stay, so that the next time only the package itself is compiled.
pub(crate) async fn build(edits: &[Edit]) -> Result<PathBuf> {
    let folder = modules::target_folder()?.join("demo");
    let workspace = folder.join("source");
    copy_workspace(&workspace)?;
    for edit in edits {
        edit.make(&workspace.join(PACKAGE))?;
    }
    println!("$ cargo build --profile guest --target wasm32-unknown-unknown -p webapp");
    modules::build_in(&workspace, &folder.join("target"), "webapp").await
}

/// The workspace as it is; of its folders only the package is a copy.
fn copy_workspace(to: &Path) -> Result<()> {
    let from = modules::workspace();
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    folder::copy(&from.join(PACKAGE), &to.join(PACKAGE))?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(from.join(name), to.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    for entry in fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))? {
        // Members lie in folders, some of them deeper down.
        let folder = entry?.path();
        let link = to.join(folder.file_name().unwrap_or_default());
        if folder.is_dir() && !link.exists() {
            symlink(&folder, &link).with_context(|| format!("cannot make the link {}", link.display()))?;
        }
    }
    Ok(())
}

impl Edit {
    fn make(&self, package: &Path) -> Result<()> {
        let Self { file, before, after } = *self;
        let path = package.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let edited: String = text.lines().map(|line| self.edited(line) + "\n").collect();
        ensure!(edited != text, "{PACKAGE}/{file} has no line {before}");
        fs::write(&path, edited).with_context(|| format!("cannot write {}", path.display()))?;
        println!("  {PACKAGE}/{file}\n  - {before}\n  + {after}");
        Ok(())
    }

    fn edited(&self, line: &str) -> String {
        let indent = line.len() - line.trim_start().len();
        if line.trim() == self.before { format!("{}{}", &line[..indent], self.after) } else { line.to_owned() }
    }
}
