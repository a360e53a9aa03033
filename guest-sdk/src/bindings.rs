//! The contract's types and exports, generated from `wit/reconciler.wit`; their documentation is the contract's. Each
//! hook is a world of its own that shares the types; the linker joins the worlds whose exports a module has.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
#![allow(unsafe_code, reason = "generated code passes values over the border of the component")]

wit_bindgen::generate!({
    path: "../wit",
    world: "reconciler",
    additional_derives: [PartialEq, Eq],
    pub_export_macro: true,
    default_bindings_module: "operator_guest::bindings",
    runtime_path: "::wit_bindgen::rt",
});

pub mod relating {
    wit_bindgen::generate!({
        path: "../wit",
        world: "relating",
        with: { "operator:reconciler/types@0.1.0": crate::bindings::operator::reconciler::types },
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
        default_bindings_module: "operator_guest::bindings::relating",
        runtime_path: "::wit_bindgen::rt",
    });
}

pub mod finalizing {
    wit_bindgen::generate!({
        path: "../wit",
        world: "finalizing",
        with: { "operator:reconciler/types@0.1.0": crate::bindings::operator::reconciler::types },
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
        default_bindings_module: "operator_guest::bindings::finalizing",
        runtime_path: "::wit_bindgen::rt",
    });
}

pub mod working_outside {
    wit_bindgen::generate!({
        path: "../wit",
        world: "working-outside",
        with: { "operator:reconciler/types@0.1.0": crate::bindings::operator::reconciler::types },
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
        default_bindings_module: "operator_guest::bindings::working_outside",
        runtime_path: "::wit_bindgen::rt",
    });
}
