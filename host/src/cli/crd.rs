//! `operator crd`: the CustomResourceDefinitions that a module brings.

use super::modules::ModuleArgs;
use super::{print, say};
use anyhow::Context as _;
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct CrdArgs {
    #[command(flatten)]
    modules: ModuleArgs,
}

/// Prints a stream of JSON documents, which `kubectl apply -f -` takes as it takes YAML.
pub(super) fn run(args: &CrdArgs) -> anyhow::Result<()> {
    let loaded = args.modules.look_at()?;
    loaded.check()?;
    for module in &loaded.modules {
        let descriptor = module.descriptor();
        if descriptor.crds.is_empty() {
            say(&format!(
                "module {:?} brings no CustomResourceDefinition; {} must come from elsewhere",
                descriptor.name, descriptor.primary
            ));
        }
        for crd in &descriptor.crds {
            let crd: serde_json::Value = serde_json::from_str(crd).context("a CRD of the module is not valid JSON")?;
            print(&format!("{crd:#}\n"))?;
        }
    }
    Ok(())
}
