//! Steps on single children: create, change, delete, cut loose.

use super::{Again, Trouble, managed_fields, report};
use crate::api::discovery::Resource;
use crate::api::escape::escape;
use crate::api::{self, ApiError, Write};
use crate::watch::{Watches, Writer};
use http::Method;
use operator_core::answer::{Answer, Class, Request, Verb, classify};
use operator_core::contract::{ObjectName, OnImmutable};
use operator_core::names;
use operator_core::object::{Record, Stored};
use operator_core::plan::accept::Wanted;
use operator_core::plan::canonical::{ApplyBody, Owner, Precondition};
use operator_core::plan::decide::{Parent, not_ours};
use operator_core::reconciled::{Problem, Reason};
use operator_core::table::Lookup;
use serde_json::{Value, json};
use std::sync::Arc;

/// What all steps of one primary share.
pub(crate) struct Applier<'a> {
    pub(crate) writer: Writer<'a>,
    pub(crate) watches: &'a Watches,
    pub(crate) installation: &'a str,
    /// The primary as an owner.
    pub(crate) owner: Owner<'a>,
    pub(crate) parent: Parent<'a>,
    /// Field managers of an earlier operator.
    pub(crate) replaces: &'a [String],
}

/// One step on one child.
pub(crate) enum Step {
    /// Make it where nothing is.
    Create(Arc<Wanted>),
    /// Apply it to the object that is there and ours.
    Change(Arc<Wanted>, Arc<Stored>),
    /// Take the entry `before-first-apply` out of its managedFields.
    Disown(Arc<Stored>),
    /// Delete exactly this state of it.
    Delete(Arc<Stored>),
    /// Leave it in the cluster, no longer ours.
    Orphan(Arc<Stored>),
}

impl Step {
    /// The object that the step is about; None where nothing is yet.
    pub(crate) fn live(&self) -> Option<&Arc<Stored>> {
        match self {
            Self::Create(_) => None,
            Self::Change(_, live) | Self::Disown(live) | Self::Delete(live) | Self::Orphan(live) => Some(live),
        }
    }
}

/// What a step did.
pub(crate) enum Written {
    /// The server's copy after a create.
    Created(Arc<Stored>),
    /// The server's copy after a change.
    Changed(Arc<Stored>),
    /// Deleted, or on its way.
    Deleted,
    /// Deleted in order to be made anew when it is gone.
    Recreating,
    /// Cut loose.
    Orphaned,
    /// Nothing: the server knew more than the table, which the next round looks at.
    Learned,
}

