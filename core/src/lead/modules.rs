//! Which modules a holder runs, as the Lease tells it: an older one does not quietly take everything back.

use semver::Version;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A module as the Lease's annotation names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleVersion {
    /// The module's name.
    pub name: String,
    /// Its semantic version.
    pub version: String,
    /// Digest of its file.
    pub digest: String,
}

/// A module that is older than the one that the last holder ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Older {
    /// The module's name.
    pub name: String,
    /// The version of this process.
    pub ours: String,
    /// The version of the last holder.
    pub theirs: String,
}

impl fmt::Display for Older {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "module {} is {} here and {} there", self.name, self.ours, self.theirs)
    }
}

/// Those of `ours` that are older than what `theirs` has under the same name. An equal version of another digest is not, nor is one that
/// differs in build metadata alone.
pub(super) fn older(ours: &[ModuleVersion], theirs: &[ModuleVersion]) -> Vec<Older> {
    let is_older = |our: &ModuleVersion, their: &ModuleVersion| {
        let versions = Version::parse(&our.version).ok().zip(Version::parse(&their.version).ok());
        our.name == their.name && versions.is_some_and(|(our, their)| our.cmp_precedence(&their).is_lt())
    };
    let older_than = |our: &ModuleVersion| {
        let their = theirs.iter().find(|their| is_older(our, their))?;
        Some(Older { name: our.name.clone(), ours: our.version.clone(), theirs: their.version.clone() })
    };
    ours.iter().filter_map(older_than).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, version: &str, digest: &str) -> ModuleVersion {
        ModuleVersion { name: name.into(), version: version.into(), digest: digest.into() }
    }

    #[test]
    fn older_is_a_lower_version_of_the_same_module() {
        let is_older =
            |ours, theirs| !older(&[module("webapp", ours, "a")], &[module("webapp", theirs, "b")]).is_empty();
        assert!(is_older("1.9.0", "1.10.0"));
        assert!(is_older("1.0.0-rc.1", "1.0.0"));
        for (ours, theirs) in [("1.0.0", "1.0.0"), ("1.0.0+a", "1.0.0+b"), ("2.0.0", "1.0.0"), ("1.0.0", "unversioned")]
        {
            assert!(!is_older(ours, theirs), "{ours} is not older than {theirs}");
        }
        assert_eq!(older(&[module("webapp", "1.0.0", "a")], &[module("other", "2.0.0", "b")]), []);
    }
}
