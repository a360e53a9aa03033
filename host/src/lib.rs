//! The operator host: runs Kubernetes operators whose reconcile logic is a sandboxed WebAssembly component.
//!
//! The folders follow the data: [`watch`] fills tables from the API server, changes become keys in the [`queue`], [`reconcile`] makes a
//! snapshot of a key, calls the [`module`] and plans, `apply` turns the plan into requests, and [`api`] is the one place that sends them.
//! The decisions are those of `operator_core`, which does no I/O.

// `println!` and its like panic where nobody takes the text.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
mod apply;
pub mod cli;
mod events;
pub mod lead;
pub mod module;
pub mod observe;
pub mod queue;
pub mod reconcile;
mod tls;
pub mod watch;
