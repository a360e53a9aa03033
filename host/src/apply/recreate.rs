//! Delete and make anew, where a field can't be changed and the child's policy allows it.
//!
//! Only the delete happens here: that the object is gone is the watch's to tell, and a pass that finds nothing makes it. So a host that
//! dies in between loses nothing.

use super::child::{Applier, Written, about};
use super::{Again, Trouble};
use crate::api::discovery::Resource;
use crate::api::exempt::Exempt;
use crate::api::{self, ApiError};
use operator_core::answer::{Answer, Class, Request, Verb, classify, message};
use operator_core::contract::ObjectName;
use operator_core::object::Stored;
use operator_core::plan::accept::Wanted;
use operator_core::plan::canonical::{ApplyBody, Precondition};
use operator_core::reconciled::{Problem, Reason};
use std::sync::Arc;

/// Longest name that takes the probe's suffix: 63 is what a label, and so many a type, carries.
const NAME_MAX: usize = 63;
const SUFFIX: &str = "-probe";

impl Applier<'_> {
    /// Deletes the child if the server would accept its successor. `refusal` is the server's word on the immutable field.
    pub(super) async fn recreate(
        &self,
        resource: &Resource,
        wanted: &Wanted,
        live: &Arc<Stored>,
        refusal: &Answer,
        about: &Request<'_>,
    ) -> Result<Written, Trouble> {
        self.probe(resource, wanted, live).await.map_err(|why| {
            let desired = &wanted.desired;
            let text = format!("{}; not made anew, as {why}", message(refusal, Class::Immutable, about));
            let problem = Problem::of_child(Reason::ChildImmutable, &desired.type_ref, &desired.name, text);
            Trouble { problem, again: Again::BACKOFF, stands: false }
        })?;
        self.delete(resource, live, Written::Recreating).await
    }

    /// A dry-run create under another name: whether the server would take the new object. What it can't tell, as the live object holds what
    /// the new one asks for (a node port, a cluster IP), counts as a no.
    async fn probe(&self, resource: &Resource, wanted: &Wanted, live: &Stored) -> Result<(), String> {
        let desired = &wanted.desired;
        let kept =
            desired.name.name.char_indices().map(|(at, _)| at).take_while(|at| *at <= NAME_MAX - SUFFIX.len()).last();
        let stem = &desired.name.name[..kept.unwrap_or(0).min(desired.name.name.len())];
        let stem = if desired.name.name.len() + SUFFIX.len() <= NAME_MAX { &desired.name.name } else { stem };
        let name = format!("{}{SUFFIX}", stem.trim_end_matches(['-', '.']));

        let mut probe = desired.clone();
        probe.name = ObjectName::new(desired.name.namespace.as_deref(), &name);
        probe.value["metadata"]["name"] = name.into();
        let body = ApplyBody {
            installation: self.installation,
            on_prune: wanted.on_prune,
            owner: self.owner,
            precondition: Precondition::Absent,
        };
        let path = self.apply_path(resource, &probe.name);
        let dry_run = Exempt::DryRun { path: &path, content_type: api::APPLY, body: body.render(&probe) };
        match self.writer.api.write_exempt(dry_run).await {
            Ok(_) => Ok(()),
            Err(ApiError::Answer(answer)) => {
                let about = about(resource, Verb::ApplyCreate, &probe.name);
                Err(format!("the server would refuse it: {}", message(&answer, classify(&answer, &about), &about)))
            }
            Err(error) => {
                tracing::warn!(object = %live.meta.name, %error, "no answer to a probe");
                Err("the server did not say whether it would accept it".to_owned())
            }
        }
    }
}
