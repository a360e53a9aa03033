//! What may be sent without a permit though it asks for a change: a closed list.

use super::discovery::Resource;
use super::{ApiError, ApiServer, GRACE, JSON, TIMEOUT, collect, request, with_query, within};
use bytes::Bytes;
use http::Method;
use operator_core::contract::{ObjectName, TypeRef};
use std::fmt;
use std::time::Duration;

/// Longest wait for the answer to a review: somebody waits for a page.
const REVIEW: Duration = Duration::from_secs(5);

/// The whole list.
#[derive(Debug)]
pub enum Exempt<'a> {
    /// Changes nothing: the server only says whether it would accept it.
    DryRun {
        /// Path and query of a PATCH.
        path: &'a str,
        /// Media type of the body.
        content_type: &'static str,
        /// The body.
        body: String,
    },
    /// Asks who has a token, or what somebody may do: an answer, of which nothing is kept.
    Review {
        /// Which of the two.
        review: Review,
        /// The body.
        body: String,
    },
    /// Makes the Lease that permits come from.
    CreateLease {
        /// Which.
        lease: &'a LeaseName,
        /// The body.
        body: String,
        /// How long the answer is waited for.
        limit: Duration,
    },
    /// Acquires, renews or releases the Lease that permits come from.
    ReplaceLease {
        /// Which.
        lease: &'a LeaseName,
        /// The body.
        body: String,
        /// How long the answer is waited for.
        limit: Duration,
    },
}

/// A question to the API server that has the form of a create.
#[derive(Clone, Copy, Debug)]
pub enum Review {
    /// Whose token is this? (`authentication.k8s.io/v1` TokenReview)
    Token,
    /// May this user do that? (`authorization.k8s.io/v1` SubjectAccessReview)
    SubjectAccess,
}

impl Review {
    fn path(self) -> &'static str {
        match self {
            Self::Token => "/apis/authentication.k8s.io/v1/tokenreviews",
            Self::SubjectAccess => "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        }
    }
}

/// A Lease by its namespace and name.
#[derive(Clone, Debug)]
pub struct LeaseName(ObjectName);

impl LeaseName {
    /// The Lease of this name in this namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(ObjectName::new(Some(namespace), name))
    }

    /// `coordination.k8s.io/v1`, `Lease`.
    pub fn type_ref() -> TypeRef {
        TypeRef::new("coordination.k8s.io/v1", "Lease")
    }

    /// Namespace and name.
    pub fn name(&self) -> &ObjectName {
        &self.0
    }

    /// Path of the Lease.
    pub fn path(&self) -> String {
        Self::resource().object(&self.0)
    }

    fn collection(&self) -> String {
        Self::resource().collection(self.0.namespace.as_deref())
    }

    fn resource() -> Resource {
        Resource { type_ref: Self::type_ref(), plural: "leases".into(), namespaced: true, status: false }
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ApiServer {
    /// Sends what needs no permit.
    ///
    /// # Errors
    /// No answer, or one that is no success.
    pub async fn write_exempt(&self, write: Exempt<'_>) -> Result<Bytes, ApiError> {
        // What the server did not do in time it shall not do later.
        let timeout =
            |path: String, limit: Duration| with_query(&path, &format!("timeout={}ms", limit.as_millis().max(1)));
        let (method, path, content_type, body, limit) = match write {
            Exempt::DryRun { path, content_type, body } => {
                (Method::PATCH, with_query(path, "dryRun=All"), content_type, body, TIMEOUT + GRACE)
            }
            Exempt::Review { review, body } => {
                (Method::POST, timeout(review.path().to_owned(), REVIEW), JSON, body, REVIEW)
            }
            Exempt::CreateLease { lease, body, limit } => {
                (Method::POST, timeout(lease.collection(), limit), JSON, body, limit)
            }
            Exempt::ReplaceLease { lease, body, limit } => {
                (Method::PUT, timeout(lease.path(), limit), JSON, body, limit)
            }
        };
        let request = request(method, &path, Some(content_type), body)?;
        within(limit, async { collect(self.send(request).await?).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lease_can_be_named() {
        let lease = LeaseName::new("system", "operator-host-default");
        assert_eq!(lease.path(), "/apis/coordination.k8s.io/v1/namespaces/system/leases/operator-host-default");
        assert_eq!(lease.collection(), "/apis/coordination.k8s.io/v1/namespaces/system/leases");
        assert_eq!(lease.to_string(), "system/operator-host-default");
    }
}
