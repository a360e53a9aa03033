//! Bindings of the world `reconciler`, generated from `wit/`.

#![allow(missing_docs, reason = "generated; the wit file is the documentation")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "reconciler",
    // The snapshot is lowered from the table's own text, without a copy on the way.
    ownership: Borrowing { duplicate_if_necessary: true },
});
