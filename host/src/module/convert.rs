//! The border: the contract's values as wasmtime carries them, and as the core knows them.
//!
//! In: [`operator_core::contract`] on the way to a module, generated types on the way back. Out: the other of the two.
//! Nothing is judged here but extensions, which the receiver has to refuse when it must know them and does not.

use std::time::Duration;

use operator_core::contract as core;

use crate::module::bindings::exports::operator::reconciler::describe as wit_describe;
use crate::module::bindings::finalizing::exports::operator::reconciler::finalize as wit_finalize;
use crate::module::bindings::operator::reconciler::types as wit;
use crate::module::bindings::relating::exports::operator::reconciler::relate as wit_relate;
use crate::module::bindings::working_outside::exports::operator::reconciler::external as wit_external;
use crate::module::error::CallError;

/// What a module may ask to wait at least.
const SHORTEST: Duration = Duration::from_millis(100);

/// Bytes of JSON in a snapshot.
pub(crate) fn snapshot_bytes(snapshot: &core::Snapshot) -> usize {
    let related = snapshot.related.iter().flat_map(|related| &related.objects);
    let objects = snapshot.children.iter().chain(related);
    let observation = snapshot.observation.as_ref().map_or(0, |text| text.len());
    snapshot.primary.len() + observation + objects.map(|object| object.json.len()).sum::<usize>()
}

pub(crate) fn key(key: &core::Key) -> wit::Key<'_> {
    wit::Key { namespace: key.name.namespace.as_deref(), name: &key.name.name, uid: &key.uid }
}

fn object(object: &core::LiveObject) -> wit::Object<'_> {
    wit::Object {
        api_version: &object.type_ref.api_version,
        kind: &object.type_ref.kind,
        namespace: object.name.namespace.as_deref(),
        name: &object.name.name,
        json: &object.json,
    }
}

fn type_ref(type_ref: &core::TypeRef) -> wit::TypeRefParam<'_> {
    wit::TypeRefParam { api_version: &type_ref.api_version, kind: &type_ref.kind }
}

/// Lists that a snapshot for a module borrows from.
pub(crate) struct Lists<'a> {
    snapshot: &'a core::Snapshot,
    children: Vec<wit::Object<'a>>,
    related: Vec<(&'a core::Related, Vec<wit::Object<'a>>)>,
    unavailable: Vec<wit::TypeRefParam<'a>>,
}

impl<'a> Lists<'a> {
    pub(crate) fn of(snapshot: &'a core::Snapshot) -> Self {
        let objects = |objects: &'a [core::LiveObject]| objects.iter().map(object).collect();
        Self {
            snapshot,
            children: objects(&snapshot.children),
            related: snapshot.related.iter().map(|related| (related, objects(&related.objects))).collect(),
            unavailable: snapshot.unavailable.iter().map(type_ref).collect(),
        }
    }

    pub(crate) fn related(&self) -> Vec<wit::Related<'_>> {
        self.related
            .iter()
            .map(|(of, objects)| wit::Related { query: &of.query, objects, truncated: of.truncated })
            .collect()
    }

    pub(crate) fn snapshot<'b>(&'b self, related: &'b [wit::Related<'b>]) -> wit::Snapshot<'b> {
        wit::Snapshot {
            primary: &self.snapshot.primary,
            children: &self.children,
            related,
            observation: self.snapshot.observation.as_deref(),
            unavailable: &self.unavailable,
            extensions: &[],
        }
    }
}

/// A module's answer: what it wants, or why it can't say.
pub(crate) fn answer<W, C>(
    answer: Result<W, wit::Failure>,
    of: impl FnOnce(W) -> Result<C, CallError>,
) -> Result<Result<C, core::Failure>, CallError> {
    Ok(match answer {
        Ok(answer) => Ok(of(answer)?),
        Err(failure) => Err(of_failure(failure)?),
    })
}

pub(crate) fn of_queries(queries: Vec<wit_relate::Query>) -> Result<Vec<core::Query>, CallError> {
    let of_query = |query: wit_relate::Query| core::Query {
        id: query.id,
        type_ref: core::TypeRef { api_version: query.api_version, kind: query.kind },
        namespace: query.namespace.map(Into::into),
        select: match query.select {
            wit_relate::Selection::Name(name) => core::Selection::Name(name.into()),
            wit_relate::Selection::Labels(labels) => core::Selection::Labels(labels.into()),
            wit_relate::Selection::All => core::Selection::All,
        },
    };
    Ok(queries.into_iter().map(of_query).collect())
}

pub(crate) fn of_progress(progress: wit_finalize::Progress) -> Result<core::Progress, CallError> {
    Ok(core::Progress { done: progress.done, outcome: of_outcome(progress.outcome)? })
}

pub(crate) fn of_observed(observed: wit_external::Observed) -> Result<core::Observed, CallError> {
    let recheck_after = observed.recheck_after.and_then(some_time);
    Ok(core::Observed { observation: observed.observation, recheck_after })
}

pub(crate) fn of_removal(removal: wit_external::Removal) -> Result<core::Removal, CallError> {
    let retry_after = removal.retry_after.and_then(some_time);
    Ok(core::Removal { done: removal.done, message: removal.message, retry_after })
}

