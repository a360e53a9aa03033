//! An API server with one Lease: optimistic concurrency, and a list of what it was asked.

use super::super::{Answer, Lease, Request};
use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Server {
    document: Option<Value>,
    version: u64,
    pub(super) requests: Vec<Request>,
}

impl Server {
    pub(super) fn serve(&mut self, request: &Request) -> Answer {
        self.requests.push(request.clone());
        match (request, &self.document) {
            (Request::Get, Some(_)) => {}
            (Request::Create(body), None) => self.put(body),
            (Request::Create(_), Some(_)) => return Answer::Conflict,
            (Request::Replace(body), Some(document)) => {
                let body_version =
                    serde_json::from_str::<Value>(body).expect("JSON")["metadata"]["resourceVersion"].take();
                if body_version != document["metadata"]["resourceVersion"] {
                    return Answer::Conflict;
                }
                self.put(body);
            }
            (Request::Get | Request::Replace(_), None) => return Answer::Absent,
        }
        self.lease().map_or(Answer::Absent, Answer::Lease)
    }

    pub(super) fn put(&mut self, body: &str) {
        let document = serde_json::from_str(body).expect("JSON");
        self.document = Some(document);
        self.edit(|_| {});
    }

    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        let document = self.document.as_mut().expect("there is a Lease");
        edit(document);
        self.version += 1;
        document["metadata"]["resourceVersion"] = self.version.to_string().into();
    }

    pub(super) fn delete(&mut self) {
        self.document = None;
    }

    pub(super) fn document(&self) -> &Value {
        self.document.as_ref().expect("there is a Lease")
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.document.as_ref().map(|document| Lease::parse(document.to_string().as_bytes()).expect("a Lease"))
    }
}
