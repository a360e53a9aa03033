//! What the process says of itself: health endpoints and log lines.

pub mod health;
pub mod logs;
