//! The contract's types and exports, generated from `wit/reconciler.wit`; their documentation is the contract's.

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
