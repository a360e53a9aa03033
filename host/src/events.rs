//! Events on primaries: what modules and the host have to say to people who `kubectl describe` an object.
//!
//! A pass only puts them into a bounded queue; one task brings them to the API server, equal ones as one (`operator_core::events`). They are
//! never worth waiting for: what does not fit, or fails a few times, is dropped and counted. Each needs a permit like any other write, so
//! that they end with the term.

use crate::api::discovery::Resource;
use crate::api::escape::escape;
use crate::api::{self, ApiError, ApiServer, Write};
use crate::lead::{Permits, identity};
use crate::module::log;
use crate::observe::metrics::EventCounts;
use http::Method;
use operator_core::answer::{Answer, Request, Verb};
use operator_core::contract::{EventType, ObjectName, TypeRef};
use operator_core::events::{Correlator, Verdict};
use operator_core::object::Stored;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// Events that wait to be sent.
const WAITING: usize = 1024;
/// Events that are remembered (client-go `maxLruCacheEntries`).
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Longest `note` (`pkg/apis/core/validation/events.go`).
const NOTE_BYTES: usize = 1024;
/// Longest `reason`, `action`, `reportingController` and `reportingInstance`.
const WORD_BYTES: usize = 128;
/// Longest name of an object, less what is added to it.
const STEM_BYTES: usize = 253 - 26;
/// How often one is sent that gets no answer.
const TRIES: u32 = 3;
/// Field manager where a count is written.
const MANAGER: &str = "operator-host";

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) type_: EventType,
    /// CamelCase.
    pub(crate) reason: String,
    /// For people.
    pub(crate) note: String,
}

impl Event {
    /// What is worth knowing.
    pub(crate) fn normal(reason: &str, note: String) -> Self {
        Self { type_: EventType::Normal, reason: reason.to_owned(), note }
    }

    /// What is wrong.
    pub(crate) fn warning(reason: &str, note: String) -> Self {
        Self { type_: EventType::Warning, reason: reason.to_owned(), note }
    }
}

/// The object that an event is about, and who says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct About {
    type_ref: Arc<TypeRef>,
    name: ObjectName,
    uid: Arc<str>,
    module: Arc<str>,
}

/// Where events are put. Clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<(About, Event)>,
    counts: EventCounts,
}

impl Events {
    /// Starts to bring events to the API server; to be run by whoever holds the runtime.
    pub(crate) fn start(
        api: Arc<ApiServer>,
        permits: Permits,
        counts: EventCounts,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, waiting) = mpsc::channel(WAITING);
        let recorder = Recorder {
            api,
            permits,
            counts: counts.clone(),
            instance: log::clean(&identity(), WORD_BYTES),
            correlator: Correlator::new(REMEMBERED),
            names: Names::new(),
            said: HashSet::new(),
        };
        (Self { queue, counts }, recorder.run(waiting))
    }

    /// Tells what happened to an object of this module. Never waits.
    pub(crate) fn record(&self, module: &Arc<str>, object: &Stored, event: Event) {
        let meta = &object.meta;
        let about = About {
            type_ref: Arc::clone(&meta.type_ref),
            name: meta.name.clone(),
            uid: Arc::clone(&meta.uid),
            module: Arc::clone(module),
        };
        let Event { type_, reason, note } = event;
        let event = Event { type_, reason: log::clean(&reason, WORD_BYTES), note: log::clean(&note, NOTE_BYTES) };
        if self.queue.try_send((about, event)).is_err() {
            self.counts.dropped.inc();
        }
    }
}

/// Names of Events: those of their objects, with a number that no other process has.
struct Names {
    start: u64,
}

impl Names {
    fn new() -> Self {
        Self { start: fastrand::u64(..) }
    }

    fn of(&self, object: &ObjectName, number: u64) -> ObjectName {
        let stem = log::clean(&object.name, STEM_BYTES);
        let namespace = object.namespace.as_deref().unwrap_or("default");
        ObjectName::new(Some(namespace), &format!("{stem}.{:016x}", self.start.wrapping_add(number)))
    }
}

struct Recorder {
    api: Arc<ApiServer>,
    permits: Permits,
    counts: EventCounts,
    instance: String,
    correlator: Correlator<About, Event>,
    names: Names,
    said: HashSet<String>,
}

