use serde_json::json;

use super::*;
use crate::contract::OnPrune;
use crate::names;
use crate::schema::Schema;

fn parse(value: &Value) -> Result<Desired, Refusal> {
    Desired::parse(&value.to_string())
}

fn config_map(metadata: Value) -> Value {
    let mut metadata = metadata;
    metadata["name"] = json!("web");
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "a": "1" } })
}

fn refused(text: &str) -> String {
    Desired::parse(text).expect_err("a refusal").to_string()
}

/// A ConfigMap with these members beside its metadata.
fn with(members: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"web"}},{members}}}"#)
}

#[test]
fn equal_wishes_have_equal_hashes() {
    let plain = Desired::parse(&with(r#""data":{"a":"1","b":{"c":[{"x":1},2.5]}}"#)).expect("sound");
    for same in [
        with(r#" "data" : { "b":{"c":[{"x":1.0},25e-1]}, "a":"\u0031" }"#),
        with(r#""data":{"a":"1","b":{"c":[{"x":1,"creationTimestamp":null},2.5],"n":null}},"status":{}"#),
        with(
            r#""data":{"a":"1","b":{"c":[{"x":1,"creationTimestamp":""},2.5]}},"status":{"loadBalancer":{},"list":[]}"#,
        ),
        with(r#""data":{"a":"1","b":{"c":[{"x":1},2.5]}}"#).replace("\"web\"", "\"web\",\"namespace\":\"shop\""),
    ] {
        let same = Desired::parse(&same).expect("sound");
        assert_eq!((&same.hash, &same.value), (&plain.hash, &plain.value));
    }
    let other = Desired::parse(&with(r#""data":{"a":"1","b":{"c":[2.5,{"x":1}]}}"#)).expect("sound");
    assert_ne!(other.hash, plain.hash);
    assert_eq!(plain.hash.len(), "v1:".len() + 32);
}

#[test]
fn hashes_stay_the_same_from_release_to_release() {
    let desired = parse(&config_map(json!({}))).expect("sound");
    assert_eq!(
        &*desired.hash, "v1:6b6e36a5776c7f69be9725703b1250b1",
        "every child in every cluster would be applied again"
    );
}

#[test]
fn the_namespace_is_kept_beside_the_object() {
    let desired = parse(&config_map(json!({ "namespace": "shop" }))).expect("sound");
    assert_eq!(desired.name, ObjectName::new(Some("shop"), "web"));
    assert_eq!(desired.value["metadata"], json!({ "name": "web" }));
    assert_eq!(parse(&config_map(json!({}))).expect("sound").name, ObjectName::new(None, "web"));
}

#[test]
fn a_secret_is_sent_as_the_server_stores_it() {
    let secret = |members: &str| {
        Desired::parse(&with(members).replace("ConfigMap", "Secret")).map(|desired| desired.value["data"].clone())
    };
    let folded = secret(r#""data":{"a":"eA==","b":"eQ=="},"stringData":{"b":"grün"}"#);
    assert_eq!(folded, Ok(json!({ "a": "eA==", "b": "Z3LDvG4=" })));
    assert_eq!(secret(r#""stringData":{"b":"y"}"#), Ok(json!({ "b": "eQ==" })));
    let error = secret(r#""stringData":{"b":1}"#).expect_err("a refusal");
    assert_eq!(error.to_string(), r#"stringData["b"]: must be a string"#);
}

#[test]
fn what_is_not_sound_json_is_refused_with_its_place() {
    for (members, message) in [
        (r#""data":{"a":1,"a":2}"#, "data.a: the key stands twice"),
        (r#""data":{"a":null,"a":2}"#, "data.a: the key stands twice"),
        (r#""data":{"x":[{"b":1,"\u0062":2}]}"#, "data.x[0].b: the key stands twice"),
        (r#""data":{"a":9223372036854775808}"#, "data.a: the number is beyond 64 bits"),
        (r#""data":{"a":[0,-100000000000000000000]}"#, "data.a[1]: the number is beyond 64 bits"),
    ] {
        assert_eq!(refused(&with(members)), message);
    }
    for members in [r#""data":{"a":NaN}"#, r#""data":{"a":1"#, r#""data":{"a":1}}"#, r#""data":"\ud800""#] {
        let message = refused(&with(members));
        assert!(message.starts_with("is not valid JSON: ") && message.contains("line 1 column"), "{message}");
    }
    assert_eq!(refused("[]"), "(the object): must be an object");
    assert!(
        Desired::parse(&with(r#""data":{"a":-9223372036854775808,"b":1e21,"c":1e300,"d":9007199254740993}"#)).is_ok()
    );
}

#[test]
fn a_key_that_yaml_cannot_read_is_refused() {
    let key = |text: &str| Desired::parse(&with(&format!(r#""data":{{"{text}":1}}"#)));
    assert!(key(&"k".repeat(1022)).is_ok());
    let error = key(&"k".repeat(1023)).expect_err("a refusal");
    assert_eq!(error.to_string(), "data: a key may not be longer than 1,024 bytes");
    assert!(key(&r"\u0080".repeat(171)).is_err(), "171 escapes are longer than 1,024 bytes");
}

#[test]
fn what_is_not_the_modules_to_say_is_refused_by_name() {
    let refused = |metadata: Value| parse(&config_map(metadata)).expect_err("a refusal").to_string();
    assert_eq!(refused(json!({ "generateName": "x-" })), Refusal::GenerateName.to_string());
    assert_eq!(refused(json!({ "generation": 1 })), "metadata.generation: is the API server's to write");
    assert_eq!(refused(json!({ "ownerReferences": [] })), "metadata.ownerReferences: is the host's to write");
    for field in ["labels", "annotations"] {
        assert_eq!(
            refused(json!({ field: { names::INSTALLATION_LABEL: "x" } })),
            format!(r#"metadata.{field}["operatorhost.dev/installation"]: is the host's to write"#)
        );
    }
    let mut deployment = config_map(json!({}));
    deployment["spec"] = json!({ "template": { "metadata": { "labels": { "operatorhost.dev/x": "y" } } } });
    assert!(parse(&deployment).expect_err("a refusal").to_string().starts_with("spec.template.metadata.labels["));
    let mut object = config_map(json!({}));
    object["status"] = json!({ "replicas": 0 });
    assert_eq!(parse(&object), Err(Refusal::Status));
}

#[test]
fn an_edited_live_object_is_refused_with_a_hint() {
    let live =
        json!({ "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [] });
    let message = parse(&config_map(live)).expect_err("a refusal").to_string();
    assert!(message.contains("looks like a live object that was edited"), "{message}");
}

#[test]
fn what_every_object_has_must_be_there() {
    for (object, message) in [
        (json!({ "kind": "X", "metadata": { "name": "x" } }), "apiVersion: is required"),
        (json!({ "apiVersion": "v1", "kind": "", "metadata": { "name": "x" } }), "kind: is required"),
        (json!({ "apiVersion": 1, "kind": "X" }), "apiVersion: must be a string"),
        (json!({ "apiVersion": "v1", "kind": "X" }), "metadata.name: is required"),
        (json!({ "apiVersion": "v1", "kind": "X", "metadata": { "name": null } }), "metadata.name: is required"),
        (json!({ "apiVersion": "v1", "kind": "X", "metadata": [] }), "metadata: must be an object"),
        (config_map(json!({ "labels": [] })), "metadata.labels: must be an object"),
    ] {
        assert_eq!(parse(&object).expect_err("a refusal").to_string(), message);
    }
}

#[test]
fn a_name_that_is_another_path_of_the_api_is_refused() {
    for (field, text) in [("name", ".."), ("name", "web/scale"), ("name", "%2e%2e"), ("namespace", "shop/configmaps/x")]
    {
        let mut object = config_map(json!({}));
        object["metadata"][field] = json!(text);
        let message = parse(&object).expect_err("a refusal").to_string();
        assert!(message.starts_with(&format!("metadata.{field}: may not be '.'")), "{text}: {message}");
    }
    let mut object = config_map(json!({}));
    object["metadata"]["name"] = json!("system:controller");
    assert!(parse(&object).is_ok(), "as RBAC has them");
}

#[test]
fn an_element_that_the_next_apply_would_delete_is_refused() {
    let mut object = config_map(json!({}));
    object["spec"] = json!({ "ingress": [{}], "deep": [{ "peers": [{ "port": 1 }, {}] }] });
    let desired = parse(&object).expect("sound");
    let schema = |ingress: &str, deep: &str| {
        let list = |kind: &str, items: Value| json!({ "x-kubernetes-list-type": kind, "items": items });
        let peers = json!({ "properties": { "peers": list("map", json!({})) } });
        let root = json!({
            "x-kubernetes-group-version-kind": [{ "group": "", "version": "v1", "kind": "ConfigMap" }],
            "properties": { "spec": { "properties": { "ingress": list(ingress, json!({})), "deep": list(deep, peers) } } },
        });
        let document = json!({ "components": { "schemas": { "it": root } } }).to_string();
        Schema::parse(document.as_bytes(), &desired.type_ref).expect("a document").expect("the type")
    };
    let refused = |published: Published<'_>| {
        let refusal = desired.empty_element(published)?;
        Ok(refusal.map(|refusal| refusal.to_string().split(':').next().unwrap_or_default().to_owned()))
    };
    assert_eq!(refused(Published::NotLoaded), Err(NeedsSchema));
    assert_eq!(refused(Published::Nothing), Ok(None), "what is not known is not refused");
    for (ingress, deep, path) in [
        ("atomic", "atomic", None),
        ("map", "atomic", Some("spec.ingress[0]")),
        ("atomic", "map", Some("spec.deep[0].peers[1]")),
    ] {
        assert_eq!(refused(Published::Schema(&schema(ingress, deep))), Ok(path.map(str::to_owned)));
    }
    let plain = parse(&config_map(json!({}))).expect("sound");
    assert_eq!(plain.empty_element(Published::NotLoaded), Ok(None), "the schema is asked for without need");
}

const OWNER: &str = "webapp.example.com/v1";

fn render(desired: &Desired, precondition: Precondition<'_>, on_prune: OnPrune) -> String {
    let type_ref = TypeRef::new(OWNER, "WebApp");
    let owner = Owner { type_ref: &type_ref, name: &ObjectName::new(Some("shop"), "web"), uid: "u1" };
    ApplyBody { installation: "default", on_prune, owner, precondition }.render(desired)
}

#[test]
fn the_host_adds_what_is_its_own() {
    let mut desired = parse(&config_map(json!({ "labels": { "app": "web" } }))).expect("sound");
    desired.name.namespace = Some("shop".into());
    let sent: Value = serde_json::from_str(&render(&desired, Precondition::Absent, OnPrune::Orphan)).expect("JSON");
    let expected = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "1" },
        "metadata": {
            "name": "web", "namespace": "shop", "resourceVersion": "1",
            "labels": { "app": "web", "operatorhost.dev/installation": "default" },
            "annotations": { "operatorhost.dev/desired": &*desired.hash, "operatorhost.dev/on-prune": "orphan" },
            "ownerReferences": [{
                "apiVersion": OWNER, "kind": "WebApp", "name": "web", "uid": "u1", "controller": true, "blockOwnerDeletion": true,
            }],
        },
    });
    assert_eq!(sent, expected);
    let sent: Value = serde_json::from_str(&render(&desired, Precondition::Uid("u2"), OnPrune::Delete)).expect("JSON");
    assert_eq!((&sent["metadata"]["uid"], sent["metadata"].get("resourceVersion")), (&json!("u2"), None));
    assert_eq!(sent["metadata"]["annotations"].as_object().map(Map::len), Some(1));
}

#[test]
fn the_body_is_json_that_yaml_reads_the_same() {
    let text = "a\u{7f}\u{80}\u{85} \u{9f}\u{a0}\u{2028} \u{2029}\u{fffe}\u{ffff}\u{fffd}ü🚀\u{0}\t\n\"\\";
    let mut object = config_map(json!({}));
    object["data"] = json!({ text: text });
    let body = render(&parse(&object).expect("sound"), Precondition::Any, OnPrune::Delete);
    let escaped = r#"a\u007f\u0080\u0085 \u009f"#.to_owned() + "\u{a0}" + r"\u2028 \u2029\ufffe\uffff" + "\u{fffd}ü🚀";
    assert!(body.contains(&format!(r#"{{"{escaped}\u0000\t\n\"\\":"{escaped}\u0000\t\n\"\\"}}"#)), "{body}");
    let read: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(read["data"][text], text);
}

mod random {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e6..1e6).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            let field =
                (prop_oneof!["[a-c]{1,2}", any::<String>(), Just("creationTimestamp".to_owned())], inner.clone());
            prop_oneof![
                vec(inner, 0..5).prop_map(Value::from),
                vec(field, 0..5).prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// The same value with the keys of every object in reverse, and integers as floats where that is exact.
    fn rewritten(value: &Value) -> String {
        match value {
            Value::Object(fields) => {
                let fields = fields
                    .iter()
                    .rev()
                    .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), rewritten(value)));
                format!("{{ {} }}", fields.collect::<Vec<_>>().join(" ,"))
            }
            Value::Array(items) => format!("[{}]", items.iter().map(rewritten).collect::<Vec<_>>().join(", ")),
            Value::Number(number) if number.as_i64().is_some_and(|number| number.abs() < 1 << 50) => {
                format!("{number}.0")
            }
            other => other.to_string(),
        }
    }

    fn object(spec: &Value) -> Value {
        json!({ "apiVersion": "a/v1", "kind": "Loose", "metadata": { "name": "x" }, "spec": spec })
    }

    proptest! {
        #[test]
        fn the_canonical_form_of_itself_is_itself(spec in value()) {
            let once = parse(&object(&spec)).expect("sound");
            let twice = parse(&Value::Object(once.value.clone())).expect("sound");
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn the_way_of_writing_does_not_matter(spec in value()) {
            let object = object(&spec);
            let (plain, other) = (parse(&object).expect("sound"), Desired::parse(&rewritten(&object)).expect("sound"));
            prop_assert_eq!(plain.hash, other.hash);
        }

        #[test]
        fn the_body_holds_the_canonical_values(spec in value()) {
            let desired = parse(&object(&spec)).expect("sound");
            let sent: Value = serde_json::from_str(&render(&desired, Precondition::Any, OnPrune::Delete)).expect("JSON");
            prop_assert_eq!(sent.get("spec"), desired.value.get("spec"));
        }
    }
}

#[test]
fn many_numbers_beyond_all_integers_are_read_once() {
    let list = |last: &str| with(&format!(r#""data":{{"list":[{}{last}]}}"#, "1e30,".repeat(200_000)));
    assert!(Desired::parse(&list("1e21")).is_ok());
    assert!(refused(&list("1000000000000000000001")).contains("data.list[200000]"));
}
