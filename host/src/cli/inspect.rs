//! `operator inspect`: what a module is, without a cluster.

use super::grants::{self, GrantArgs};
use super::modules::ModuleArgs;
use super::print;
use crate::module::{Grants, Module, flag};
use anyhow::bail;
use clap::Args;
use operator_core::contract::{Capability, ChildType, Descriptor, OnImmutable, OnPrune, RelatedType};
use std::fmt::Write as _;

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    #[command(flatten)]
    modules: ModuleArgs,
    #[command(flatten)]
    grants: GrantArgs,
}

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let loaded = args.modules.look_at()?;
    let grants = args.grants.grants();
    for module in &loaded.modules {
        print(&describe(module, &grants)?)?;
    }
    loaded.check()?;
    let problems = grants::problems(&grants, &loaded);
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\nerror: ")) }
}

/// One block of `Name: value` lines, as `kubectl describe` writes them.
fn describe(module: &Module, grants: &Grants) -> Result<String, std::fmt::Error> {
    let descriptor = module.descriptor();
    let limits = module.limits();
    let mut text = String::new();
    // A name without text continues the one before.
    let mut line = |name: &str, value: &str| match name {
        "" => writeln!(text, "{:<18}{value}", ""),
        name => writeln!(text, "{:<18}{value}", format!("{name}:")),
    };
    line("Name", &descriptor.name)?;
    line("Version", &descriptor.version)?;
    line("Digest", &format!("sha256:{}", module.digest()))?;
    line("Kind", module.kind().as_str())?;
    line("Contract", &format!("operator:reconciler@{}", module.contract_version()))?;
    line("Primary", &descriptor.primary.to_string())?;
    list(&mut line, "Children", descriptor.children.iter().map(child))?;
    list(&mut line, "Related", descriptor.related.iter().map(related))?;
    list(&mut line, "Condition types", descriptor.condition_types.iter().cloned())?;
    list(&mut line, "Hooks", descriptor.hooks.iter().cloned())?;
    list(
        &mut line,
        "Capabilities",
        descriptor.capabilities.iter().flat_map(|asked| capability(asked, descriptor, grants)),
    )?;
    line("Finalizer", &descriptor.needed_finalizer().unwrap_or_else(|| "none".into()))?;
    line("Field manager", &descriptor.manager())?;
    line("CRDs", &descriptor.crds.len().to_string())?;
    list(&mut line, "Imports", module.imports().iter().cloned())?;
    list(&mut line, "Exports", module.exports().iter().cloned())?;
    line(
        "Limits",
        &format!(
            "{:?} CPU and {:?} in all for a call, {:?} outside the cluster",
            limits.cpu, limits.wall, limits.external
        ),
    )?;
    line(
        "",
        &format!(
            "{} of memory, {} of answer, {} of snapshot",
            mib(limits.memory),
            mib(limits.output),
            mib(limits.snapshot)
        ),
    )?;
    line("Instances", if module.is_pooled() { "from a pool" } else { "made on demand" })?;
    Ok(text)
}

fn list(
    line: &mut impl FnMut(&str, &str) -> std::fmt::Result,
    name: &str,
    values: impl Iterator<Item = String>,
) -> std::fmt::Result {
    let mut heading = name;
    for value in values {
        line(heading, &value)?;
        heading = "";
    }
    if heading.is_empty() { Ok(()) } else { line(heading, "none") }
}

/// What is asked for and why, then what is given.
fn capability(asked: &Capability, descriptor: &Descriptor, grants: &Grants) -> Vec<String> {
    let Capability { name, target, reason } = asked;
    let mut lines = vec![format!("{name}: {target}, {reason}").escape_debug().to_string()];
    let given: Vec<_> = grants.of_capability(&descriptor.name, name).map(|grant| format!("--grant {grant}")).collect();
    match given.as_slice() {
        [] => lines.push(format!("not granted; {} would", flag(asked))),
        given => lines.push(format!("granted by {}", given.join(", "))),
    }
    lines
}

fn child(child: &ChildType) -> String {
    let mut text = child.type_ref.to_string();
    if child.on_immutable == OnImmutable::Recreate {
        text.push_str(", may be recreated");
    }
    text.push_str(if child.on_prune == OnPrune::Delete { ", deleted when unwanted" } else { ", left when unwanted" });
    if child.any_namespace {
        text.push_str(", in any namespace");
    }
    if child.optional {
        text.push_str(", optional");
    }
    text
}

fn related(related: &RelatedType) -> String {
    format!("{}, only read{}", related.type_ref, if related.optional { ", optional" } else { "" })
}

fn mib(bytes: usize) -> String {
    format!("{} MiB", bytes >> 20)
}
