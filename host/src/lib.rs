//! The operator host.

pub mod lead;
pub mod module;
pub mod observe;
pub mod queue;
