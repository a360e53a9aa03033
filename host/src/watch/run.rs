//! One watch: asks its reflector what to do, does it, and puts what comes into the table.

use super::{Shared, TypeState, WatchedType, request};
use crate::api::ApiError;
use operator_core::contract::ObjectName;
use operator_core::object::ResourceVersion;
use operator_core::reflector::{Fault, Heard, Line, Reflector, Request, State, Step, parse_line, parse_page};
use operator_core::table::{Change, Content, Effects, Lookup, Origin, Scope, WatchId};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A name that no object has.
const NO_NAME: &str = "-";

pub(super) struct Task {
    shared: Arc<Shared>,
    watched: Arc<WatchedType>,
    id: WatchId,
    scope: Scope,
    relist: Arc<Notify>,
    stop: CancellationToken,
    /// Whether the breaker is open.
    is_open: watch::Receiver<bool>,
    reflector: Reflector,
    has_listed: bool,
    has_opened: bool,
    /// The type's definition may have changed since it was asked for.
    is_stale: bool,
}

impl Task {
    pub(super) fn new(
        shared: Arc<Shared>,
        watched: Arc<WatchedType>,
        id: WatchId,
        scope: Scope,
        relist: Arc<Notify>,
        stop: CancellationToken,
    ) -> Self {
        let (is_open, reflector) = (shared.api.breaker(), Reflector::new(fastrand::u64(..)));
        Self {
            shared,
            watched,
            id,
            scope,
            relist,
            stop,
            is_open,
            reflector,
            has_listed: false,
            has_opened: false,
            is_stale: false,
        }
    }

