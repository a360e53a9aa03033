//! What a module reaches outside the cluster, which is what was granted and nothing beside it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use operator_core::contract::Removal;
use operator_host::module::{CallError, Grant, Grants, Limits, LoadError, Module, Runtime, RuntimeOptions};
use serde_json::{Value, json};

use crate::support::{fixture, key, limited, options, outcome, probe, scratch};

/// A folder with what a test gives and what it keeps to itself beside it.
struct Place {
    given: PathBuf,
    kept: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = scratch("grants").join(name);
        let _ = fs::remove_dir_all(&folder);
        let (given, kept) = (folder.join("given"), folder.join("kept"));
        fs::create_dir_all(&given).unwrap();
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join("secret"), "hidden").unwrap();
        Self { given, kept }
    }

    fn files(&self) -> String {
        format!("files:dir={}", self.given.display())
    }
}

fn granted(limits: Limits, grants: &[&str]) -> Result<Arc<Module>, LoadError> {
    let grants: Vec<Grant> = grants.iter().map(|text| text.parse().unwrap()).collect();
    let runtime = Runtime::new(RuntimeOptions { limits, grants: Some(grants.into()), ..options() }).unwrap();
    runtime.load(&[fixture("explorer")]).remove(0)
}

/// With a grant of its own for each name that a test does not care about.
fn explorer(grants: &[&str]) -> Arc<Module> {
    explorer_within(Limits::default(), grants)
}

fn explorer_within(limits: Limits, grants: &[&str]) -> Arc<Module> {
    let nothing = scratch("nothing");
    let others = [
        format!("files:dir={}", nothing.display()),
        "token:env=CARGO_MANIFEST_DIR".into(),
        "api:http=192.0.2.1".into(),
        "more:env=CARGO_PKG_NAME".into(),
    ];
    let name = |grant: &str| grant.split_once(':').unwrap().0.to_owned();
    let mut all = grants.to_vec();
    all.extend(
        others.iter().map(String::as_str).filter(|other| !grants.iter().any(|grant| name(grant) == name(other))),
    );
    granted(limits, &all).unwrap()
}

/// What came of one step in `ensure`.
#[track_caller]
fn step(module: &Module, step: Value) -> Value {
    steps(module, json!([step]))[0].take()
}

#[track_caller]
fn steps(module: &Module, steps: Value) -> Value {
    let report = module.ensure(&key(), &probe(json!({ "steps": steps })), 1_000);
    serde_json::from_str(&report.result.unwrap().unwrap().observation).unwrap()
}

#[track_caller]
fn assert_denied(done: &Value) {
    assert!(done["error"].is_string(), "it was done: {done}");
}

fn failure(module: &Module, step: Value) -> CallError {
    module.ensure(&key(), &probe(json!({ "steps": [step] })), 1_000).result.unwrap_err()
}

#[test]
fn a_granted_folder_is_where_the_capability_says() {
    let place = Place::new("files");
    let module = explorer(&[&place.files()]);
    let done = steps(
        &module,
        json!([
            {"write": "/files/a.txt", "text": "hello"},
            {"read": "/files/a.txt"},
            {"rename": "/files/a.txt", "to": "/files/b.txt"},
            {"list": "/files"},
        ]),
    );
    assert_eq!(done, json!([null, "hello", null, ["b.txt"]]));
    assert_eq!(fs::read_to_string(place.given.join("b.txt")).unwrap(), "hello");

    let remove = |name: &str| {
        let report =
            module.remove(&key(), &probe(json!({ "remove": [{ "delete": format!("/files/{name}") }] })), 1_000);
        report.result.unwrap().unwrap()
    };
    assert_eq!(remove("b.txt"), Removal { done: true, message: String::new(), retry_after: None });
    assert!(!place.given.join("b.txt").exists());
    assert!(!remove("b.txt").done, "what is not there can't be deleted, and the module says so");
}

#[test]
fn a_folder_for_a_capability_of_another_kind_is_under_its_name() {
    let place = Place::new("named");
    let module = explorer(&[&format!("more:dir={}", place.given.display())]);
    assert_eq!(step(&module, json!({"write": "/more/a.txt", "text": "x"})), json!(null));
}

