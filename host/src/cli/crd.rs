//! `operator crd`: the CustomResourceDefinitions that a module brings.

use super::LimitArgs;
use super::host::load;
use crate::module::Runtime;
use anyhow::{Context as _, bail};
use clap::Args;
use std::io::Write as _;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct CrdArgs {
    /// File of a module. May be given several times
    #[arg(
        long = "module",
        env = "OPERATOR_MODULE",
        value_name = "FILE",
        required = true,
        value_delimiter = ',',
        help_heading = "Modules"
    )]
    modules: Vec<PathBuf>,
    #[command(flatten)]
    limits: LimitArgs,
}

/// Prints a stream of JSON documents, which `kubectl apply -f -` takes as it takes YAML.
pub(super) fn run(args: &CrdArgs) -> anyhow::Result<()> {
    let (modules, errors) = load(&Runtime::new(args.limits.runtime(1))?, &args.modules);
    if !errors.is_empty() {
        bail!("{}", errors.join("\nerror: "));
    }
    let mut out = std::io::stdout().lock();
    for module in modules {
        let descriptor = module.descriptor();
        if descriptor.crds.is_empty() {
            eprintln!(
                "module {:?} brings no CustomResourceDefinition; {} must come from elsewhere",
                descriptor.name, descriptor.primary
            );
        }
        for crd in &descriptor.crds {
            let crd: serde_json::Value = serde_json::from_str(crd).context("a CRD of the module is not valid JSON")?;
            serde_json::to_writer_pretty(&mut out, &crd)?;
            writeln!(out)?;
        }
    }
    Ok(())
}
