//! The modules that a command works on, and the limits that they run under: the same flags for every command that loads some.

use super::units;
use crate::module::{Grants, Limits, Module, Problem, Runtime, RuntimeOptions, Ungranted};
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct ModuleArgs {
    /// File of a module: a component, or a core module built with wit-bindgen. May be given several times
    #[arg(
        long = "module",
        env = "OPERATOR_MODULE",
        value_name = "FILE",
        required = true,
        value_delimiter = ',',
        help_heading = "Modules"
    )]
    pub(super) files: Vec<PathBuf>,

    /// Longest call of a module, by the clock on the wall
    #[arg(long, env = "OPERATOR_TIMEOUT", value_name = "DURATION", default_value = "5s", value_parser = units::some_time, help_heading = "Module limits")]
    timeout: Duration,
    /// Longest call that works outside the cluster (the hook `external`), waiting included
    #[arg(long, env = "OPERATOR_EXTERNAL_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = units::some_time, help_heading = "Module limits")]
    external_timeout: Duration,
    /// Most CPU time that a call of a module may use
    #[arg(long, env = "OPERATOR_CPU_TIMEOUT", value_name = "DURATION", default_value = "1s", value_parser = units::some_time, help_heading = "Module limits")]
    cpu_timeout: Duration,
    /// Most memory that one instance of a module may have
    #[arg(long, env = "OPERATOR_MAX_MEMORY", value_name = "SIZE", default_value = "64Mi", value_parser = units::size, help_heading = "Module limits")]
    max_memory: usize,
    /// Folder of compiled modules; created with mode 0700 [default: operator-host/modules in the user's cache folder]
    #[arg(long, env = "OPERATOR_MODULE_CACHE", value_name = "DIR", help_heading = "Module limits")]
    module_cache: Option<PathBuf>,
}

/// What came of the files.
pub(super) struct Loaded {
    /// Loads those that come later.
    pub(super) runtime: Runtime,
    pub(super) modules: Vec<Arc<Module>>,
    /// One for each file that failed, which it names.
    pub(super) errors: Vec<String>,
    /// Those that failed for want of a grant.
    pub(super) ungranted: Vec<Ungranted>,
}

impl ModuleArgs {
    /// Loads every file to be looked at: what it asks for outside the cluster need not be granted.
    ///
    /// # Errors
    /// Nothing can be loaded on this machine.
    pub(super) fn look_at(&self) -> anyhow::Result<Loaded> {
        self.load_with(1, None)
    }

    /// Loads every file to be run, for so many threads that call modules at the same time.
    ///
    /// # Errors
    /// Nothing can be loaded on this machine.
    pub(super) fn load(&self, callers: u32, grants: &Grants) -> anyhow::Result<Loaded> {
        self.load_with(callers, Some(grants))
    }

    fn load_with(&self, callers: u32, grants: Option<&Grants>) -> anyhow::Result<Loaded> {
        let limits = Limits {
            cpu: self.cpu_timeout,
            wall: self.timeout,
            external: self.external_timeout,
            memory: self.max_memory,
            ..Limits::default()
        };
        let (grants, cache) = (grants.cloned(), self.module_cache.clone());
        let runtime = Runtime::new(RuntimeOptions { limits, callers, grants, cache, compiler: None })?;
        let mut modules = Vec::new();
        let (mut errors, mut ungranted) = (Vec::new(), Vec::new());
        for result in runtime.load(&self.files) {
            match result {
                Ok(module) => modules.push(module),
                Err(error) => {
                    errors.push(error.to_string());
                    if let Problem::NotGranted(module) = error.problem {
                        ungranted.push(module);
                    }
                }
            }
        }
        Ok(Loaded { runtime, modules, errors, ungranted })
    }
}

impl Loaded {
    /// Whether every file is a module now.
    ///
    /// # Errors
    /// What failed, one file a line.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if !self.errors.is_empty() {
            bail!("{}", self.errors.join("\nerror: "));
        }
        Ok(())
    }
}