#[test]
fn nothing_leads_out_of_a_granted_folder() {
    let place = Place::new("escape");
    symlink(&place.kept, place.given.join("out")).unwrap();
    symlink("../kept/secret", place.given.join("secret")).unwrap();
    symlink(place.kept.join("secret"), place.given.join("absolute")).unwrap();
    let module = explorer(&[&place.files()]);
    let secret = place.kept.join("secret");
    for path in [
        "/files/../kept/secret",
        "/files/out/secret",
        "/files/secret",
        "/files/absolute",
        "../kept/secret",
        "/etc/passwd",
        secret.to_str().unwrap(),
    ] {
        assert_denied(&step(&module, json!({ "read": path })));
        assert_denied(&step(&module, json!({ "write": path, "text": "mine" })));
    }
    assert_denied(&step(&module, json!({ "write": "/files/../kept/new", "text": "mine" })));
    assert_denied(&step(&module, json!({ "hardLink": "/files/secret", "to": "/files/../kept/link" })));
    assert_eq!(fs::read_to_string(secret).unwrap(), "hidden");
    assert_eq!(fs::read_dir(&place.kept).unwrap().count(), 1, "nothing was added");
}

#[test]
fn a_folder_to_read_is_not_written() {
    let place = Place::new("read-only");
    fs::write(place.given.join("a.txt"), "hello").unwrap();
    let module = explorer(&[&format!("{}:ro", place.files())]);
    assert_eq!(step(&module, json!({"read": "/files/a.txt"})), json!("hello"));
    for attempt in [
        json!({"write": "/files/a.txt", "text": "mine"}),
        json!({"write": "/files/b.txt", "text": "mine"}),
        json!({"delete": "/files/a.txt"}),
        json!({"rename": "/files/a.txt", "to": "/files/b.txt"}),
        json!({"hardLink": "/files/a.txt", "to": "/files/b.txt"}),
    ] {
        assert_denied(&step(&module, attempt));
    }
    assert_eq!(fs::read_to_string(place.given.join("a.txt")).unwrap(), "hello");
    assert_eq!(fs::read_dir(&place.given).unwrap().count(), 1);
}

#[test]
fn only_granted_variables_are_there() {
    let module = explorer(&["token:env=CARGO_PKG_VERSION"]);
    assert_eq!(step(&module, json!({"env": "CARGO_PKG_VERSION"})), json!(env!("CARGO_PKG_VERSION")));
    assert_denied(&step(&module, json!({"env": "PATH"})));
    assert_eq!(step(&module, json!({"variables": true})), json!(["CARGO_PKG_VERSION", "CARGO_PKG_NAME"]));
}

#[test]
fn nothing_is_granted_to_the_calls_that_decide() {
    let place = Place::new("reconcile");
    fs::write(place.given.join("a.txt"), "hello").unwrap();
    let module = explorer(&[&place.files()]);
    let attempts = json!([
        {"read": "/files/a.txt"},
        {"list": "/files"},
        {"env": "CARGO_PKG_NAME"},
    ]);
    let wanted = outcome(module.reconcile(&key(), &probe(json!({ "reconcile": attempts })), 1_000));
    let status: Value = serde_json::from_str(&wanted.status.unwrap().fields).unwrap();
    for done in status["reconcile"].as_array().unwrap() {
        assert_denied(done);
    }
    assert_eq!(status["reconcile"].as_array().unwrap().len(), 3);
    let get = module.reconcile(&key(), &probe(json!({ "reconcile": [{ "get": "http://192.0.2.1/" }] })), 1_000);
    let error = get.result.unwrap_err().to_string();
    assert!(error.contains("wasi:http") && error.contains("which modules are not given"), "{error}");
}

#[test]
fn without_a_grant_the_hook_is_as_blind_as_the_others() {
    let module = limited("explorer", Limits::default());
    assert_denied(&step(&module, json!({"list": "/files"})));
    assert_eq!(step(&module, json!({"variables": true})), json!([]));
    let random = step(&module, json!({"random": true}));
    assert_eq!(step(&module, json!({"random": true})), random);
}

#[test]
fn with_a_grant_clocks_and_random_numbers_are_real() {
    let module = explorer(&[]);
    assert_eq!(step(&module, json!({"sleepMs": 20})), json!(true));
    let random = step(&module, json!({"random": true}));
    assert_ne!(step(&module, json!({"random": true})), random);
}

#[test]
fn sockets_stay_closed_whatever_is_granted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let module = explorer(&[&format!("api:http={address}")]);
    assert_denied(&step(&module, json!({ "connect": address.to_string() })));
    assert_denied(&step(&module, json!({ "udp": address.to_string() })));
    assert_denied(&step(&module, json!({ "resolve": "localhost" })));
}

