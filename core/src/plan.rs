//! From what a module wants and what is there to the requests that make the one the other.
//!
//! A desired object is first brought to its canonical form ([`canonical`]); whether a live object already is that
//! ([`keep`]) is told by ownership, not by comparing values.

pub mod accept;
pub mod canonical;
pub mod decide;
pub mod keep;
pub mod order;
pub mod prune_guard;
pub mod ready;
