//! The harness of the end-to-end tests: a real Kubernetes control plane, what it saw, and what can go wrong on the way.
//!
//! In comes the programs that `hack/control-plane/build.sh` builds; out goes a [`Cluster`] that a test owns, a
//! [`Client`] to arrange and look at objects, the [`audit`] log as the honest count of who asked for what, a
//! [`Proxy`] that breaks the line, and the [`Host`] under test. Nothing outlives the test process, however it ends.

pub mod audit;
pub mod builds;
pub mod client;
pub mod cluster;
pub mod expect;
pub mod folder;
pub mod host;
pub mod metrics;
pub mod modules;
pub mod objects;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod rights;
pub mod stage;
pub mod usage;
pub mod wait;
pub mod webhook;

pub use audit::{Audit, Mark, Record, Requests};
pub use builds::Builds;
pub use client::{Client, ClientError, Resource};
pub use cluster::{Cluster, Command, Options, Snapshot};
pub use host::Host;
pub use metrics::MetricsPort;
pub use proxy::{Fault, Match, Proxy};
pub use stage::{Probes, Stage};
pub use usage::Usage;
pub use wait::eventually;
pub use webhook::{Verdict, Webhook};

/// The error that harness functions return: one chain of causes, ready for a test to show.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;