#[test]
fn what_a_module_prints_and_how_it_panics_is_told_as_of_every_call() {
    let module = explorer(&[]);
    let report = module.ensure(&key(), &probe(json!({ "steps": [{ "print": "working" }] })), 1_000);
    assert_eq!(report.log.lines[0].message, "working");
    let error = failure(&module, json!({"panic": "the disk is full"}));
    assert_eq!(error.reason(), "ModuleTrapped");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(failure(&module, json!({"exit": true})).to_string().contains("exited instead of answering"));
}

#[test]
fn a_file_larger_than_the_memory_is_the_modules_own_trouble() {
    let place = Place::new("huge");
    fs::File::create(place.given.join("huge")).unwrap().set_len(1 << 40).unwrap();
    let module = explorer(&[&place.files()]);
    let ended = module.ensure(&key(), &probe(json!({ "steps": [{ "readAll": "/files/huge" }] })), 1_000);
    match ended.result {
        Ok(answer) => assert!(answer.unwrap().observation.contains("error"), "it has no such memory"),
        Err(error) => assert_eq!(error.reason(), "ModuleOutOfMemory", "{error}"),
    }
    assert_eq!(step(&module, json!({"list": "/files"})), json!(["huge"]));
}

#[test]
fn whatever_a_call_waits_for_it_ends_in_time() {
    let place = Place::new("waits");
    let pipe = place.given.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let limits = Limits { external: Duration::from_millis(300), cpu: Duration::from_secs(60), ..Limits::default() };
    let module = explorer_within(limits, &[&place.files(), &format!("api:http={address}")]);
    for waits in [
        json!({"sleepMs": 3_600_000}),
        json!({"read": "/files/pipe"}),
        json!({"loop": true}),
        json!({ "get": format!("http://{address}/") }),
    ] {
        let error = failure(&module, waits.clone());
        assert_eq!(error.reason(), "ModuleTimeout", "{waits}: {error}");
        assert!(error.to_string().contains("--external-timeout"), "{waits}: {error}");
    }
    let limits = Limits { cpu: Duration::from_millis(50), ..Limits::default() };
    let error = failure(&explorer_within(limits, &[]), json!({"loop": true}));
    assert!(error.to_string().contains("--cpu-timeout"), "{error}");
}

#[test]
fn work_outside_takes_no_slot_of_the_workers() {
    let runtime = Runtime::new(RuntimeOptions { callers: 1, ..grants_for_all() }).unwrap();
    let module = runtime.load(&[fixture("explorer")]).remove(0).unwrap();
    assert!(module.is_pooled());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| module.ensure(&key(), &probe(json!({ "steps": [{ "sleepMs": 1_000 }] })), 1_000));
        }
        for _ in 0..20 {
            drop(outcome(module.reconcile(&key(), &probe(json!({})), 1_000)));
        }
    });
}

fn grants_for_all() -> RuntimeOptions {
    let folder = format!("files:dir={}", scratch("nothing").display());
    let texts = [folder.as_str(), "token:env=CARGO_PKG_NAME", "api:http=192.0.2.1", "more:env=CARGO_PKG_NAME"];
    let grants: Vec<Grant> = texts.iter().map(|text| text.parse().unwrap()).collect();
    RuntimeOptions { grants: Some(grants.into()), ..options() }
}

#[test]
fn a_granted_folder_that_is_gone_is_said_and_tried_again() {
    let place = Place::new("gone");
    let module = explorer(&[&place.files()]);
    fs::remove_dir_all(&place.given).unwrap();
    let report = module.ensure(&key(), &probe(json!({})), 1_000);
    let failure = report.result.unwrap().unwrap_err();
    assert_eq!((failure.reason.as_str(), failure.terminal), ("GrantUnavailable", false));
    assert!(failure.message.contains(&place.files()), "{}", failure.message);
    fs::create_dir_all(&place.given).unwrap();
    assert_eq!(step(&module, json!({"list": "/files"})), json!([]));
}

