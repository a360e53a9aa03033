//! Whether the definition of a primary type in the cluster is the one that its module brings, and still the one that it was.
//!
//! An older one prunes fields without a word, a newer one has fields that the module does not know. Both are said, once; nothing else
//! comes of it: what can be done with the definition in the cluster is done. One that changes is noticed by the end of its watch. The
//! server publishes its schema some time after it serves it, so that one look is not enough.

use super::{Operator, QueueKey, Shared};
use crate::api::ApiError;
use crate::watch::TypeState;
use operator_core::contract::{Descriptor, TypeRef};
use operator_core::queue::Priority;
use operator_core::schema::{self, Schema};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// The looks that follow one that found something else than the module's own definition, or that a watch's end gave reason to.
const FOLLOW_UPS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// How long a server that did not give its schema is left alone.
const RETRY: Duration = Duration::from_secs(30);

/// Compares each time that the type comes to be served or may have changed, until the host ends.
pub(super) async fn keep_comparing(shared: Arc<Shared>, index: usize) {
    let Some(operator) = shared.operators.get(index) else { return };
    let mut swaps = operator.serving.subscribe();
    loop {
        let serving = Arc::clone(&swaps.borrow_and_update());
        tokio::select! {
            () = keep_comparing_with(&shared, index, operator, serving.descriptor()) => return,
            // Err: the operator is gone.
            swapped = swaps.changed() => if swapped.is_err() { return },
        }
    }
}

async fn keep_comparing_with(shared: &Shared, index: usize, operator: &Operator, descriptor: &Descriptor) {
    let primary = &descriptor.primary;
    let mut definition = Definition { shared, index, descriptor, own: own_definition(descriptor), revision: None };
    let mut states = shared.states.subscribe();
    loop {
        while shared.watches.state(primary) != TypeState::Synced {
            if states.changed().await.is_err() {
                return;
            }
        }
        // One that is the module's own is not expected to become another.
        let mut looks = match definition.look().await {
            Ok(true) => VecDeque::new(),
            Ok(false) => after(&FOLLOW_UPS),
            Err(_) => after(&[RETRY]),
        };
        while shared.watches.state(primary) == TypeState::Synced {
            tokio::select! {
                () = sleep_until(looks.front()) => {
                    looks.pop_front();
                    shared.schemas.outdate(primary);
                    if definition.look().await.is_err() {
                        looks = after(&[RETRY]);
                    }
                }
                () = operator.redefined.notified() => looks = after(&FOLLOW_UPS),
                changed = states.changed() => if changed.is_err() { return },
            }
        }
        shared.schemas.outdate(primary);
    }
}

fn after(times: &[Duration]) -> VecDeque<Instant> {
    times.iter().map(|time| Instant::now() + *time).collect()
}

async fn sleep_until(time: Option<&Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(*time).await,
        None => std::future::pending().await,
    }
}

/// The schema of the primary type by the module's own definition of it.
fn own_definition(descriptor: &Descriptor) -> Option<Schema> {
    schema::Definition::of(descriptor, &descriptor.primary)?.schema(descriptor.primary.version()).ok().flatten()
}

/// The definition of one operator's primary type.
struct Definition<'a> {
    shared: &'a Shared,
    index: usize,
    descriptor: &'a Descriptor,
    /// As the module brings it.
    own: Option<Schema>,
    /// Of the published schema that was looked at last.
    revision: Option<u64>,
}

impl Definition<'_> {
    /// Says how the published schema differs from the module's own. True where the server keeps all that the module knows; an error
    /// where nothing could be read.
    async fn look(&mut self) -> Result<bool, ApiError> {
        let Self { shared, descriptor, .. } = *self;
        let primary = &descriptor.primary;
        let served = shared.schemas.load(&shared.api, primary).await;
        let served = served.inspect_err(|error| {
            debug!(%error, r#type = %primary, "can't read the published schema; asked again");
        })?;
        let revision = shared.schemas.revision(primary);
        if self.revision.replace(revision).is_some_and(|before| before != revision) {
            info!(module = descriptor.name, r#type = %primary, "the definition in the cluster has changed");
            // What a status may hold is another question now, also for objects that are settled.
            for name in shared.watches.primaries(primary) {
                shared.enqueue(QueueKey { operator: self.index, name }, Priority::Backlog);
            }
        }
        Ok(match (&self.own, served) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(served)) => shared.say_differences(descriptor, own, &served),
        })
    }
}

impl Shared {
    /// The definition of a type may be another one than before.
    pub(super) fn may_be_redefined(&self, type_ref: &TypeRef) {
        self.schemas.outdate(type_ref);
        for operator in self.operators.iter().filter(|operator| operator.serving().descriptor().primary == *type_ref) {
            operator.redefined.notify_one();
        }
    }

    /// Whether the server keeps all that the module knows.
    fn say_differences(&self, descriptor: &Descriptor, own: &Schema, served: &Schema) -> bool {
        let (module, primary) = (&descriptor.name, &descriptor.primary);
        let pruned = served.lacks(own).join(", ");
        if !pruned.is_empty() {
            self.say_once(format!("definition of {primary} without {pruned}"), |_| {
                warn!(
                    module,
                    r#type = %primary,
                    pruned,
                    "the definition in the cluster is older than the module's, or another: the API server prunes these fields; bring it \
                     up to date with: operator crd --module FILE | kubectl apply -f -"
                );
            });
        }
        let unknown = own.lacks(served).join(", ");
        if !unknown.is_empty() {
            self.say_once(format!("definition of {primary} with {unknown}"), |_| {
                info!(
                    module,
                    r#type = %primary,
                    unknown,
                    "the definition in the cluster is newer than the module's, or another: the module's own lacks these fields"
                );
            });
        }
        pruned.is_empty()
    }
}
