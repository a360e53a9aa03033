//! Write a Kubernetes operator as a WebAssembly module for `operator host`.
//!
//! An operator is a type that implements [`Operator`]: [`describe`](Operator::describe) says what it manages,
//! [`reconcile`](Operator::reconcile) looks at one object and what exists for it, and answers what should exist. The
//! host does the rest: watches, caches, retries, writes, owner references, leader election. A reconcile has no network, no
//! files and a frozen clock, so the same input gives the same answer, in the cluster and in a unit test. Three hooks do
//! what that does not cover, for operators that need it: [`Relate`] reads objects that the operator does not own,
//! [`Finalize`] works in the cluster while an object is being deleted, [`External`] works outside the cluster.
//!
//! ```
//! use operator_guest::{ChildType, Child, Condition, Context, Descriptor, Failure, Operator, Outcome, Status, TypeRef};
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//!
//! #[derive(Deserialize)]
//! struct GreetingSpec {
//!     text: String,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct GreetingStatus {
//!     length: usize,
//! }
//!
//! struct Greeting;
//!
//! impl Operator for Greeting {
//!     type Spec = GreetingSpec;
//!     type Status = GreetingStatus;
//!
//!     fn describe() -> Descriptor {
//!         Descriptor::new("greeting", "0.1.0", TypeRef::new("example.com/v1", "Greeting"))
//!             .child(ChildType::new("v1", "ConfigMap"))
//!             .condition_type("Ready")
//!     }
//!
//!     fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
//!         let text = &ctx.spec().text;
//!         let config = Child::new(json!({
//!             "apiVersion": "v1",
//!             "kind": "ConfigMap",
//!             "metadata": { "name": ctx.name() },
//!             "data": { "greeting": text },
//!         }));
//!         let status = Status::new(&GreetingStatus { length: text.len() })?
//!             .condition(Condition::is_true("Ready", "Written", "the greeting is written"));
//!         Ok(Outcome::new([config]).status(status))
//!     }
//! }
//!
//! operator_guest::operator!(Greeting);
//! # fn main() {}
//! ```
//!
//! Built with `crate-type = ["cdylib", "rlib"]` for `wasm32-unknown-unknown` or `wasm32-wasip2`, that is a module. On
//! any other target the same crate runs its unit tests, with [`testing`] in the host's place.

#[doc(hidden)]
pub mod bindings;
mod child;
mod clock;
mod context;
#[cfg(feature = "crd")]
pub mod crd;
mod descriptor;
mod export;
mod external;
mod failure;
mod finalize;
pub mod live;
pub mod log;
mod metadata;
pub mod names;
mod operator;
mod outcome;
mod relate;
mod snapshot;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use bindings::exports::operator::reconciler::describe::{Capability, ChildType, Descriptor, RelatedType};
pub use bindings::finalizing::exports::operator::reconciler::finalize::Progress;
pub use bindings::operator::reconciler::types::{
    Child, Condition, ConditionStatus, Event, EventType, OnImmutable, OnPrune, Outcome, Status, TypeRef,
};
pub use bindings::relating::exports::operator::reconciler::relate::{Query, Selection};
pub use bindings::working_outside::exports::operator::reconciler::external::Removal;
pub use context::Context;
pub use external::{External, Observed};
pub use failure::Failure;
pub use finalize::Finalize;
pub use metadata::Metadata;
pub use operator::Operator;
pub use relate::Relate;
pub use snapshot::Snapshot;

/// What [`operator!`] expands to; not for direct use.
#[doc(hidden)]
pub mod __export {
    pub use crate::bindings::exports::operator::reconciler::{describe, reconcile};
    pub use crate::bindings::finalizing::exports::operator::reconciler::finalize;
    pub use crate::bindings::operator::reconciler::types;
    pub use crate::bindings::relating::exports::operator::reconciler::relate;
    pub use crate::bindings::working_outside::exports::operator::reconciler::external;
    pub use crate::export::{
        describe as call_describe, ensure as call_ensure, finalize as call_finalize, reconcile as call_reconcile,
        relate as call_relate, remove as call_remove,
    };
}