/// Answers every request with the same, and tells on which port.
fn serve(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";

#[test]
fn a_granted_host_is_asked() {
    let port = serve(HELLO);
    for host in ["127.0.0.1", "localhost"] {
        let module = explorer(&[&format!("api:http={host}:{port}")]);
        let answer = step(&module, json!({ "get": format!("http://{host}:{port}/found?by=test") }));
        assert_eq!(answer, json!({"status": 200, "location": null, "body": "hello"}));
    }
}

#[test]
fn no_other_host_is_asked_whatever_leads_to_it() {
    let (port, other) = (serve(HELLO), serve(HELLO));
    let module = explorer(&[&format!("api:http=localhost:{port}")]);
    for url in [
        format!("http://localhost:{other}/"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}@127.0.0.1:{other}/"),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://kubernetes.default.svc/".into(),
    ] {
        assert_denied(&step(&module, json!({ "get": url })));
    }
    assert_eq!(step(&module, json!({ "get": format!("http://LOCALHOST:{port}/") }))["status"], 200);
}

#[test]
fn a_name_that_was_granted_does_not_lead_to_the_metadata_of_the_machine() {
    let module = explorer(&["api:http=169.254.169.254"]);
    let answer = step(&module, json!({"get": "http://169.254.169.254/latest/meta-data/"}));
    assert!(answer["error"].as_str().unwrap().contains("DestinationIpProhibited"), "{answer}");
}

#[test]
fn the_api_server_is_not_asked_though_it_is_granted() {
    let port = serve(HELLO);
    let text = format!("api:http=127.0.0.1:{port}");
    let mut options = grants_for_all();
    let folder = format!("files:dir={}", scratch("nothing").display());
    let grants = [folder.as_str(), "token:env=CARGO_PKG_NAME", &text, "more:env=CARGO_PKG_NAME"];
    options.grants = Some(Grants::from(grants.iter().map(|text| text.parse::<Grant>().unwrap()).collect::<Vec<_>>()));
    let runtime = Runtime::new(options).unwrap();
    let module = runtime.load(&[fixture("explorer")]).remove(0).unwrap();
    runtime.servers().are_at(&format!("https://localhost:{port}").parse().unwrap());
    let answer = step(&module, json!({ "get": format!("http://127.0.0.1:{port}/") }));
    assert!(answer["error"].as_str().unwrap().contains("DestinationIpProhibited"), "{answer}");
}

#[test]
fn a_redirect_is_not_followed() {
    let port = serve(
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let module = explorer(&[&format!("api:http=127.0.0.1:{port}")]);
    let answer = step(&module, json!({ "get": format!("http://127.0.0.1:{port}/") }));
    assert_eq!(answer, json!({"status": 302, "location": "http://169.254.169.254/", "body": ""}));
}

#[test]
fn what_is_not_granted_is_named_with_the_flag_that_would() {
    let place = Place::new("load");
    let text = granted(Limits::default(), &[&place.files()]).unwrap_err().to_string();
    for words in [
        "asks for what is not granted",
        "\"token\" (proves who it is) is not granted: --grant token:env=EXPLORER_TOKEN",
        "--grant api:http=api.example.com",
        "--grant more:dir=PATH, --grant more:env=KEY or --grant more:http=HOST",
    ] {
        assert!(text.contains(words), "{words:?} is not said: {text}");
    }
    assert!(!text.contains("files:"), "it is granted: {text}");
    let text = granted(Limits::default(), &["files:env=PATH"]).unwrap_err().to_string();
    assert!(text.contains("--grant files:dir=/files"), "a variable is no folder: {text}");
}

#[test]
fn a_grant_for_one_module_is_for_no_other() {
    let place = Place::new("module");
    let others = ["token:env=PATH", "api:http=192.0.2.1", "more:env=PATH"];
    let with = |grant: String| granted(Limits::default(), &[&[grant.as_str()], others.as_slice()].concat());
    with(format!("explorer/{}", place.files())).unwrap();
    let text = with(format!("probe/{}", place.files())).unwrap_err().to_string();
    assert!(text.contains("--grant files:dir=/files"), "{text}");
}

#[test]
fn grants_that_give_nothing_are_named() {
    let place = Place::new("problems");
    let problem = |text: String| Grants::from(vec![text.parse::<Grant>().unwrap()]).problems().join("\n");
    assert_eq!(problem(place.files()), "");
    assert!(problem("files:dir=/nowhere/at/all".into()).contains("/nowhere/at/all: No such file"));
    assert!(problem(format!("files:dir={}", place.kept.join("secret").display())).contains("is not a directory"));
    assert!(problem("token:env=SURELY_NOT_SET".into()).contains("SURELY_NOT_SET: environment variable not found"));
}
