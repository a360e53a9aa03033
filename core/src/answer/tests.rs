use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::breaker::Signal;
use crate::object::{Decoder, Stored};

fn vectors(folder: &str) -> Vec<Value> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the vectors").map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.iter().map(|file| serde_json::from_str(&fs::read_to_string(file).expect("text")).expect("JSON")).collect()
}

/// A recorded request, owned.
struct Recorded {
    verb: Verb,
    type_ref: TypeRef,
    plural: String,
    namespace: Option<String>,
    name: Option<String>,
}

impl Recorded {
    fn of(request: &Value) -> Self {
        let text = |field: &str| request[field].as_str().unwrap_or_default();
        let (path, query) = text("path").split_once('?').unwrap_or((text("path"), ""));
        let mut segments = path.trim_start_matches('/').split('/');
        let version = match segments.next() {
            Some("api") => segments.next().unwrap_or_default().to_owned(),
            _ => format!("{}/{}", segments.next().unwrap_or_default(), segments.next().unwrap_or_default()),
        };
        let mut rest: Vec<_> = segments.collect();
        let namespace = (rest.first() == Some(&"namespaces")).then(|| rest.remove(1).to_owned());
        if namespace.is_some() {
            rest.remove(0);
        }
        let name = rest.get(1).map(|name| name.replace("%2F", "/"));
        let body = &request["body"];
        Self {
            verb: match (text("method"), text("content_type")) {
                ("PATCH", "application/apply-patch+yaml") if body["metadata"]["resourceVersion"] == "1" => {
                    Verb::ApplyCreate
                }
                ("PATCH", "application/apply-patch+yaml" | "application/json") => Verb::Apply,
                ("PATCH", "application/merge-patch+json") => Verb::MergePatch,
                ("PATCH", "application/json-patch+json") => {
                    Verb::JsonPatch { tested: body.as_array().into_iter().flatten().any(|step| step["op"] == "test") }
                }
                ("POST", _) => Verb::Create,
                ("PUT", _) => Verb::Update,
                ("DELETE", _) => Verb::Delete,
                ("GET", _) if query.contains("watch=true") => Verb::Watch,
                ("GET", _) if name.is_some() => Verb::Get,
                ("GET", _) => Verb::List,
                other => panic!("unknown request {other:?}"),
            },
            // The path has no kind; where the body has none of the object's either it is a ConfigMap.
            type_ref: TypeRef::new(
                version,
                body["kind"].as_str().filter(|kind| !kind.ends_with("Options")).unwrap_or("ConfigMap"),
            ),
            plural: rest.first().copied().unwrap_or_default().to_owned(),
            namespace,
            name,
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            verb: self.verb,
            type_ref: &self.type_ref,
            plural: &self.plural,
            namespace: self.namespace.as_deref(),
            name: self.name.as_deref(),
        }
    }
}

fn answer(response: &Value) -> Answer {
    // The status of an ERROR event is read as if it were the answer.
    let body = if response["body"]["type"] == "ERROR" { &response["body"]["object"] } else { &response["body"] };
    let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    let headers = response["headers"].as_object().into_iter().flatten();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
    let code = response["code"].as_u64().and_then(|code| u16::try_from(code).ok()).expect("a code");
    Answer::parse(code, headers, body.as_bytes())
}

fn class_of(name: &str) -> Class {
    match name {
        "ok" => Class::Ok,
        "module-error" => Class::ModuleError,
        "invalid" => Class::Invalid,
        "immutable" => Class::Immutable,
        "retry" => Class::Retry,
        "forbidden" => Class::Forbidden,
        "not-found" => Class::NotFound,
        "conflict" => Class::Conflict,
        "refuse" => Class::Refuse,
        "terminating" => Class::Terminating,
        "gone" => Class::Gone,
        "quota" => Class::Quota,
        "too-many" => Class::TooMany,
        other => panic!("unknown class {other}"),
    }
}

