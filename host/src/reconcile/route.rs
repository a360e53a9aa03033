//! From a change in a table to the keys that it may matter to.

use super::{Operator, QueueKey, Shared};
use crate::apply::Again;
use crate::watch::{Sink, TypeState};
use operator_core::contract::{ObjectName, TypeRef};
use operator_core::object::Stored;
use operator_core::queue::Priority;
use operator_core::table::{Change, Lookup};
use std::collections::HashSet;
use std::time::Duration;
use tracing::warn;

/// How often a name is looked at that can't be watched, as too many are watched already.
const UNWATCHED: Duration = Duration::from_secs(30);

impl Sink for Shared {
    /// Enqueues every key that a change matters to, but the one that made it.
    fn changed(&self, type_ref: &TypeRef, change: &Change, author: Option<&QueueKey>) {
        let wake = |key: QueueKey, priority| {
            if author != Some(&key) {
                self.enqueue(key, priority);
            }
        };
        for (index, operator) in self.operators.iter().enumerate() {
            let serving = operator.serving();
            let descriptor = serving.descriptor();
            let priority = if change.initial { Priority::Backlog } else { Priority::Change };
            if descriptor.primary == *type_ref && self.works_in(&change.name) {
                wake(QueueKey { operator: index, name: change.name.clone() }, priority);
            }
            if change.initial || !descriptor.children.iter().any(|child| child.type_ref == *type_ref) {
                continue;
            }
            let namespaced = self.watches.resource(&descriptor.primary).is_some_and(|resource| resource.namespaced);
            let parents = [&change.old, &change.new].into_iter().flatten();
            let parents: HashSet<ObjectName> =
                parents.filter_map(|child| parent(&descriptor.primary, namespaced, child)).collect();
            for name in parents {
                wake(QueueKey { operator: index, name }, Priority::Change);
            }
        }
        for key in self.waiters.of(type_ref, &change.name) {
            wake(key, Priority::Change);
        }
        for key in self.related.of(type_ref, None, change) {
            wake(key, Priority::Change);
        }
    }

    fn selection_changed(&self, type_ref: &TypeRef, labels: &str, change: &Change) {
        for key in self.related.of(type_ref, Some(labels), change) {
            self.enqueue(key, Priority::Change);
        }
    }

    fn state_changed(&self, type_ref: &TypeRef) {
        for key in self.related.take_waiting(type_ref) {
            self.enqueue(key, Priority::Backlog);
        }
        self.say_missing_primary(type_ref);
        self.follow_state(type_ref);
        self.states.send_replace(());
    }

    fn definition_may_have_changed(&self, type_ref: &TypeRef) {
        self.may_be_redefined(type_ref);
    }
}

impl Shared {
    /// A primary type that can't be watched holds its module's keys, and there is no object to say so on.
    fn say_missing_primary(&self, type_ref: &TypeRef) {
        let serving = self.operators.iter().map(Operator::serving);
        for serving in serving.filter(|serving| serving.descriptor().primary == *type_ref) {
            let module = &serving.descriptor().name;
            match serving.state(type_ref) {
                TypeState::Absent { .. } => warn!(
                    module,
                    r#type = %type_ref,
                    "the primary type is not served; install it with: operator crd --module FILE | kubectl apply -f - (looked for again until it appears)"
                ),
                TypeState::Forbidden { message, .. } => warn!(
                    module,
                    r#type = %type_ref,
                    message,
                    "the primary type may not be watched; grant list and watch on it (tried again until it is allowed)"
                ),
                TypeState::Syncing | TypeState::Failing { .. } | TypeState::Synced => {}
            }
        }
    }

    /// Replaces the names that a key waits for. Names that nobody waits for are watched no longer.
    pub(super) fn wait_for(&self, key: &QueueKey, names: HashSet<(TypeRef, ObjectName)>) -> Again {
        for (type_ref, name) in self.waiters.set(key, names.clone()) {
            self.watches.unwatch_name(&type_ref, &name);
            // Another key may have come to wait for it in between.
            if !self.waiters.of(&type_ref, &name).is_empty() {
                self.watch_name(&type_ref, &name);
            }
        }
        names.iter().map(|(type_ref, name)| self.watch_name(type_ref, name)).fold(Again::ON_CHANGE, Again::or)
    }

    /// Waits for one more name.
    pub(super) fn wait_also(&self, key: &QueueKey, identity: (TypeRef, ObjectName)) -> Again {
        let (type_ref, name) = identity.clone();
        self.waiters.add(key, identity);
        self.watch_name(&type_ref, &name)
    }

    /// Sees to it that a change of the name wakes who waits for it. What carries our label is watched anyway.
    fn watch_name(&self, type_ref: &TypeRef, name: &ObjectName) -> Again {
        if let Lookup::Present(stored) = self.watches.lookup(type_ref, name)
            && stored.meta.installation.as_deref() == Some(&*self.settings.installation)
        {
            return Again::ON_CHANGE;
        }
        if !self.watches.watch_name(type_ref, name) {
            return Again::after(UNWATCHED);
        }
        // That it became free was told before anybody was known to wait for it.
        if self.watches.is_free(type_ref, name) { Again::after(Duration::ZERO) } else { Again::ON_CHANGE }
    }
}

/// The name of the primary that controls a child; None when another type does. The version in an owner reference may be an older one.
fn parent(primary: &TypeRef, namespaced: bool, child: &Stored) -> Option<ObjectName> {
    let controller = child.meta.controller.as_deref()?;
    let owner = controller.is_a(primary).then(|| controller.owner_of(&child.meta.name))?;
    Some(ObjectName { namespace: owner.namespace.filter(|_| namespaced), ..owner })
}
