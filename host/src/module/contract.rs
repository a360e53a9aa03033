//! Whether a component speaks the contract of this host, as far as the names of its imports and exports tell.
//!
//! In: a valid component. Out: [`Surface`], its names, or a [`Problem`] that says which are missing, new or unknown.

use operator_core::contract::Hook;
use semver::{Version, VersionReq};
use wasmparser::{ComponentExternalKind, Parser, Payload};

use crate::module::preflight::Problem;
use crate::module::wasi;

/// The contract's package.
const PACKAGE: &str = "operator:reconciler/";
/// Contract versions that this host speaks, as a person reads them.
pub(crate) const SPOKEN: &str = "0.1";
/// What every module exports.
const REQUIRED: [&str; 2] = ["describe", "reconcile"];
/// What a module may import.
const IMPORTS: [&str; 3] = ["types", "log", "clock"];
/// Hooks of the contract that this host does not call yet.
pub(crate) const NOT_YET: [&str; 3] = ["defaulting", "validating", "conversion"];

/// The names that a component imports and exports, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surface {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    /// Hooks among the exports.
    pub(crate) hooks: Vec<Hook>,
    /// The version of the contract that `reconcile` is exported at.
    pub(crate) contract: String,
}

impl Surface {
    /// Reads and checks the names.
    pub(crate) fn check(component: &[u8]) -> Result<Self, Problem> {
        let mut surface = Self::read(component)?;
        surface.contract = surface.check_exports()?;
        surface.hooks = surface.find_hooks();
        surface.check_imports()?;
        Ok(surface)
    }

    fn read(component: &[u8]) -> Result<Self, Problem> {
        let mut surface = Self::default();
        let mut depth = 0usize;
        for payload in Parser::new(0).parse_all(component) {
            match payload.map_err(|error| Problem::Invalid(error.to_string()))? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(imports) if depth == 0 => {
                    surface.imports.extend(imports.into_iter().map_while(Result::ok).map(|i| i.name.name.to_owned()));
                }
                Payload::ComponentExportSection(exports) if depth == 0 => {
                    let names = exports.into_iter().map_while(Result::ok).filter(|export| {
                        matches!(export.kind, ComponentExternalKind::Instance | ComponentExternalKind::Func)
                    });
                    surface.exports.extend(names.map(|export| export.name.name.to_owned()));
                }
                _ => {}
            }
        }
        Ok(surface)
    }

    /// The contract's version, if the exports are those of a module that this host can call.
    fn check_exports(&self) -> Result<String, Problem> {
        let ours: Vec<_> = self.exports.iter().filter_map(|name| Named::parse(name)).collect();
        let not_yet: Vec<_> =
            ours.iter().filter(|named| NOT_YET.contains(&named.interface)).map(Named::owned).collect();
        if let Some(other) = ours.iter().find(|named| !named.is_spoken()) {
            return Err(Problem::OtherContract { name: other.owned() });
        }
        if !not_yet.is_empty() {
            return Err(Problem::UnsupportedHooks(not_yet));
        }
        let is_hook = |interface: &str| Hook::ALL.iter().any(|hook| hook.as_str() == interface);
        let known = |interface: &str| interface == "types" || REQUIRED.contains(&interface) || is_hook(interface);
        let unknown: Vec<_> = ours.iter().filter(|named| !known(named.interface)).map(Named::owned).collect();
        if !unknown.is_empty() {
            return Err(Problem::UnknownHooks(unknown));
        }
        let missing: Vec<_> =
            REQUIRED.into_iter().filter(|wanted| !ours.iter().any(|named| named.interface == *wanted)).collect();
        if !missing.is_empty() {
            return Err(Problem::OtherWorld { missing, exports: self.exports.clone() });
        }
        let reconcile = ours.iter().find(|named| named.interface == "reconcile");
        Ok(reconcile.map_or_else(String::new, |named| named.version.to_owned()))
    }

    fn find_hooks(&self) -> Vec<Hook> {
        let exports: Vec<_> = self.exports.iter().filter_map(|name| Named::parse(name)).collect();
        let is_exported = |hook: &Hook| exports.iter().any(|named| named.interface == hook.as_str());
        Hook::ALL.into_iter().filter(is_exported).collect()
    }

    fn check_imports(&self) -> Result<(), Problem> {
        // Requests are made outside the cluster, or never.
        let is_out_of_place = |name: &str| name.starts_with("wasi:http/") && !self.hooks.contains(&Hook::External);
        let unknown = self.imports.iter().filter(|name| !is_served(name) || is_out_of_place(name));
        let unknown: Vec<_> = unknown.cloned().collect();
        if unknown.is_empty() { Ok(()) } else { Err(Problem::UnknownImports(unknown)) }
    }
}

