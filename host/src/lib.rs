//! The operator host.

pub mod lead;
pub mod observe;
pub mod queue;
