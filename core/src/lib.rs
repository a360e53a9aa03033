//! The decisions of the operator host, without I/O: values in, values out.
//!
//! API server -> bytes -> [`object`] -> [`table`] -> [`queue`] -> snapshot -> outcome -> [`plan`] -> requests -> [`status`].
//! What needs time takes it as an argument; what needs randomness takes a seed.

pub mod answer;
pub mod backoff;
pub mod breaker;
pub mod contract;
pub mod events;
pub mod external;
pub mod follow;
pub mod lead;
pub mod names;
pub mod object;
pub mod path;
pub mod plan;
pub mod queue;
pub mod reconciled;
pub mod reflector;
pub mod related;
pub mod revert;
pub mod schema;
pub mod status;
pub mod swap;
pub mod table;