    /// Runs until it is stopped.
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        // None: stopped.
        let _ = stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        loop {
            match self.reflector.next(Instant::now()) {
                Step::Send(request) => self.send(request).await,
                Step::Wait(until) => tokio::select! {
                    () = tokio::time::sleep_until(until.into()) => {}
                    () = self.relist.notified() => self.list_anew(),
                    () = closes(&mut self.is_open) => self.reflector.server_is_back(Instant::now()),
                },
            }
            self.publish();
        }
    }

    async fn send(&mut self, request: Request) {
        if let Some(consistent) = request.begins_list() {
            self.watched.write().list_started(self.id, consistent);
        }
        let path = match self.path(&request).await {
            Ok(path) => path,
            Err(fault) => return self.reflector.failed(fault, Instant::now()),
        };
        if let Request::Watch { from, .. } = &request
            && self.reflector.is_lost()
            && let Err(error) = self.check_version(from).await
        {
            return self.failed(&error);
        }
        if request.is_stream() {
            self.stream(&path).await;
        } else {
            self.page(&path).await;
        }
        if self.reflector.ended_early() {
            self.is_stale = true;
            if let Some(sink) = self.shared.sink.get() {
                sink.definition_may_have_changed(&self.watched.type_ref);
            }
        }
    }

    async fn path(&mut self, request: &Request) -> Result<String, Fault> {
        let type_ref = &self.watched.type_ref;
        let Shared { discovery, api, .. } = &*self.shared;
        let resource = match self.is_stale {
            true => discovery.refresh(api, type_ref).await,
            false => discovery.resource(api, type_ref).await,
        };
        self.is_stale &= resource.is_err();
        match resource {
            Ok(Some(resource)) => Ok(request::path(&resource, &self.scope, self.labels().as_deref(), request)),
            Ok(None) => Err(Fault::absent(format!("the API server does not serve {type_ref}"))),
            Err(error) => Err(request::fault(&error)),
        }
    }

    fn labels(&self) -> Option<String> {
        request::labels(self.watched.labels.as_deref(), &self.scope, &self.shared.installation)
    }

    /// A server behind a line that broke may have been restored from a backup: then a watch from our version would be accepted, and
    /// silent until the server comes that far. A list of nothing, or of the one name, not older than that, tells.
    async fn check_version(&self, from: &ResourceVersion) -> Result<(), ApiError> {
        let Some(resource) = self.shared.discovery.known(&self.watched.type_ref) else { return Ok(()) };
        // Rights may be bound to the one name that is watched.
        let name = self.scope.name.clone().unwrap_or_else(|| NO_NAME.into());
        let short = Scope { name: Some(name), ..self.scope.clone() };
        let list = Request::List { not_older_than: Some(from.clone()), limit: None, page: None };
        let path = request::path(&resource, &short, self.labels().as_deref(), &list);
        self.shared.api.get(&path).await.map(drop)
    }

    /// The server went back in time. From here on it is the reflector that says that nothing is to be trusted.
    fn list_anew(&mut self) {
        self.reflector.relist();
        if let Some(running) = self.watched.running().get_mut(&self.id) {
            running.standing.follow_again();
        }
    }

    fn failed(&mut self, error: &ApiError) {
        if matches!(error, ApiError::Answer(answer) if answer.code == 404) {
            self.shared.discovery.forget(&self.watched.type_ref);
        }
        self.reflector.failed(request::fault(error), Instant::now());
    }

    async fn stream(&mut self, path: &str) {
        let mut lines = match self.shared.api.watch(path).await {
            Ok(lines) => lines,
            Err(error) => return self.failed(&error),
        };
        if std::mem::replace(&mut self.has_opened, true) {
            self.watched.restarts.fetch_add(1, Ordering::Relaxed);
        }
        self.reflector.opened(Instant::now());
        self.watched.heard(self.id, Instant::now());
        self.publish();
        while let Some(silence_ends) = self.reflector.silence_ends() {
            let line = tokio::select! {
                biased;
                line = lines.next() => line,
                () = self.relist.notified() => return self.list_anew(),
                () = tokio::time::sleep_until(silence_ends.into()) => {
                    return self.reflector.silent(Instant::now());
                }
            };
            match line {
                None => return self.reflector.ended(Instant::now()),
                Some(Err(error)) => return self.failed(&error),
                Some(Ok(line)) => {
                    if self.line(&line).is_break() {
                        return;
                    }
                }
            }
        }
    }

    /// Break: the stream is of no more use.
    fn line(&mut self, line: &[u8]) -> ControlFlow<()> {
        let now = Instant::now();
        self.watched.heard(self.id, now);
        match parse_line(line) {
            Ok(Line::Upserted(text)) => {
                let content = self.decode(text);
                self.reflector.object(content.as_ref().and_then(Content::version), now);
                if let Some(content) = content {
                    let effects = self.watched.write().upserted(self.id, content, now);
                    self.dispatch(effects);
                }
            }
            Ok(Line::Deleted(text)) => {
                let content = self.decode(text);
                self.reflector.object(content.as_ref().and_then(Content::version), now);
                if let Some(content) = content {
                    let effects = self.watched.write().deleted(self.id, &content);
                    self.dispatch(effects);
                }
            }
            Ok(Line::Bookmark { version, ends_list }) => {
                let heard = self.reflector.bookmark(version, ends_list, now);
                self.heard(heard, now);
            }
            Ok(Line::Error(fault)) => {
                self.reflector.failed(fault, now);
                return ControlFlow::Break(());
            }
            Err(broken) => {
                self.reflector.failed(Fault::unintelligible(broken.to_string()), now);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    async fn page(&mut self, path: &str) {
        let body = match self.shared.api.get(path).await {
            Ok(body) => body,
            Err(error) => return self.failed(&error),
        };
        let now = Instant::now();
        self.watched.heard(self.id, now);
        let page = match parse_page(&body) {
            Ok(page) => page,
            Err(broken) => return self.reflector.failed(Fault::unintelligible(broken.to_string()), now),
        };
        for text in page.items {
            if let Some(content) = self.decode(text) {
                let effects = self.watched.write().upserted(self.id, content, now);
                self.dispatch(effects);
            }
        }
        let heard = self.reflector.page(page.version, page.next, now);
        self.heard(heard, now);
    }

    fn heard(&mut self, heard: Heard, now: Instant) {
        match heard {
            Heard::Object | Heard::MorePages => {}
            Heard::Progress(version) => self.watched.write().progressed(self.id, &version),
            Heard::ListComplete(version) => {
                let effects = self.watched.write().list_completed(self.id, &version, now);
                self.dispatch(effects);
                self.tell_of_a_free_name();
                self.publish();
            }
        }
    }

    fn decode(&self, text: &str) -> Option<Content> {
        let known = |name: &ObjectName| match self.watched.read().lookup(name) {
            Lookup::Present(object) => Some(object),
            Lookup::Absent | Lookup::Unreadable(_) => None,
        };
        let decoded = self.shared.decoder.decode_over(text.as_bytes(), &self.watched.type_ref, known);
        match Content::from_decoded(decoded) {
            Ok(content) => {
                if let Content::Unreadable(object) = &content {
                    let (name, reason) = (&object.name, &object.message);
                    warn!(r#type = %self.watched.type_ref, object = %name, reason, "an object can't be read: it is left alone");
                }
                Some(content)
            }
            Err(error) => {
                warn!(r#type = %self.watched.type_ref, %error, "the API server sent an object that can't be identified");
                None
            }
        }
    }

    fn dispatch(&self, effects: Effects) {
        self.shared.dispatch(&self.watched, effects, None);
    }

    /// Who waits for a name that became free before its watch stood would never hear of it.
    fn tell_of_a_free_name(&mut self) {
        let is_first = !std::mem::replace(&mut self.has_listed, true);
        let Some(name) = self.scope.name.clone().filter(|_| is_first) else { return };
        let name = ObjectName { namespace: self.scope.namespace.clone(), name };
        if matches!(self.watched.read().lookup(&name), Lookup::Absent) {
            let change = Change { name, old: None, new: None, origin: Origin::Watch, initial: true };
            self.dispatch(Effects { changes: vec![change], ..Effects::default() });
        }
    }

    /// Makes the reflector's state known.
    fn publish(&self) {
        let before = self.state();
        let is_new = match self.watched.running().get_mut(&self.id) {
            Some(running) => running.standing.update(&self.reflector, Instant::now()),
            None => return,
        };
        self.shared.published.notify_waiters();
        if is_new {
            self.log();
        }
        if before != self.state()
            && let Some(sink) = self.shared.sink.get()
        {
            sink.state_changed(&self.watched.type_ref);
        }
    }

    fn state(&self) -> TypeState {
        self.watched.state_of(|id, _| *id == self.id)
    }

    fn log(&self) {
        let type_ref = &self.watched.type_ref;
        let namespace = self.scope.namespace.as_deref().unwrap_or("all");
        let (name, labels) = (self.scope.name.as_deref(), self.watched.labels.as_deref());
        match self.reflector.state() {
            State::Syncing => {}
            State::Synced => info!(r#type = %type_ref, namespace, name, labels, "watching"),
            State::Absent { message } => {
                warn!(r#type = %type_ref, reason = message, "the type is not served; trying again until it is");
            }
            State::Forbidden { message } => {
                warn!(r#type = %type_ref, namespace, name, labels, reason = message, "may not list and watch; trying again until it is allowed");
            }
            State::Failing { message } => {
                warn!(r#type = %type_ref, namespace, name, labels, reason = message, "the watch fails; trying again");
            }
        }
    }
}

/// Waits until the breaker closes, or shows that it has.
async fn closes(is_open: &mut watch::Receiver<bool>) {
    while is_open.changed().await.is_ok() {
        if !*is_open.borrow_and_update() {
            return;
        }
    }
    // The process ends.
    std::future::pending().await
}
