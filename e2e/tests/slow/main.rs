//! Scenarios that mostly wait, for a control plane or for a minute to pass: in one program, so that they wait at the same time.

mod collected;
mod finalized;
mod prune_guard;
mod restored;
mod two_operators;