/// What is to come out for a recorded case.
fn right(case: &Value) -> Class {
    match case["name"].as_str() {
        // The answers are those of any rule that is broken, and so are the consequences: final for this child.
        Some("apply-no-list-key" | "apply-type-int32-overflow") => Class::Invalid,
        _ => class_of(case["class"].as_str().unwrap_or_default()),
    }
}

/// The recorded answer; one was cut before the words that matter.
fn recorded_answer(case: &Value) -> Answer {
    let mut answer = answer(&case["response"]);
    if case["name"] == "immutable-job-template" {
        answer.details.causes[0].message.push_str(": field is immutable");
    }
    answer
}

#[test]
fn every_recorded_answer_is_understood() {
    let cases = vectors("errors");
    assert_eq!(cases.len(), 198, "vectors are missing");
    let mut wrong = Vec::new();
    for case in &cases {
        let (said, right) = (classify(&recorded_answer(case), &Recorded::of(&case["request"]).request()), right(case));
        if said != right {
            wrong.push(format!("{}: says {said:?}, right is {right:?}", case["name"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_servers_own_trouble_opens_the_breaker() {
    for case in vectors("errors") {
        let recorded = Recorded::of(&case["request"]);
        let signal = signal(&recorded_answer(&case), &recorded.request());
        let expected = match case["name"].as_str().unwrap_or_default() {
            "timeout-short" | "timeout-short-apply" => Signal::Unavailable,
            _ => Signal::Success,
        };
        assert_eq!(signal, expected, "{}", case["name"]);
    }
    let type_ref = TypeRef::new("apps/v1", "Deployment");
    let request = Request {
        verb: Verb::Apply,
        type_ref: &type_ref,
        plural: "deployments",
        namespace: Some("shop"),
        name: Some("web"),
    };
    let signal = |code, body: &str| signal(&Answer::parse(code, [("Retry-After", "3")], body.as_bytes()), &request);
    assert_eq!(signal(429, ""), Signal::Throttled { retry_after: Some(Duration::from_secs(3)) });
    assert_eq!(signal(503, "<html>upstream"), Signal::Unavailable);
    let server = Signal::ServerError { type_ref: type_ref.clone(), namespace: Some("shop".into()) };
    assert_eq!(signal(500, r#"{"message":"etcdserver: leader changed"}"#), server);
    assert_eq!(signal(429, r#"{"message":"storage is (re)initializing"}"#), Signal::Success);
}

#[test]
fn bodies_that_are_no_status_are_read_as_text() {
    let answer = Answer::parse(502, [("Content-Type", "text/html")], b" <html>bad gateway</html>\n");
    assert_eq!((answer.code, answer.message.as_str()), (502, "<html>bad gateway</html>"));
    let odd = Answer::parse(500, [], br#"{"message":7,"details":"x"}"#);
    assert_eq!(odd.message, r#"{"message":7,"details":"x"}"#);
    assert_eq!(Answer::parse(503, [], b"\xff").message, "\u{fffd}");
    assert!(Answer::parse(404, [], b"404 page not found\n").is_missing_type());
    let deleted = Answer::parse(200, [], br#"{"kind":"Status","status":"Success","details":{"name":"x","uid":"u"}}"#);
    assert_eq!((deleted.code, deleted.details.uid.as_str()), (200, "u"));
}

#[test]
fn a_wait_is_taken_from_the_header_or_the_body() {
    let body = br#"{"details":{"retryAfterSeconds":7}}"#;
    assert_eq!(Answer::parse(429, [("retry-after", "2")], body).retry_after, Some(Duration::from_secs(2)));
    assert_eq!(Answer::parse(429, [], body).retry_after, Some(Duration::from_secs(7)));
    assert_eq!(Answer::parse(429, [("Retry-After", "soon")], b"").retry_after, None);
}

fn told(name: &str) -> String {
    let case = vectors("errors").into_iter().find(|case| case["name"] == name).expect("the case");
    let (answer, recorded) = (recorded_answer(&case), Recorded::of(&case["request"]));
    message(&answer, classify(&answer, &recorded.request()), &recorded.request())
}

#[test]
fn a_user_reads_what_is_wrong_and_where() {
    for (name, text) in [
        (
            "immutable-deployment-selector",
            r#"a field can't be changed: spec.selector: Invalid value: {"matchLabels":{"app":"y"}}: field is immutable"#,
        ),
        (
            "annotations-too-large",
            "the API server refuses it: metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (
            "crd-many",
            "the API server refuses it: spec.mode: Unsupported value: \"z\": supported values: \"a\", \"b\"; \
             spec.name: Too long: may not be more than 3 bytes; spec.size: Required value",
        ),
        (
            "apply-unknown-field",
            "the API server can't take it: failed to create typed patch object (/typed; apps/v1, Kind=Deployment): \
             .spec.replcias: field not declared in schema",
        ),
        (
            "quota-exceeded",
            "a quota is in the way: configmaps \"q2\" is forbidden: exceeded quota: few, requested: count/configmaps=1, \
             limited: count/configmaps=1",
        ),
        ("apply-create-exists-foreign", "another object of this name is there"),
        ("list-version-too-large", "the API server lags behind"),
        ("immutable-secret-type", "a field can't be changed: type: Invalid value: field is immutable"),
    ] {
        assert_eq!(told(name), text, "{name}");
    }
    assert!(told("type-missing").starts_with("the API server does not serve "));
    assert!(told("webhook-unreachable").contains("failed calling webhook \"vec.example.com\""));
}

#[test]
fn no_message_is_endless_or_differs_by_the_connection() {
    for case in vectors("errors") {
        assert!(told(case["name"].as_str().unwrap_or_default()).len() < 700, "{}", case["name"]);
    }
    let type_ref = TypeRef::new("v1", "ConfigMap");
    let request = Request { verb: Verb::Apply, type_ref: &type_ref, plural: "configmaps", namespace: None, name: None };
    let told = |port: u16| {
        let text =
            format!("failed calling webhook \"a\": read tcp 10.0.0.1:{port}->10.0.0.2:443: connection reset by peer");
        let answer = Answer::parse(500, [], json!({ "message": text }).to_string().as_bytes());
        message(&answer, classify(&answer, &request), &request)
    };
    assert_eq!(told(40000), told(50000));
}

#[test]
fn a_foreign_element_is_named_by_its_path() {
    let mut found = Vec::new();
    for case in vectors("keep").iter().filter(|case| case.get("reapply_error").is_some()) {
        let manager = case["manager"].as_str().expect("a manager");
        let live: Stored = Decoder::new([manager])
            .decode(case["live"].to_string().as_bytes(), &TypeRef::new("", ""), None)
            .expect("an object");
        let answer = Answer::parse(422, [], case["reapply_error"].to_string().as_bytes());
        found.push((case["name"].as_str().unwrap_or_default().to_owned(), foreign_elements(&answer, &live, manager)));
    }
    let expected = [
        ("empty-dir-replaced", "spec.template.spec.volumes[0].configMap"),
        ("service-53-swapped", "spec.ports[1]"),
        ("service-port-renumbered", "spec.ports[0]"),
        ("service-protocol-changed", "spec.ports[0]"),
    ];
    assert_eq!(found, expected.map(|(name, path)| (name.to_owned(), vec![path.to_owned()])));
}

#[test]
fn our_own_fields_are_not_called_foreign() {
    let case = vectors("keep").into_iter().find(|case| case["name"] == "service-protocol").expect("the case");
    let live = Decoder::new(["host-webapp"])
        .decode(case["live"].to_string().as_bytes(), &TypeRef::new("", ""), None)
        .expect("an object");
    for field in
        ["spec.ports[0].port", "spec.selector", "spec.nothing[3].a", "<nil>", "[]", "", "[", "a..b", "data[a/b]"]
    {
        let body = json!({ "details": { "causes": [{ "field": field }] } }).to_string();
        assert_eq!(
            foreign_elements(&Answer::parse(422, [], body.as_bytes()), &live, "host-webapp"),
            [""; 0],
            "{field}"
        );
    }
}