pub(crate) fn of_outcome(outcome: wit::Outcome) -> Result<core::Outcome, CallError> {
    Ok(core::Outcome {
        children: outcome.children.map(|children| children.into_iter().map(of_child).collect()),
        status: outcome.status.map(of_status),
        events: outcome.events.into_iter().map(of_event).collect(),
        requeue_after: outcome.requeue_after.and_then(some_time),
        extensions: known("outcome", outcome.extensions)?,
    })
}

/// A time to wait. None at all would be a loop without a pause: zero counts as not given, as in controller-runtime's `Result`.
fn some_time(milliseconds: u64) -> Option<Duration> {
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds).max(SHORTEST))
}

fn of_failure(failure: wit::Failure) -> Result<core::Failure, CallError> {
    Ok(core::Failure {
        terminal: failure.terminal,
        reason: failure.reason,
        message: failure.message,
        retry_after: failure.retry_after.and_then(some_time),
        status: failure.status.map(of_status),
        events: failure.events.into_iter().map(of_event).collect(),
        extensions: known("failure", failure.extensions)?,
    })
}

/// This host knows no extension: one that is required makes the whole answer unusable.
fn known(holder: &str, extensions: Vec<wit::ExtensionResult>) -> Result<Vec<core::Extension>, CallError> {
    let extensions = of_extensions(extensions);
    match extensions.iter().find(|extension| extension.required) {
        Some(extension) => Err(CallError::InvalidOutcome(format!(
            "its {holder} has the extension {:?}, which the module requires and this host does not know",
            extension.name
        ))),
        None => Ok(extensions),
    }
}

fn of_extensions(extensions: Vec<wit::ExtensionResult>) -> Vec<core::Extension> {
    extensions
        .into_iter()
        .map(|wit::ExtensionResult { name, required, value }| core::Extension { name, required, value })
        .collect()
}

fn of_child(child: wit::Child) -> core::Child {
    core::Child {
        object: child.object,
        on_immutable: of_on_immutable(child.on_immutable),
        on_prune: of_on_prune(child.on_prune),
        wave: child.wave,
        release: child.release,
        extensions: of_extensions(child.extensions),
    }
}

fn of_on_immutable(on_immutable: wit::OnImmutable) -> core::OnImmutable {
    match on_immutable {
        wit::OnImmutable::Fail => core::OnImmutable::Fail,
        wit::OnImmutable::Recreate => core::OnImmutable::Recreate,
    }
}

fn of_on_prune(on_prune: wit::OnPrune) -> core::OnPrune {
    match on_prune {
        wit::OnPrune::Delete => core::OnPrune::Delete,
        wit::OnPrune::Orphan => core::OnPrune::Orphan,
    }
}

fn of_status(status: wit::Status) -> core::Status {
    core::Status { fields: status.fields, conditions: status.conditions.into_iter().map(of_condition).collect() }
}

fn of_condition(condition: wit::Condition) -> core::Condition {
    core::Condition {
        type_: condition.type_,
        status: match condition.status {
            wit::ConditionStatus::True => core::ConditionStatus::True,
            wit::ConditionStatus::False => core::ConditionStatus::False,
            wit::ConditionStatus::Unknown => core::ConditionStatus::Unknown,
        },
        reason: condition.reason,
        message: condition.message,
    }
}

fn of_event(event: wit::Event) -> core::Event {
    core::Event {
        type_: match event.type_ {
            wit::EventType::Normal => core::EventType::Normal,
            wit::EventType::Warning => core::EventType::Warning,
        },
        reason: event.reason,
        message: event.message,
    }
}

pub(crate) fn descriptor(descriptor: wit_describe::Descriptor) -> core::Descriptor {
    core::Descriptor {
        name: descriptor.name,
        version: descriptor.version,
        primary: core::TypeRef { api_version: descriptor.primary.api_version, kind: descriptor.primary.kind },
        children: descriptor.children.into_iter().map(of_child_type).collect(),
        related: descriptor.related.into_iter().map(of_related_type).collect(),
        condition_types: descriptor.condition_types,
        crds: descriptor.crds,
        capabilities: descriptor
            .capabilities
            .into_iter()
            .map(|wit_describe::Capability { name, target, reason }| core::Capability { name, target, reason })
            .collect(),
        hooks: descriptor.hooks,
        field_manager: descriptor.field_manager,
        replaces_managers: descriptor.replaces_managers,
        finalizer: descriptor.finalizer,
        extensions: of_extensions(descriptor.extensions),
    }
}

fn of_child_type(child: wit_describe::ChildType) -> core::ChildType {
    core::ChildType {
        type_ref: core::TypeRef { api_version: child.api_version, kind: child.kind },
        on_immutable: of_on_immutable(child.on_immutable),
        on_prune: of_on_prune(child.on_prune),
        any_namespace: child.any_namespace,
        optional: child.optional,
    }
}

fn of_related_type(related: wit_describe::RelatedType) -> core::RelatedType {
    core::RelatedType {
        type_ref: core::TypeRef { api_version: related.api_version, kind: related.kind },
        optional: related.optional,
    }
}