impl Applier<'_> {
    /// Takes one step on a child of this resource.
    ///
    /// # Errors
    /// What is in the way, and when to try again.
    pub(crate) async fn take(&self, resource: &Resource, step: &Step) -> Result<Written, Trouble> {
        match step {
            Step::Create(wanted) => self.create(resource, wanted).await,
            Step::Change(wanted, live) => self.change(resource, wanted, live).await,
            Step::Disown(live) => self.disown(resource, live).await.map(Written::Changed),
            Step::Delete(live) => self.delete(resource, live, Written::Deleted).await,
            Step::Orphan(live) => self.orphan(resource, live).await.map(|()| Written::Orphaned),
        }
    }

    /// An apply with a resourceVersion that no object has: made where nothing is, refused where anything is.
    async fn create(&self, resource: &Resource, wanted: &Wanted) -> Result<Written, Trouble> {
        let about = about(resource, Verb::ApplyCreate, &wanted.desired.name);
        let answer = match self.apply(resource, wanted, Precondition::Absent, self.owner, &about).await? {
            Ok(stored) => return Ok(Written::Created(stored)),
            Err(answer) => answer,
        };
        match classify(&answer, &about) {
            // Something is there: ours, which the table did not know, or somebody else's.
            Class::Refuse | Class::Conflict => self.look_and_take(resource, wanted).await,
            _ if wants_no_version(&answer) => self.create_without_version(resource, wanted).await,
            class => Err(self.refused(wanted, None, &answer, class, &about)),
        }
    }

    /// For servers that can't take a resourceVersion on an absent object: look first, apply, and look at the answer.
    async fn create_without_version(&self, resource: &Resource, wanted: &Wanted) -> Result<Written, Trouble> {
        if !matches!(self.watches.read(self.writer.api, resource, &wanted.desired.name).await, Ok(Lookup::Absent)) {
            return self.look_and_take(resource, wanted).await;
        }
        let about = about(resource, Verb::Apply, &wanted.desired.name);
        match self.apply(resource, wanted, Precondition::Any, self.owner, &about).await? {
            Ok(stored) => match not_ours(&stored, self.parent) {
                None => Ok(Written::Created(stored)),
                Some(why) => Err(self.not_owned(wanted, &why)),
            },
            Err(answer) => {
                let class = classify(&answer, &about);
                Err(self.refused(wanted, None, &answer, class, &about))
            }
        }
    }

    /// Reads what stands where a child was to be made, and sets it right where it is ours but carries no label of ours, so that no watch
    /// selects it: the label was removed, or the installation had another id, while no host ran.
    async fn look_and_take(&self, resource: &Resource, wanted: &Wanted) -> Result<Written, Trouble> {
        match self.watches.read(self.writer.api, resource, &wanted.desired.name).await {
            Ok(Lookup::Present(stored))
                if not_ours(&stored, self.parent).is_none()
                    && !stored.meta.terminating
                    && stored.meta.installation.as_deref() != Some(self.installation) =>
            {
                self.change(resource, wanted, &stored).await
            }
            found => self.judge(resource, wanted, found),
        }
    }

    /// Reads what stands where an object of ours was.
    async fn look(&self, resource: &Resource, wanted: &Wanted) -> Result<Written, Trouble> {
        let found = self.watches.read(self.writer.api, resource, &wanted.desired.name).await;
        self.judge(resource, wanted, found)
    }

    fn judge(&self, resource: &Resource, wanted: &Wanted, found: Result<Lookup, ApiError>) -> Result<Written, Trouble> {
        match found {
            Ok(Lookup::Present(stored)) => match not_ours(&stored, self.parent) {
                None => Ok(Written::Learned),
                Some(why) => {
                    // From now on the table knows what stands there, so that no pass tries again before it goes.
                    if self.watches.watch_name(&resource.type_ref, &wanted.desired.name) {
                        self.watches.seen(resource, &stored);
                    }
                    Err(self.taken(wanted, &stored, why))
                }
            },
            Ok(Lookup::Unreadable(object)) => Err(self.in_the_way(wanted, Reason::ApplyFailed, &object.message)),
            // Gone again: the next round makes it.
            Ok(Lookup::Absent) => Ok(Written::Learned),
            Err(error) => Err(self.no_answer(wanted, &error)),
        }
    }

    async fn change(&self, resource: &Resource, wanted: &Wanted, live: &Arc<Stored>) -> Result<Written, Trouble> {
        let about = about(resource, Verb::Apply, &wanted.desired.name);
        self.move_ownership(resource, wanted, live).await?;
        // The version of the type in the owner reference stays as it is: a newer one writes nothing.
        let owner = match live.meta.controller.as_deref() {
            Some(controller) => Owner { type_ref: &controller.type_ref, ..self.owner },
            None => self.owner,
        };
        let answer = match self.apply(resource, wanted, Precondition::Uid(&live.meta.uid), owner, &about).await? {
            Ok(stored) if stored.owned.record() == Record::BeforeFirstApply => {
                return self.disown(resource, &stored).await.map(Written::Changed);
            }
            Ok(stored) => return Ok(Written::Changed(stored)),
            Err(answer) => answer,
        };
        match classify(&answer, &about) {
            Class::Refuse | Class::Conflict | Class::NotFound => self.look(resource, wanted).await,
            Class::Immutable if wanted.on_immutable == OnImmutable::Recreate => {
                self.recreate(resource, wanted, live, &answer, &about).await
            }
            class => Err(self.refused(wanted, Some(live), &answer, class, &about)),
        }
    }

    /// Brings who owns what to where an apply does what is meant: what an earlier operator's managers own becomes ours before our first
    /// apply, so that what is no longer wanted goes; what is handed to others is ours no longer, so that it stays.
    async fn move_ownership(&self, resource: &Resource, wanted: &Wanted, live: &Arc<Stored>) -> Result<(), Trouble> {
        let owned = live.owned.applied(self.parent.manager);
        let takes_over = owned.is_none() && !self.replaces.is_empty();
        let hands_over = owned.is_some_and(|owned| wanted.released.iter().any(|path| owned.has_path(path)));
        if !takes_over && !hands_over {
            return Ok(());
        }
        let about = about(resource, Verb::Get, &live.meta.name);
        let path = resource.object(&live.meta.name);
        let bytes = self.writer.api.get(&path).await.map_err(|error| self.failed(resource, live, &error, &about))?;
        let (uid, manager) = (&*live.meta.uid, self.parent.manager);
        let patch = match takes_over {
            true => managed_fields::taken_over(&bytes, uid, self.replaces, manager),
            false => managed_fields::handed_over(&bytes, uid, manager, &wanted.released),
        };
        match patch.map_err(|error| unreadable(resource, live, &error))? {
            Some(patch) => self.merge_patch(resource, live, &patch).await.map(drop),
            None => Ok(()),
        }
    }

    /// One apply. The outer error says that there was no answer, the inner one what the answer was.
    pub(super) async fn apply(
        &self,
        resource: &Resource,
        wanted: &Wanted,
        precondition: Precondition<'_>,
        owner: Owner<'_>,
        about: &Request<'_>,
    ) -> Result<Result<Arc<Stored>, Answer>, Trouble> {
        let desired = &wanted.desired;
        let body = ApplyBody { installation: self.installation, on_prune: wanted.on_prune, owner, precondition };
        let write = Write {
            method: Method::PATCH,
            path: self.apply_path(resource, &desired.name),
            content_type: api::APPLY,
            body: body.render(desired),
            about: *about,
        };
        match self.watches.write(self.writer, resource, &desired.name, write).await {
            Ok(stored) => {
                report::differences(desired, &stored);
                Ok(Ok(stored))
            }
            Err(ApiError::Answer(answer)) => Ok(Err(*answer)),
            Err(error) => Err(self.no_answer(wanted, &error)),
        }
    }
}

