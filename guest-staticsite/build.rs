//! Links a small stack: what an instance reserves, the host pays for in every call. It can't come from a dependency.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_FAMILY").as_deref() == Ok("wasm") {
        println!("cargo::rustc-link-arg-cdylib=-zstack-size=131072");
    }
}
