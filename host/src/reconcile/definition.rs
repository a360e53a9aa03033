//! Whether the definition of a primary type in the cluster is the one that its module brings.
//!
//! An older one prunes fields without a word, a newer one has fields that the module does not know. Both are said, once, as soon as the
//! type is served; nothing else comes of it: what can be done with the definition in the cluster is done.

use super::{Operator, Shared};
use crate::watch::TypeState;
use operator_core::schema::Schema;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// How long a server that did not give its schema is left alone.
const RETRY: Duration = Duration::from_secs(30);

/// Compares each time that the type comes to be served, until the host ends.
pub(super) async fn keep_comparing(shared: Arc<Shared>, index: usize) {
    let Some(operator) = shared.operators.get(index) else { return };
    let Some(own) = own_definition(operator) else { return };
    let primary = &operator.descriptor().primary;
    let mut states = shared.states.subscribe();
    loop {
        if matches!(shared.watches.state(primary), TypeState::Synced) {
            match shared.schemas.load(&shared.api, primary).await {
                Ok(Some(served)) => shared.say_differences(operator, &own, &served),
                Ok(None) => {}
                Err(error) => {
                    debug!(%error, r#type = %primary, "can't read the published schema; asked again");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

/// The schema of the primary type by the module's own definition of it.
fn own_definition(operator: &Operator) -> Option<Schema> {
    let descriptor = operator.descriptor();
    descriptor.crds.iter().find_map(|text| Schema::of_definition(text, &descriptor.primary).ok().flatten())
}

impl Shared {
    fn say_differences(&self, operator: &Operator, own: &Schema, served: &Schema) {
        let descriptor = operator.descriptor();
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
    }
}
