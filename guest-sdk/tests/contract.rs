//! The contract keeps its word: a module built against a released version goes on working with this one.
//!
//! `wit/released/` holds each released version of `wit/reconciler.wit`, named after it and written once, when it is
//! released. A change that fails here is not released by editing those files, but made as a new interface beside the
//! old one. Comments may change at any time, and imports may gain functions.

use std::path::{Path, PathBuf};

use wit_parser::{PackageId, Resolve};

fn contract() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether modules of `old` work with `new`, world by world.
fn check(old: &str, new: &str) -> Result<(), String> {
    let mut resolve = Resolve::default();
    let old = parse(&mut resolve, "old.wit", &mark_as_old(old));
    let new = parse(&mut resolve, "new.wit", new);
    for (name, &old_world) in &resolve.packages[old].worlds {
        let Some(&new_world) = resolve.packages[new].worlds.get(name) else {
            return Err(format!("world {name} is gone"));
        };
        wit_component::semver_check(resolve.clone(), old_world, new_world)
            .map_err(|error| format!("world {name}: {error:#}"))?;
    }
    Ok(())
}

/// One resolve can't hold two packages of one name and version.
fn mark_as_old(contract: &str) -> String {
    let package = contract.find("\npackage ").expect("a contract names its package");
    let end = package + contract[package..].find(';').expect("a package ends in a semicolon");
    format!("{}-old{}", &contract[..end], &contract[end..])
}

fn parse(resolve: &mut Resolve, name: &str, text: &str) -> PackageId {
    resolve.push_str(name, text).unwrap_or_else(|error| panic!("{name}: {error:#}"))
}

#[test]
fn modules_of_every_released_version_work_with_this_one() {
    let current = read(&contract().join("reconciler.wit"));
    let released: Vec<PathBuf> = std::fs::read_dir(contract().join("released"))
        .expect("wit/released exists")
        .map(|entry| entry.expect("wit/released is readable").path())
        .collect();
    assert!(!released.is_empty(), "wit/released holds at least one version");
    for path in released {
        if let Err(error) = check(&read(&path), &current) {
            panic!("wit/reconciler.wit breaks modules of {}: {error}", path.display());
        }
    }
}

#[test]
fn the_check_sees_what_breaks_old_modules() {
    let current = read(&contract().join("reconciler.wit"));
    let breaking = [
        ("a new field", "record object {", "record object { extra: string,"),
        ("a new case", "enum on-prune {", "enum on-prune { archive,"),
        ("a new exported function", "    describe: func()", "    version: func() -> string;\n    describe: func()"),
        ("a new export", "    export reconcile;", "    export reconcile;\n    export relate;"),
        ("a world under another name", "world finalizing", "world finishing"),
    ];
    for (what, old, new) in breaking {
        let changed = current.replacen(old, new, 1);
        assert_ne!(changed, current, "{what} is no change");
        assert!(check(&current, &changed).is_err(), "{what} passes as compatible");
    }
    let grown = current.replacen("    emit: func(", "    enabled: func(level: level) -> bool;\n    emit: func(", 1);
    assert_ne!(grown, current);
    assert_eq!(check(&current, &grown), Ok(()), "imports may gain functions");
}
