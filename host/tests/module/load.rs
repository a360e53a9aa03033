//! Files that can't be loaded, and what their user reads.

use std::fs;
use std::path::{Path, PathBuf};

use operator_host::module::{Runtime, conflicts};

use crate::support::{fixture, load, options, scratch};

#[track_caller]
fn assert_refused(path: &Path, words: &[&str]) {
    let text = match load(path) {
        Ok(module) => panic!("{} loads as {module:?}", path.display()),
        Err(error) => error.to_string(),
    };
    assert!(text.starts_with(&format!("{}: ", path.display())), "the file is named: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not said: {text}");
    }
}

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch("bad-files").join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn files_that_are_no_wasm() {
    assert_refused(Path::new("/nowhere/webapp.wasm"), &["no such file"]);
    assert_refused(&scratch("bad-files"), &["is a directory"]);
    assert_refused(Path::new("/dev/zero"), &["not a regular file"]);
    assert_refused(&file("empty.wasm", b""), &["is empty"]);
    assert_refused(&file("script.wasm", b"#!/bin/sh\n"), &["not WebAssembly", "cargo build --target"]);
    assert_refused(&file("packed.wasm", &[0x1f, 0x8b, 8, 0]), &["gzip"]);
    assert_refused(&file("text.wasm", b"(module)"), &["text format", "wasm-tools parse"]);
    assert_refused(&file("future.wasm", b"\0asm\x02\0\0\0"), &["binary version"]);
    assert_refused(&file("short.wasm", b"\0asm\x01"), &["ends after 5 bytes"]);
}

#[test]
fn truncated_modules() {
    for name in ["probe", "probe-wasi"] {
        let whole = fs::read(fixture(name)).unwrap();
        for part in [whole.len() / 3, whole.len() / 2, whole.len() - 1] {
            assert_refused(&file(&format!("{name}-{part}.wasm"), &whole[..part]), &["the file ends after"]);
        }
    }
}

#[test]
fn modules_that_are_damaged_or_not_operators() {
    let mut damaged = fs::read(fixture("probe-wasi")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    assert_refused(&file("damaged.wasm", &damaged), &["not valid WebAssembly"]);
    assert_refused(&file("bare.wasm", b"\0asm\x01\0\0\0"), &["wit-bindgen's metadata", "operator:reconciler"]);
    let component = b"\0asm\x0d\0\x01\0";
    assert_refused(&file("hollow.wasm", component), &["another world", "`describe`", "`reconcile`", "exports nothing"]);
}

/// The file without the custom sections that `keep` does not want, as strippers leave it.
fn without_sections(wasm: &[u8], drop: &str) -> Vec<u8> {
    let mut out = wasm[..8].to_vec();
    for payload in wasmparser::Parser::new(0).parse_all(wasm) {
        let payload = payload.unwrap();
        let dropped = matches!(&payload, wasmparser::Payload::CustomSection(s) if s.name().starts_with(drop));
        let Some((id, range)) = payload.as_section() else { continue };
        if dropped {
            continue;
        }
        out.push(id);
        leb128(range.len(), &mut out);
        out.extend_from_slice(&wasm[range]);
    }
    out
}

fn leb128(mut n: usize, out: &mut Vec<u8>) {
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        out.push(if n == 0 { byte } else { byte | 0x80 });
        if n == 0 {
            return;
        }
    }
}

#[test]
fn a_stripped_module_is_told_so() {
    let stripped = without_sections(&fs::read(fixture("probe")).unwrap(), "component-type");
    assert_refused(&file("stripped.wasm", &stripped), &["lost its wit-bindgen metadata", "wasm-strip", "wasm-opt"]);
}

#[test]
fn a_module_of_a_newer_wit_bindgen_is_told_so() {
    let mut newer = fs::read(fixture("probe")).unwrap();
    // The metadata's own format version: two bytes after the name of the section that holds it.
    let name = b"wit-component-encoding";
    let at = newer.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    newer[at] = 0x7f;
    assert_refused(&file("newer.wasm", &newer), &["was built with wit-bindgen", "0.61", "newer host"]);
}

#[test]
fn precompiled_code_is_never_run() {
    load(&fixture("probe")).unwrap();
    let cache = scratch("module-cache");
    let code = fs::read_dir(cache)
        .unwrap()
        .map(|file| file.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "cwasm"))
        .unwrap();
    assert_refused(&code, &["native code", ".wasm"]);
}

#[test]
fn a_file_over_the_cap_is_not_read() {
    let path = scratch("bad-files").join("huge.wasm");
    fs::File::create(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    assert_refused(&path, &["larger than 64 MiB"]);
    fs::remove_file(path).unwrap();
}

#[test]
fn other_contracts_are_refused_by_name() {
    let variant = |name: &str| fixture(&format!("variant-{name}"));
    assert_refused(&variant("other-world"), &["another world", "`greet`", "operator:reconciler"]);
    assert_refused(&variant("newer-contract"), &["@0.99.0", "speaks operator:reconciler 0.1"]);
    assert_refused(&variant("exports-hook"), &["`operator:reconciler/relate`", "hooks does not name"]);
    assert_refused(&variant("other-import"), &["`fixtures:imports/store`", "no module is given"]);
}

#[test]
fn descriptors_are_checked() {
    let variant = |name: &str| fixture(&format!("variant-{name}"));
    assert_refused(&variant("bad-crd"), &["crds[0]"]);
    assert_refused(&variant("bad-name"), &["\"Bad_Name\" is not a DNS label"]);
    assert_refused(&variant("bad-primary"), &["primary", "kind"]);
    assert_refused(&variant("bad-version"), &["\"first\" is not a semantic version"]);
    assert_refused(&variant("capability"), &["capabilities are asked for without the hook"]);
    assert_refused(&variant("duplicate-child-type"), &["ConfigMap.v1 is declared twice"]);
    assert_refused(&variant("host-condition"), &["\"Reconciled\" is the host's own"]);
    assert_refused(&variant("long-manager"), &["field-manager", "128"]);
    assert_refused(&variant("missing-hook"), &["does not export `operator:reconciler/finalize`"]);
    assert_refused(&variant("primary-as-child"), &["is the primary type"]);
    assert_refused(&variant("related"), &["related types are declared without the hook"]);
    assert_refused(&variant("replaces-itself"), &["replaces-managers", "is the module's own field manager"]);
    assert_refused(&variant("required-extension"), &["example.com/levitation"]);
    assert_refused(&variant("unknown-hook"), &["\"levitate\" is unknown"]);
}

#[test]
fn describe_runs_under_the_limits_of_a_call() {
    assert_refused(&fixture("variant-loops-in-describe"), &["`describe` gave no answer (ModuleTimeout)"]);
    assert_refused(
        &fixture("variant-traps-in-describe"),
        &["`describe` gave no answer (ModuleTrapped)", "the variant panics on purpose"],
    );
}

#[test]
fn modules_that_claim_the_same_are_told_apart() {
    let paths = [fixture("variant-sound"), fixture("variant-other-name"), fixture("probe")];
    let runtime = Runtime::new(options()).unwrap();
    let modules: Vec<_> = runtime.load(&paths).into_iter().map(Result::unwrap).collect();
    let conflicts_of_two = conflicts(&modules[..2]);
    assert_eq!(conflicts_of_two.len(), 1);
    assert!(conflicts_of_two[0].contains("both reconcile Variant.fixtures.example.com/v1"), "{conflicts_of_two:?}");
    assert_eq!(conflicts(&modules[1..]), Vec::<String>::new());
}