impl Recorder {
    async fn run(mut self, mut waiting: mpsc::Receiver<(About, Event)>) {
        while let Some((about, event)) = waiting.recv().await {
            match self.correlator.happened(&about, &event, Instant::now()) {
                Verdict::Create { number } => {
                    let (path, body) =
                        (resource().collection(self.namespace(&about)), self.body(&about, &event, number));
                    let name = self.names.of(&about.name, number);
                    self.send(&about, &event, &name, Method::POST, path, api::JSON, body).await;
                }
                Verdict::Repeat { number, count } => {
                    let name = self.names.of(&about.name, number);
                    let path = format!("{}?fieldManager={}", resource().object(&name), escape(MANAGER));
                    let body = json!({ "series": { "count": count, "lastObservedTime": now() } });
                    self.send(&about, &event, &name, Method::PATCH, path, api::MERGE_PATCH, body).await;
                }
                Verdict::Counted => drop(self.counts.counted.inc()),
                Verdict::TooMany => drop(self.counts.limited.inc()),
            }
        }
    }

    fn namespace<'a>(&self, about: &'a About) -> Option<&'a str> {
        Some(about.name.namespace.as_deref().unwrap_or("default"))
    }

    fn body(&self, about: &About, event: &Event, number: u64) -> Value {
        let name = self.names.of(&about.name, number);
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": &*name.name, "namespace": name.namespace.as_deref() },
            "eventTime": now(),
            "reportingController": log::clean(&format!("operatorhost.dev/{}", about.module), WORD_BYTES),
            "reportingInstance": self.instance,
            "action": "Reconcile",
            "reason": event.reason,
            "regarding": {
                "apiVersion": about.type_ref.api_version,
                "kind": about.type_ref.kind,
                "namespace": about.name.namespace.as_deref(),
                "name": &*about.name.name,
                "uid": &*about.uid,
            },
            "note": event.note,
            "type": match event.type_ {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            },
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one request, from one place each")]
    async fn send(
        &mut self,
        about: &About,
        event: &Event,
        name: &ObjectName,
        method: Method,
        path: String,
        content_type: &'static str,
        body: Value,
    ) {
        let (resource, is_create, body) = (resource(), method == Method::POST, body.to_string());
        for attempt in 1..=TRIES {
            // A server in trouble has other things to do.
            if *self.api.breaker().borrow() {
                break;
            }
            // The term is over: what is not sent is not worth another holder's time.
            let Ok(permit) = self.permits.permit() else { break };
            let verb = if is_create { Verb::Create } else { Verb::MergePatch };
            let asked = Request {
                verb,
                type_ref: &resource.type_ref,
                plural: &resource.plural,
                namespace: name.namespace.as_deref(),
                name: Some(&name.name),
            };
            let (method, path, body) = (method.clone(), path.clone(), body.clone());
            let error = match self.api.write(&permit, Write { method, path, content_type, body, about: asked }).await {
                Ok(_) => return self.sent(is_create),
                Err(error) => error,
            };
            match error {
                // An earlier attempt of ours came through.
                ApiError::Answer(answer) if answer.code == 409 && attempt > 1 => return self.sent(is_create),
                ApiError::Answer(answer) if !is_passing(&answer) => {
                    self.say(about, &answer);
                    break;
                }
                error => debug!(%error, attempt, "no answer to an event"),
            }
            tokio::time::sleep(Duration::from_secs(u64::from(attempt))).await;
        }
        self.counts.dropped.inc();
        self.correlator.lost(about, event);
    }

    fn sent(&self, is_create: bool) {
        if is_create { &self.counts.created } else { &self.counts.repeated }.inc();
    }

    /// An event that can't be written is said once a module and kind of answer.
    fn say(&mut self, about: &About, answer: &Answer) {
        // Expired meanwhile, and the next one like it is told anew; or all that is in the namespace goes, and its events with it.
        if answer.code == 404 || answer.is_namespace_terminating() {
            return;
        }
        if self.said.insert(format!("{} {}", about.module, answer.code)) {
            let (module, object, message) = (&*about.module, &about.name, &answer.message);
            warn!(module, %object, message, "events can't be written, and are dropped; all else goes on");
        }
    }
}

/// Whether the same request may succeed soon.
fn is_passing(answer: &Answer) -> bool {
    matches!(answer.code, 429 | 500 | 502..=504)
}

fn resource() -> Resource {
    let type_ref = TypeRef::new("events.k8s.io/v1", "Event");
    Resource { type_ref, plural: "events".into(), namespaced: true, status: false }
}

/// As metav1.MicroTime is written.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_event_is_its_objects_and_fits() {
        let names = Names { start: 0x10 };
        let name = names.of(&ObjectName::new(Some("shop"), &"a".repeat(253)), 2);
        assert_eq!(name.namespace.as_deref(), Some("shop"));
        assert!(name.name.ends_with("a.0000000000000012") && name.name.len() <= 253, "{}", name.name);
        assert_eq!(names.of(&ObjectName::new(None, "node"), 0).to_string(), "default/node.0000000000000010");
    }
}
