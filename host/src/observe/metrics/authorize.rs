//! Who may read `/metrics`: whoever the API server says may `get` that path, by their bearer token.
//!
//! As controller-runtime's `filters.WithAuthenticationAndAuthorization`: a TokenReview says whose token it is, a SubjectAccessReview
//! whether they may. Answers are kept for a minute, by the digest of the token: a scraper asks again and again.

use crate::api::exempt::{Exempt, Review};
use crate::api::{ApiError, ApiServer};
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// How long an answer is believed.
const KEPT: Duration = Duration::from_secs(60);
/// Tokens that answers are kept of: anybody may send some.
const TOKENS: usize = 64;
/// Longest token that is asked about.
const TOKEN_BYTES: usize = 16 << 10;

type TokenDigest = [u8; 32];
/// Ok, or how the request is refused.
type Answer = Result<(), StatusCode>;

/// Asks the API server who may read the page.
pub struct Authorizer {
    api: Arc<ApiServer>,
    known: Mutex<HashMap<TokenDigest, (Answer, Instant)>>,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").finish_non_exhaustive()
    }
}

impl Authorizer {
    /// One that asks this server.
    pub fn new(api: Arc<ApiServer>) -> Self {
        Self { api, known: Mutex::default() }
    }

    /// Whether the request may be answered: 401 without a token that the server knows, 403 where its owner may not, 503 where nobody can
    /// be asked.
    pub(super) async fn check(&self, headers: &HeaderMap) -> Answer {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|text| text.strip_prefix("Bearer ")).map(str::trim);
        let token = token.filter(|token| (1..=TOKEN_BYTES).contains(&token.len())).ok_or(StatusCode::UNAUTHORIZED)?;
        let digest = Sha256::digest(token).into();
        if let Some(answer) = self.remembered(&digest) {
            return answer;
        }
        let answer = match self.ask(token).await {
            Ok(answer) => answer,
            Err(error) => {
                warn!(%error, "can't ask the API server who may read /metrics; grant create on tokenreviews and subjectaccessreviews");
                return Err(StatusCode::SERVICE_UNAVAILABLE);
            }
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOKENS {
            known.retain(|_, (_, since)| since.elapsed() < KEPT);
        }
        if known.len() < TOKENS {
            known.insert(digest, (answer, Instant::now()));
        }
        answer
    }

    fn remembered(&self, digest: &TokenDigest) -> Option<Answer> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).filter(|(_, since)| since.elapsed() < KEPT).map(|(answer, _)| *answer)
    }

    async fn ask(&self, token: &str) -> Result<Answer, ApiError> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
        });
        let status: TokenStatus = self.review(Review::Token, &body).await?;
        let Some(User { username, uid, groups, extra }) = status.user.filter(|_| status.authenticated) else {
            return Ok(Err(StatusCode::UNAUTHORIZED));
        };
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": username, "uid": uid, "groups": groups, "extra": extra,
                "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
            },
        });
        let status: AccessStatus = self.review(Review::SubjectAccess, &body).await?;
        Ok(if status.allowed { Ok(()) } else { Err(StatusCode::FORBIDDEN) })
    }

    async fn review<T: for<'a> Deserialize<'a>>(&self, review: Review, body: &Value) -> Result<T, ApiError> {
        #[derive(Deserialize)]
        struct Reviewed<T> {
            status: T,
        }
        let bytes = self.api.write_exempt(Exempt::Review { review, body: body.to_string() }).await?;
        let answer: Result<Reviewed<T>, _> = serde_json::from_slice(&bytes);
        answer.map(|answer| answer.status).map_err(|error| ApiError::Transport {
            message: format!("the answer to a review can't be read: {error}"),
            unsent: false,
        })
    }
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    user: Option<User>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    uid: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    extra: Option<HashMap<String, Vec<String>>>,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
}