fn is_served(import: &str) -> bool {
    match Named::parse(import) {
        Some(named) => named.is_spoken() && IMPORTS.contains(&named.interface),
        None => wasi::serves(import),
    }
}

/// A name in the contract's package: `operator:reconciler/reconcile@0.1.0`.
struct Named<'a> {
    full: &'a str,
    interface: &'a str,
    version: &'a str,
}

impl<'a> Named<'a> {
    fn parse(full: &'a str) -> Option<Self> {
        let rest = full.strip_prefix(PACKAGE)?;
        let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
        Some(Self { full, interface, version })
    }

    fn is_spoken(&self) -> bool {
        let requirement = VersionReq::parse(&format!("^{SPOKEN}"));
        matches!((requirement, Version::parse(self.version)), (Ok(wanted), Ok(version)) if wanted.matches(&version))
    }

    fn owned(&self) -> String {
        self.full.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(imports: &[&str], exports: &[&str]) -> Surface {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Surface { imports: owned(imports), exports: owned(exports), ..Surface::default() }
    }

    const DESCRIBE: &str = "operator:reconciler/describe@0.1.0";
    const RECONCILE: &str = "operator:reconciler/reconcile@0.1.0";

    #[test]
    fn a_module_of_this_contract_passes_with_its_version() {
        assert_eq!(surface(&[], &[DESCRIBE, RECONCILE]).check_exports().unwrap(), "0.1.0");
        let later = ["operator:reconciler/describe@0.1.4", "operator:reconciler/reconcile@0.1.4"];
        assert_eq!(surface(&[], &later).check_exports().unwrap(), "0.1.4");
    }

    #[test]
    fn another_world_is_told_what_it_lacks() {
        let problem = surface(&[], &["wasi:cli/run@0.2.3"]).check_exports().unwrap_err();
        assert_eq!(
            problem,
            Problem::OtherWorld { missing: vec!["describe", "reconcile"], exports: vec!["wasi:cli/run@0.2.3".into()] }
        );
    }

    #[test]
    fn a_newer_contract_is_named() {
        let newer = "operator:reconciler/reconcile@0.2.0";
        let problem = surface(&[], &[DESCRIBE, newer]).check_exports().unwrap_err();
        assert_eq!(problem, Problem::OtherContract { name: newer.into() });
    }

    #[test]
    fn hooks_are_refused_by_name_never_ignored() {
        let conversion = "operator:reconciler/conversion@0.1.0";
        let problem = surface(&[], &[DESCRIBE, RECONCILE, conversion]).check_exports().unwrap_err();
        assert_eq!(problem, Problem::UnsupportedHooks(vec![conversion.into()]));
        let unknown = "operator:reconciler/reconcile-v2@0.1.7";
        let problem = surface(&[], &[DESCRIBE, RECONCILE, unknown]).check_exports().unwrap_err();
        assert_eq!(problem, Problem::UnknownHooks(vec![unknown.into()]));
    }

    #[test]
    fn hooks_that_are_called_are_found() {
        let surface = surface(&[], &[DESCRIBE, RECONCILE, "operator:reconciler/finalize@0.1.0"]);
        assert_eq!(surface.check_exports().unwrap(), "0.1.0");
        assert_eq!(surface.find_hooks(), [Hook::Finalize]);
    }

    #[test]
    fn imports_outside_the_contract_and_wasi_are_refused() {
        let imports = ["operator:reconciler/log@0.1.0", "wasi:io/poll@0.2.6", "acme:db/query", "wasi:io/poll@0.3.0"];
        let problem = surface(&imports, &[]).check_imports().unwrap_err();
        assert_eq!(problem, Problem::UnknownImports(vec!["acme:db/query".into(), "wasi:io/poll@0.3.0".into()]));
    }
}
