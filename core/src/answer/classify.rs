//! The one table of what answers mean. Texts are those of Kubernetes 1.36; where one is missing in an older or newer
//! server the answer falls back to what its code says.

use super::{Answer, Cause, Class, Request, Verb};
use crate::breaker::Signal;

/// In the messages of validation, for fields that can't be changed: `field is immutable`, `spec is immutable after
/// creation` and CRDs' own rules; addresses of Services; `roleRef`; specs of StatefulSets; specs of Pods.
const IMMUTABLE: [&str; 5] = [
    "immutable",
    "may not change once set",
    "cannot change roleRef",
    "updates to statefulset spec for fields other than",
    "may not change fields other than",
];
/// 403s of ResourceQuota and LimitRanger (`plugin/pkg/admission/resourcequota`, `limitranger`).
const QUOTA: [&str; 5] =
    ["exceeded quota: ", "failed quota: ", "status unknown for quota: ", " usage per ", "limit to request ratio per "];
/// 403s of what is being deleted.
const TERMINATING: [&str; 2] = ["because it is being terminated", "while custom resource definition is terminating"];
/// 500s that are the request's fault.
const BAD_REQUEST: [&str; 6] = [
    "failed to create typed patch object",
    "failed to convert new object",
    "strconv.ParseUint",
    "resourceVersion should not be set on objects to be created",
    "trying to send message larger than max",
    "request is too large",
];
/// 500s of somebody's webhook.
const WEBHOOK: [&str; 2] = ["failed calling webhook", "conversion webhook for "];
/// A webhook that answered, and said no.
const DENIED: &str = "denied the request";
/// 429s that are not the server's load: a disruption budget, and a type that has just been made.
const OWN_429: [&str; 2] = ["disruption budget", "storage is (re)initializing"];

/// What an answer to a request means.
pub fn classify(answer: &Answer, request: &Request<'_>) -> Class {
    match answer.code {
        0..=299 => success(answer, request),
        400 if says(answer, &[DENIED, "Name parameter invalid"]) => Class::Invalid,
        400 | 405 | 406 | 413 | 415 => Class::ModuleError,
        401 => Class::Forbidden,
        403 => forbidden(answer),
        // No route leads to a name with a slash.
        404 if request.name.is_some_and(|name| name.contains('/')) => Class::Invalid,
        404 => Class::NotFound,
        409 => conflict(answer, request),
        410 => Class::Gone,
        422 => unprocessable(answer, request),
        429 if says(answer, &[DENIED]) => Class::Retry,
        429 => Class::TooMany,
        500 if says(answer, &BAD_REQUEST) && !says(answer, &WEBHOOK) => Class::ModuleError,
        _ => Class::Retry,
    }
}

/// What an answer says of the API server as a whole. A 500 or 429 that a webhook, a patch, a conversion or a budget
/// explains says nothing against it, and neither does a version of ours that it does not have yet.
pub fn signal(answer: &Answer, request: &Request<'_>) -> Signal {
    match answer.code {
        429 if !says(answer, &[DENIED]) && !says(answer, &OWN_429) => {
            Signal::Throttled { retry_after: answer.retry_after }
        }
        502..=504 if !answer.is_version_ahead() => Signal::Unavailable,
        500 if !says(answer, &BAD_REQUEST) && !says(answer, &WEBHOOK) => {
            Signal::ServerError { type_ref: request.type_ref.clone(), namespace: request.namespace.map(str::to_owned) }
        }
        _ => Signal::Success,
    }
}

fn success(answer: &Answer, request: &Request<'_>) -> Class {
    match request.verb {
        // What is applied to an object that is being deleted is lost with it.
        Verb::Apply | Verb::ApplyCreate if answer.terminating => Class::Terminating,
        Verb::Apply | Verb::ApplyCreate if is_yaml_duplicate(answer) => Class::ModuleError,
        // A watch from a version that the server does not have yet is open and silent.
        Verb::Watch if answer.empty => Class::Retry,
        _ => Class::Ok,
    }
}

/// One of the two values of a key that stood twice was taken.
fn is_yaml_duplicate(answer: &Answer) -> bool {
    answer.warnings.iter().any(|warning| warning.contains("already set in map"))
}

fn forbidden(answer: &Answer) -> Class {
    if answer.is_namespace_terminating() || says(answer, &TERMINATING) {
        return Class::Terminating;
    }
    // A policy's own words may speak of quotas.
    let is_denial = says(answer, &[DENIED, "denied request"]);
    if !is_denial && says(answer, &QUOTA) { Class::Quota } else { Class::Forbidden }
}

fn conflict(answer: &Answer, request: &Request<'_>) -> Class {
    let about = &answer.details.kind;
    if !about.is_empty()
        && !about.eq_ignore_ascii_case(request.plural)
        && !about.eq_ignore_ascii_case(&request.type_ref.kind)
    {
        // Somebody else's conflict on the way, as of a quota that several creates count on.
        return Class::Retry;
    }
    match request.verb {
        Verb::Delete => Class::Conflict,
        // Whoever made the Lease first holds it: an election lost, not a name taken.
        Verb::Create if request.plural == "leases" => Class::Conflict,
        Verb::Create | Verb::ApplyCreate => Class::Refuse,
        _ if says(answer, &["uid mismatch", "Precondition failed: UID"]) => Class::Refuse,
        _ => Class::Conflict,
    }
}

fn unprocessable(answer: &Answer, request: &Request<'_>) -> Class {
    if says(answer, &[DENIED, "denied request"]) {
        return Class::Invalid;
    }
    if answer.details.group == "meta.k8s.io" && answer.details.kind.ends_with("Options") {
        return Class::ModuleError;
    }
    if causes(answer, |cause| cause.field == "metadata.uid") {
        return Class::Refuse;
    }
    if causes(answer, |cause| cause.message.contains("no new finalizers can be added")) {
        return Class::Terminating;
    }
    // The patch could not be read, or the object as a whole is too large.
    if causes(answer, |cause| cause.field == "patch" && answer.details.kind.is_empty() || cause.field == "[]") {
        return Class::ModuleError;
    }
    if matches!(request.verb, Verb::JsonPatch { tested: true }) && answer.details.causes.is_empty() {
        return Class::Conflict;
    }
    let is_immutable = |cause: &Cause| IMMUTABLE.iter().any(|text| cause.message.contains(text));
    if causes(answer, is_immutable) { Class::Immutable } else { Class::Invalid }
}

fn says(answer: &Answer, texts: &[&str]) -> bool {
    texts.iter().any(|text| answer.message.contains(text))
}

fn causes(answer: &Answer, is: impl Fn(&Cause) -> bool) -> bool {
    answer.details.causes.iter().any(is)
}
