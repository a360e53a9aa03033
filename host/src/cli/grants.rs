//! What modules may reach outside the cluster: the flag, and what is wrong with what it says.

use super::modules::Loaded;
use crate::module::{Grant, Grants};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct GrantArgs {
    /// Let modules that ask for the capability NAME have something outside the cluster: [MODULE/]NAME:dir=PATH[:ro],
    /// [MODULE/]NAME:env=KEY or [MODULE/]NAME:http=HOST[:PORT]. May be given several times
    #[arg(
        long = "grant",
        env = "OPERATOR_GRANT",
        value_name = "NAME:KIND=VALUE",
        value_delimiter = ',',
        help_heading = "Modules"
    )]
    grants: Vec<Grant>,
}

impl GrantArgs {
    pub(super) fn grants(&self) -> Grants {
        self.grants.clone().into()
    }
}

/// What is wrong with grants, once the modules are loaded that ask for them.
pub(super) fn problems(grants: &Grants, loaded: &Loaded) -> Vec<String> {
    let mut problems = grants.problems();
    // A module that failed for another reason may be the one that asks.
    if loaded.errors.len() == loaded.ungranted.len() {
        let modules = loaded.modules.iter().map(|module| module.descriptor());
        problems.extend(grants.unused(modules, &loaded.ungranted));
    }
    problems
}
