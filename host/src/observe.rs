//! What the process says of itself: health endpoints, metrics and log lines.

pub mod address;
pub mod health;
pub mod logs;
pub mod metrics;
mod serve;
pub(crate) mod traces;
