use super::*;
use crate::answer::Answer;
use crate::table::{Content, Scope, Table};

/// A reflector on a scripted clock, with what it said last.
struct Bench {
    reflector: Reflector,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { reflector: Reflector::new(7), now: Instant::now() }
    }

    /// One that has streamed its list and watches since version 10.
    fn watching() -> Self {
        let mut bench = Self::new();
        assert!(matches!(bench.sends(), Request::StreamList { not_older_than: None, .. }));
        bench.reflector.opened(bench.now);
        bench.bookmark(10, true);
        bench
    }

    fn sends(&mut self) -> Request {
        match self.reflector.next(self.now) {
            Step::Send(request) => request,
            Step::Wait(until) => panic!("waits {:?} instead of sending", until - self.now),
        }
    }

    /// Waits as long as it is told to, then gives the wait and the request.
    fn waits(&mut self) -> (Duration, Request) {
        match self.reflector.next(self.now) {
            Step::Send(request) => (Duration::ZERO, request),
            Step::Wait(until) => {
                let wait = until - self.now;
                self.now = until;
                (wait, self.sends())
            }
        }
    }

    fn bookmark(&mut self, at: u64, ends_list: bool) -> Heard {
        self.reflector.bookmark(version(at), ends_list, self.now)
    }

    fn fails(&mut self, code: u16, message: &str) {
        let body = serde_json::json!({ "kind": "Status", "code": code, "message": message }).to_string();
        self.reflector.failed(Fault::answer(&Answer::parse(code, [], body.as_bytes())), self.now);
    }

    fn later(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn recorded(name: &str) -> Vec<String> {
    let path = format!("{}/tests/data/watch/{name}.ndjson", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a recorded stream").lines().map(str::to_owned).collect()
}

fn recorded_error(name: &str) -> Fault {
    let path = format!("{}/tests/data/errors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let vector = std::fs::read(path).expect("a recorded answer");
    let vector: serde_json::Value = serde_json::from_slice(&vector).expect("JSON");
    let code = vector["response"]["code"].as_u64().expect("a code");
    let body = match &vector["response"]["body"] {
        serde_json::Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    Fault::answer(&Answer::parse(code as u16, [], body.as_bytes()))
}

#[test]
fn the_first_list_is_streamed_and_consistent_and_goes_on_as_a_watch() {
    let mut bench = Bench::new();
    let request = bench.sends();
    assert!(request.is_stream() && request.begins_list() == Some(true));
    let timeout = request.parameters().iter().find(|(name, _)| *name == "timeoutSeconds").cloned();
    let timeout: u64 = timeout.expect("a time limit").1.parse().expect("seconds");
    assert!((300..=600).contains(&timeout));
    let parameters = request.parameters();
    assert!(parameters.contains(&("sendInitialEvents", "true".into())));
    assert!(parameters.iter().all(|(name, _)| *name != "resourceVersion"), "a first list was not consistent");

    assert_eq!(bench.reflector.object(Some(&version(99)), bench.now), Heard::Object);
    assert_eq!(bench.reflector.state(), &State::Syncing);
    assert_eq!(bench.bookmark(10, true), Heard::ListComplete(version(10)));
    assert_eq!(bench.reflector.state(), &State::Synced);
    bench.later(2);
    let _ = bench.reflector.object(Some(&version(11)), bench.now);
    assert_eq!(bench.bookmark(15, false), Heard::Progress(version(15)));
    bench.reflector.ended(bench.now);
    assert!(matches!(bench.sends(), Request::Watch { from, .. } if from == version(15)), "it listed again");
}

#[test]
fn a_server_without_streaming_lists_is_read_by_pages() {
    let mut bench = Bench::new();
    let _ = bench.sends();
    let fault = recorded_error("watch-list-without-match");
    assert_eq!(fault.kind, FaultKind::Unsupported);
    bench.reflector.failed(fault, bench.now);
    let first = bench.sends();
    assert_eq!(first.parameters(), [("limit", "500".to_owned())]);
    assert_eq!(first.begins_list(), Some(true));
    assert_eq!(bench.reflector.page(version(10), Some("t".into()), bench.now), Heard::MorePages);
    let second = bench.sends();
    assert_eq!(second.parameters(), [("limit", "500".to_owned()), ("continue", "t".to_owned())]);
    assert_eq!(second.begins_list(), None);
    assert_eq!(bench.reflector.page(version(10), None, bench.now), Heard::ListComplete(version(10)));
    assert!(matches!(bench.sends(), Request::Watch { from, .. } if from == version(10)));
}

#[test]
fn a_page_that_is_too_old_leads_to_a_list_in_one_piece() {
    let mut bench = Bench::new();
    let _ = bench.sends();
    bench.fails(422, "sendInitialEvents is forbidden");
    let _ = bench.sends();
    let _ = bench.reflector.page(version(10), Some("t".into()), bench.now);
    let _ = bench.sends();
    bench.reflector.failed(recorded_error("list-continue-expired"), bench.now);
    let whole = bench.sends();
    assert_eq!(whole.parameters(), []);
    assert_eq!(whole.begins_list(), Some(true));
}

#[test]
fn a_version_that_is_too_old_leads_to_a_list_that_is_not_older() {
    let mut bench = Bench::watching();
    bench.later(60);
    bench.reflector.ended(bench.now);
    let _ = bench.sends();
    let lines = recorded("expired");
    let Ok(Line::Error(fault)) = parse_line(lines[0].as_bytes()) else { panic!("no ERROR line") };
    assert_eq!(fault.kind, FaultKind::Expired);
    bench.reflector.failed(fault, bench.now);
    let request = bench.sends();
    assert_eq!(request.begins_list(), Some(false));
    assert!(request.parameters().contains(&("resourceVersion", "10".into())));
    assert!(bench.reflector.is_trusted(), "keys were held for a relist");
}

#[test]
fn a_server_that_always_says_expired_meets_no_storm() {
    let mut bench = Bench::watching();
    bench.later(1000);
    let start = bench.now;
    let mut requests = 0;
    while bench.now - start < Duration::from_secs(60) {
        let (_, request) = bench.waits();
        requests += 1;
        match request {
            Request::Watch { .. } => bench.fails(410, "too old resource version"),
            _ => drop(bench.bookmark(20, true)),
        }
        if requests % 2 == 0 {
            bench.reflector.ended(bench.now);
        }
    }
    assert!(requests < 30, "{requests} requests in a minute");
}

#[test]
fn a_version_ahead_of_the_server_leads_to_a_consistent_list() {
    let mut bench = Bench::watching();
    // The plain watch of a restored server is silent.
    bench.now = bench.reflector.silence_ends().expect("an open stream");
    bench.reflector.silent(bench.now);
    assert_eq!(bench.sends().begins_list(), Some(false));
    let lines = recorded("watch-list-ahead");
    let Ok(Line::Error(fault)) = parse_line(lines[0].as_bytes()) else { panic!("no ERROR line") };
    assert_eq!(fault.kind, FaultKind::TooLarge);
    bench.reflector.failed(fault, bench.now);
    assert_eq!(bench.sends().begins_list(), Some(true));
}

#[test]
fn a_stream_that_sends_anything_within_three_minutes_is_kept() {
    let mut bench = Bench::watching();
    for _ in 0..5 {
        bench.later(170);
        let _ = bench.bookmark(10, false);
        assert!(bench.reflector.silence_ends().expect("an open stream") > bench.now + Duration::from_secs(179));
    }
}

#[test]
fn a_server_that_never_ends_its_streamed_list_is_read_by_pages() {
    let mut bench = Bench::new();
    let _ = bench.sends();
    bench.reflector.opened(bench.now);
    bench.later(180);
    bench.reflector.silent(bench.now);
    assert!(matches!(bench.waits().1, Request::List { limit: Some(500), .. }));
}

#[test]
fn a_type_that_is_not_there_is_tried_at_most_30_seconds_apart_and_listed_when_it_appears() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        let (wait, request) = bench.waits();
        assert!(wait <= Duration::from_secs(30), "waited {wait:?}");
        assert_eq!(request.begins_list(), Some(true));
        bench.reflector.failed(Fault::answer(&Answer::parse(404, [], b"404 page not found\n")), bench.now);
        assert_eq!(bench.reflector.state(), &State::Absent { message: "404 page not found".into() });
    }
    // Scenario: right after the CRD's creation the storage is not ready.
    let (wait, _) = bench.waits();
    assert!(wait > Duration::from_secs(10), "a missing type was asked for every {wait:?}");
    for _ in 0..5 {
        bench.fails(429, "storage is (re)initializing");
        let (wait, _) = bench.waits();
        assert!(wait >= Duration::from_secs(1) && wait < Duration::from_secs(2), "waited {wait:?}");
    }
    bench.bookmark(7, true);
    assert_eq!(bench.reflector.state(), &State::Synced);
}

#[test]
fn a_type_that_goes_away_is_no_longer_trusted_and_is_listed_anew() {
    let mut bench = Bench::watching();
    bench.later(2);
    bench.reflector.ended(bench.now);
    assert!(bench.reflector.ended_early(), "the type's schema has to be read again");
    let _ = bench.sends();
    bench.fails(404, "the server could not find the requested resource");
    assert!(!bench.reflector.is_trusted());
    let (_, request) = bench.waits();
    assert_eq!(request.begins_list(), Some(true));
}

#[test]
fn a_forbidden_type_is_a_state_that_ends_when_it_is_allowed() {
    let mut bench = Bench::new();
    let _ = bench.sends();
    let fault = recorded_error("forbidden-watch");
    assert_eq!(fault.kind, FaultKind::Forbidden);
    bench.reflector.failed(fault, bench.now);
    assert!(matches!(bench.reflector.state(), State::Forbidden { message } if message.contains("cannot watch")));
    let _ = bench.waits();
    bench.bookmark(7, true);
    assert_eq!(bench.reflector.state(), &State::Synced);

    // Taken away while watching, and given back: the watch goes on where it was.
    bench.later(60);
    bench.reflector.ended(bench.now);
    let _ = bench.sends();
    bench.fails(403, "forbidden");
    assert!(!bench.reflector.is_trusted());
    assert!(matches!(bench.waits().1, Request::Watch { from, .. } if from == version(7)));
    bench.reflector.opened(bench.now);
    assert!(bench.reflector.is_trusted());
}

#[test]
fn an_unreachable_server_is_retried_with_growing_waits_and_keeps_what_was_synced() {
    let mut bench = Bench::watching();
    bench.later(60);
    bench.reflector.failed(Fault::lost("connection reset"), bench.now);
    assert_eq!(bench.reflector.state(), &State::Synced, "a cut of a good watch is no failure yet");
    let (wait, _) = bench.waits();
    assert_eq!(wait, Duration::ZERO);
    let mut waits = Vec::new();
    for _ in 0..10 {
        bench.reflector.failed(Fault::lost("connection refused"), bench.now);
        assert_eq!(bench.reflector.state(), &State::Failing { message: "connection refused".into() });
        assert!(bench.reflector.is_trusted());
        let (wait, request) = bench.waits();
        assert!(matches!(request, Request::Watch { .. }));
        waits.push(wait);
    }
    assert!(waits[0] >= Duration::from_millis(800) && waits[0] < Duration::from_secs(2), "{waits:?}");
    assert_eq!(waits[9], Duration::from_secs(30));
}

#[test]
fn a_server_that_ends_each_watch_at_once_meets_no_storm() {
    let mut bench = Bench::watching();
    let start = bench.now;
    let mut requests = 0;
    while bench.now - start < Duration::from_secs(120) {
        bench.reflector.ended(bench.now);
        let _ = bench.waits();
        bench.reflector.opened(bench.now);
        requests += 1;
    }
    assert!(requests < 15, "{requests} requests in two minutes");
}

#[test]
fn another_watch_s_new_epoch_leads_to_a_consistent_list_at_once() {
    let mut bench = Bench::watching();
    bench.reflector.relist();
    assert_eq!(bench.sends().begins_list(), Some(true));
}

/// Plays a recorded stream into a reflector and a table as the shell does, and gives the names left.
fn play(name: &str, scope: Scope) -> (Bench, Table, Vec<String>) {
    let mut bench = Bench::new();
    let mut table = Table::new("test");
    let (watch, _) = table.join_watch(&scope);
    let decoder = crate::object::Decoder::new(["vector-recorder"]);
    let type_ref = crate::contract::TypeRef::new("v1", "ConfigMap");
    table.list_started(watch, bench.sends().begins_list() == Some(true));
    for line in recorded(name) {
        let line = parse_line(line.as_bytes()).expect("a line of a watch");
        let decode = |text: &str| {
            let decoded = decoder.decode(text.as_bytes(), &type_ref, None);
            Content::from_decoded(decoded).expect("an object with a name")
        };
        match line {
            Line::Upserted(text) => {
                let content = decode(text);
                let _ = bench.reflector.object(content.version(), bench.now);
                let _ = table.upserted(watch, content, bench.now);
            }
            Line::Deleted(text) => {
                let content = decode(text);
                let _ = bench.reflector.object(content.version(), bench.now);
                let _ = table.deleted(watch, &content);
            }
            Line::Bookmark { version, ends_list } => match bench.reflector.bookmark(version, ends_list, bench.now) {
                Heard::ListComplete(version) => drop(table.list_completed(watch, &version, bench.now)),
                Heard::Progress(version) => table.progressed(watch, &version),
                Heard::Object | Heard::MorePages => {}
            },
            Line::Error(fault) => bench.reflector.failed(fault, bench.now),
        }
    }
    let mut names: Vec<_> = table.names(watch).map(|name| name.name.to_string()).collect();
    names.sort();
    (bench, table, names)
}

#[test]
fn recorded_streamed_lists_sync_the_table() {
    for name in ["watch-list", "from-zero", "from-unset", "metadata-only"] {
        let (bench, _, names) = play(name, Scope::default());
        assert_eq!(names, ["a", "b", "c"], "{name}");
        assert_eq!(bench.reflector.state(), &State::Synced, "{name}");
    }
    let (bench, table, _) = play("watch-list-empty", Scope::default());
    assert!(table.is_empty());
    assert_eq!(bench.reflector.state(), &State::Synced, "a list of nothing is a list");
    let (_, _, names) = play("single-name", Scope::default());
    assert_eq!(names, ["b"]);
    let (_, _, names) = play("type-deleted", Scope::default());
    assert_eq!(names, [""; 0]);
}

#[test]
fn a_recorded_stripped_label_is_a_question_not_a_deletion() {
    let (_, table, names) = play("selector-label-removed", Scope { selected: true, ..Scope::default() });
    assert_eq!(names, ["a"], "the module saw a gap");
    let name = crate::contract::ObjectName::new(Some("vec-watch"), "a");
    assert!(table.is_vanished(&name));
}

#[test]
fn recorded_changes_end_as_the_server_does() {
    let mut bench = Bench::watching();
    let mut seen = Vec::new();
    for line in recorded("events") {
        match parse_line(line.as_bytes()).expect("a line of a watch") {
            Line::Upserted(_) => seen.push("upserted"),
            Line::Deleted(_) => seen.push("deleted"),
            Line::Bookmark { version, ends_list } => {
                let _ = bench.reflector.bookmark(version, ends_list, bench.now);
                seen.push("bookmark");
            }
            Line::Error(fault) => panic!("{fault:?}"),
        }
    }
    let expected = "upserted upserted upserted upserted deleted upserted deleted bookmark bookmark";
    assert_eq!(seen.join(" "), expected);
    bench.later(4);
    bench.reflector.ended(bench.now);
    assert!(matches!(bench.sends(), Request::Watch { from, .. } if from == version(796)));
}

#[test]
fn a_page_of_a_list_is_read() {
    let body = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"abc"},
        "items":[{"metadata":{"name":"a"}}, {"metadata":{"name":"b"}}]}"#;
    let page = parse_page(body).expect("a page");
    assert_eq!((page.version, page.next.as_deref(), page.items.len()), (version(12), Some("abc"), 2));
    assert!(parse_page(b"<html>").expect_err("no list").to_string().starts_with("the API server sent what is no list"));
    let empty = parse_page(br#"{"metadata":{},"items":null}"#).expect("an empty page");
    assert!(empty.items.is_empty());
}

#[test]
fn a_line_of_an_unknown_type_is_named() {
    let error = parse_line(br#"{"type":"RENAMED","object":{}}"#).expect_err("an unknown type");
    assert!(error.to_string().contains("RENAMED"), "{error}");
}

#[test]
fn a_watch_whose_line_broke_is_lost_until_the_server_has_shown_how_far_it_is() {
    let mut bench = Bench::watching();
    assert!(!bench.reflector.is_lost());
    bench.later(60);
    bench.reflector.failed(Fault::lost("reset by peer"), bench.now);
    assert!(bench.reflector.is_lost());
    assert_eq!(bench.waits().0, Duration::ZERO, "a stream that broke was not opened again at once");
    bench.reflector.failed(Fault::lost("connection refused"), bench.now);
    assert!(matches!(bench.reflector.state(), State::Failing { .. }));
    let _ = bench.waits();
    bench.fails(503, "etcd has no leader");
    assert!(bench.reflector.is_lost(), "an error tells nothing of the version");
    let _ = bench.waits();
    bench.reflector.failed(recorded_error("list-version-too-large"), bench.now);
    assert!(bench.reflector.is_lost());
    let (wait, list) = bench.waits();
    assert_eq!((wait, list.begins_list()), (Duration::ZERO, Some(true)), "everybody waits for it");
    bench.bookmark(5, true);
    assert!(!bench.reflector.is_lost());
}

#[test]
fn an_attempt_that_hung_is_followed_by_a_wait() {
    let mut bench = Bench::watching();
    bench.later(60);
    bench.reflector.failed(Fault::lost("reset by peer"), bench.now);
    let _ = bench.sends();
    bench.later(10);
    bench.reflector.failed(Fault::lost("nothing came within 10 s"), bench.now);
    assert!(bench.waits().0 >= Duration::from_millis(800));
}

#[test]
fn a_server_that_is_back_is_asked_at_once_by_what_was_lost_and_by_nothing_else() {
    let mut bench = Bench::watching();
    bench.later(60);
    for _ in 0..10 {
        let _ = bench.waits();
        bench.reflector.failed(Fault::lost("connection refused"), bench.now);
    }
    bench.reflector.server_is_back(bench.now);
    assert!(bench.waits().0 <= Duration::from_millis(500));

    let mut absent = Bench::new();
    for _ in 0..10 {
        let _ = absent.waits();
        absent.fails(404, "404 page not found");
    }
    absent.reflector.server_is_back(absent.now);
    assert!(absent.waits().0 > Duration::from_secs(10), "a type that is not served is no business of an outage");
}