/// The rest of the steps.
impl Applier<'_> {
    /// Deletes exactly the state that was looked at. Where another stands there by now, nothing is done but to learn of it.
    pub(super) async fn delete(
        &self,
        resource: &Resource,
        live: &Arc<Stored>,
        deleted: Written,
    ) -> Result<Written, Trouble> {
        let about = about(resource, Verb::Delete, &live.meta.name);
        let preconditions =
            json!({ "uid": &*live.meta.uid, "resourceVersion": live.meta.resource_version.to_string() });
        let write = Write {
            method: Method::DELETE,
            path: resource.object(&live.meta.name),
            content_type: api::JSON,
            body: json!({
                "kind": "DeleteOptions", "apiVersion": "v1",
                "propagationPolicy": "Background", "preconditions": preconditions,
            })
            .to_string(),
            about,
        };
        match self.watches.delete(self.writer, resource, live, write).await {
            Ok(()) => Ok(deleted),
            Err(ApiError::Answer(answer)) if matches!(classify(&answer, &about), Class::Conflict | Class::Refuse) => {
                let read = self.watches.read(self.writer.api, resource, &live.meta.name).await;
                read.map(|_| Written::Learned).map_err(|error| self.failed(resource, live, &error, &about))
            }
            Err(error) => Err(self.failed(resource, live, &error, &about)),
        }
    }

    /// Makes a child independent: without our owner reference the garbage collector leaves it when the primary goes.
    async fn orphan(&self, resource: &Resource, live: &Arc<Stored>) -> Result<(), Trouble> {
        let others: Vec<_> = live.owner_references().into_iter().filter(|owner| owner.uid != self.parent.uid).collect();
        let patch = json!({ "metadata": {
            "uid": &*live.meta.uid,
            "resourceVersion": live.meta.resource_version.to_string(),
            "labels": { names::INSTALLATION_LABEL: null },
            "annotations": { names::DESIRED_ANNOTATION: null, names::ON_PRUNE_ANNOTATION: null, names::CONTROLLER_ANNOTATION: null },
            "ownerReferences": others,
        } });
        self.merge_patch(resource, live, &patch).await.map(drop)
    }

    /// Takes the entry that the server made for all that stood there when managedFields were wiped out again: as a co-owner it would keep
    /// fields that are dropped later.
    async fn disown(&self, resource: &Resource, live: &Arc<Stored>) -> Result<Arc<Stored>, Trouble> {
        let about = about(resource, Verb::Get, &live.meta.name);
        let path = resource.object(&live.meta.name);
        let bytes = self.writer.api.get(&path).await.map_err(|error| self.failed(resource, live, &error, &about))?;
        let patch = managed_fields::without_before_first_apply(&bytes, &live.meta.uid);
        let patch = patch.map_err(|error| unreadable(resource, live, &error))?;
        self.merge_patch(resource, live, &patch).await
    }

    async fn merge_patch(
        &self,
        resource: &Resource,
        live: &Arc<Stored>,
        patch: &Value,
    ) -> Result<Arc<Stored>, Trouble> {
        let about = about(resource, Verb::MergePatch, &live.meta.name);
        let write = Write {
            method: Method::PATCH,
            path: format!("{}?fieldManager={}", resource.object(&live.meta.name), escape(self.parent.manager)),
            content_type: api::MERGE_PATCH,
            body: patch.to_string(),
            about,
        };
        let result = self.watches.write(self.writer, resource, &live.meta.name, write).await;
        result.map_err(|error| self.failed(resource, live, &error, &about))
    }

    pub(super) fn apply_path(&self, resource: &Resource, name: &ObjectName) -> String {
        format!("{}?fieldManager={}&force=true", resource.object(name), escape(self.parent.manager))
    }
}

fn unreadable(resource: &Resource, live: &Stored, error: &serde_json::Error) -> Trouble {
    let text = format!("managedFields are unreadable: {error}");
    let problem = Problem::of_child(Reason::ApplyFailed, &resource.type_ref, &live.meta.name, text);
    Trouble { problem, again: Again::BACKOFF, stands: false }
}

/// Some servers answer an apply with a version on an absent object by one of these.
fn wants_no_version(answer: &Answer) -> bool {
    (answer.code == 500 && answer.message.contains("resourceVersion should not be set"))
        || (answer.code == 404 && !answer.details.name.is_empty() && !answer.is_missing_type())
}

pub(super) fn about<'a>(resource: &'a Resource, verb: Verb, name: &'a ObjectName) -> Request<'a> {
    Request {
        verb,
        type_ref: &resource.type_ref,
        plural: &resource.plural,
        namespace: name.namespace.as_deref(),
        name: Some(&name.name),
    }
}
