//! Bindings of the world `reconciler` and of one world a hook, generated from `wit/`. All share the types of the first.

#![allow(missing_docs, reason = "generated; the wit file is the documentation")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "reconciler",
    // The snapshot is lowered from the table's own text, without a copy on the way.
    ownership: Borrowing { duplicate_if_necessary: true },
});

pub(crate) mod relating {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "relating",
        with: { "operator:reconciler/types": super::operator::reconciler::types },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

pub(crate) mod finalizing {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "finalizing",
        with: { "operator:reconciler/types": super::operator::reconciler::types },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

pub(crate) mod working_outside {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "working-outside",
        // What is outside is waited for, and the wait has to end at the call's limit.
        exports: { default: async },
        with: { "operator:reconciler/types": super::operator::reconciler::types },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}
