//! Random desired objects of four types: every shape of a field that server-side apply knows.

use operator_e2e::client::Resource;
use serde_json::{Value, json};

use crate::{maybe, once_in, some};

/// A type whose schema has every kind of list and map.
pub(crate) const GADGETS: Resource<'static> = Resource::new("random.example.com/v1", "gadgets");
/// A type with defaults and with fields that no schema tells of.
pub(crate) const GIZMOS: Resource<'static> = Resource::new("random.example.com/v1", "gizmos");

/// Both definitions, as one list.
pub(crate) fn definitions() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let texts = json!({"type": "array", "items": text});
    let map = json!({"type": "object", "additionalProperties": text});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let nested = json!({"type": "object", "properties": {
        "text": text,
        "deep": {"type": "object", "properties": {"number": number, "names": texts, "map": map}},
    }});
    let with = |mut schema: Value, key: &str, value: Value| {
        schema[key] = value;
        schema
    };
    let keyed = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": text, "value": text, "options": map, "names": texts,
        }},
    });
    let ports = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {"type": "object", "required": ["port"], "properties": {
            "port": number, "protocol": {"type": "string", "default": "TCP"}, "title": text,
        }},
    });
    let gadget = json!({"type": "object", "properties": {
        "text": text,
        "number": number,
        "flag": {"type": "boolean"},
        "size": {"x-kubernetes-int-or-string": true},
        "map": map,
        "atomicMap": with(map.clone(), "x-kubernetes-map-type", json!("atomic")),
        "nested": nested,
        "atomicNested": with(nested, "x-kubernetes-map-type", json!("atomic")),
        "list": texts,
        "objects": {"type": "array", "items": open},
        "set": with(texts.clone(), "x-kubernetes-list-type", json!("set")),
        "keyed": keyed,
        "ports": ports,
        "maps": {"type": "object", "additionalProperties": map},
    }});
    let gizmo = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "mode": {"type": "string", "default": "auto"},
            "limits": {"type": "object", "default": {}, "properties": {
                "low": {"type": "integer", "default": 1}, "high": {"type": "integer", "default": 9},
            }},
            "ports": ports,
            "keyed": keyed,
        },
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [
        definition("Gadget", "gadgets", &gadget), definition("Gizmo", "gizmos", &gizmo),
    ]})
}

fn definition(kind: &str, plural: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.random.example.com")},
        "spec": {
            "group": "random.example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

fn text(rng: &mut fastrand::Rng) -> Value {
    json!(*rng.choice(&["", "a", "b", "1000m", "true", "<&>\"\\", "käse"]).unwrap_or(&"a"))
}

fn texts(rng: &mut fastrand::Rng) -> Value {
    some(rng, 3, |rng, _| text(rng))
}

fn map(rng: &mut fastrand::Rng) -> Value {
    let mut map = json!({});
    for key in ["a", "b", "f:x", ".", "k:{}"] {
        if once_in(rng, 3) {
            map[key] = text(rng);
        }
    }
    map
}

/// Labels and annotations too, where there are some.
fn metadata(rng: &mut fastrand::Rng, name: &str) -> Value {
    let mut metadata = json!({"name": name});
    let plain = |rng: &mut fastrand::Rng| {
        let mut map = json!({});
        for key in ["app", "example.com/tier"] {
            if rng.bool() {
                map[key] = json!(*rng.choice(&["a", "b", ""]).unwrap_or(&"a"));
            }
        }
        map
    };
    maybe(rng, &mut metadata, "labels", plain);
    maybe(rng, &mut metadata, "annotations", plain);
    metadata
}

fn nested(rng: &mut fastrand::Rng) -> Value {
    let mut deep = json!({});
    maybe(rng, &mut deep, "number", |rng| json!(rng.i32(-2..3)));
    maybe(rng, &mut deep, "names", texts);
    maybe(rng, &mut deep, "map", map);
    let mut nested = json!({});
    maybe(rng, &mut nested, "text", text);
    maybe(rng, &mut nested, "deep", |_| deep);
    nested
}

fn keyed(rng: &mut fastrand::Rng) -> Value {
    some(rng, 3, |rng, index| {
        let mut element = json!({"name": format!("n{index}")});
        maybe(rng, &mut element, "value", text);
        maybe(rng, &mut element, "options", map);
        maybe(rng, &mut element, "names", texts);
        element
    })
}

fn ports(rng: &mut fastrand::Rng) -> Value {
    let protocols = [Some("TCP"), Some("UDP"), None];
    let mut used = Vec::new();
    let all = some(rng, 3, |rng, _| {
        let (port, protocol) = (*rng.choice(&[53, 80]).unwrap_or(&53), *rng.choice(&protocols).unwrap_or(&None));
        let mut element = json!({"port": port});
        if let Some(protocol) = protocol {
            element["protocol"] = json!(protocol);
        }
        maybe(rng, &mut element, "title", text);
        element
    });
    let one_of_each = |element: &&Value| {
        let key = (element["port"].clone(), element["protocol"].as_str().unwrap_or("TCP").to_owned());
        let is_new = !used.contains(&key);
        used.push(key);
        is_new
    };
    all.as_array().into_iter().flatten().filter(one_of_each).cloned().collect()
}

pub(crate) fn gadget(rng: &mut fastrand::Rng, name: &str) -> Value {
    let mut spec = json!({});
    maybe(rng, &mut spec, "text", text);
    maybe(rng, &mut spec, "number", |rng| json!(rng.i32(-2..3)));
    maybe(rng, &mut spec, "flag", |rng| json!(rng.bool()));
    maybe(rng, &mut spec, "size", |rng| if rng.bool() { json!(1) } else { json!("25%") });
    maybe(rng, &mut spec, "map", map);
    maybe(rng, &mut spec, "atomicMap", map);
    maybe(rng, &mut spec, "nested", nested);
    maybe(rng, &mut spec, "atomicNested", nested);
    maybe(rng, &mut spec, "list", texts);
    maybe(rng, &mut spec, "objects", |rng| some(rng, 2, |rng, _| map(rng)));
    maybe(rng, &mut spec, "set", |rng| some(rng, 3, |_, index| json!(["x", "y", ""][index])));
    maybe(rng, &mut spec, "keyed", keyed);
    maybe(rng, &mut spec, "ports", ports);
    maybe(rng, &mut spec, "maps", |rng| {
        let mut maps = json!({});
        maybe(rng, &mut maps, "one", map);
        maybe(rng, &mut maps, "two", map);
        maps
    });
    json!({"apiVersion": GADGETS.api_version, "kind": "Gadget", "metadata": metadata(rng, name), "spec": spec})
}

pub(crate) fn gizmo(rng: &mut fastrand::Rng, name: &str) -> Value {
    let mut spec = json!({});
    maybe(rng, &mut spec, "mode", text);
    maybe(rng, &mut spec, "limits", |rng| {
        let mut limits = json!({});
        maybe(rng, &mut limits, "low", |rng| json!(rng.u32(0..3)));
        maybe(rng, &mut limits, "high", |rng| json!(rng.u32(0..3)));
        limits
    });
    maybe(rng, &mut spec, "ports", ports);
    maybe(rng, &mut spec, "keyed", keyed);
    maybe(rng, &mut spec, "unknown", nested);
    maybe(rng, &mut spec, "unknownList", |rng| some(rng, 2, |rng, _| nested(rng)));
    json!({"apiVersion": GIZMOS.api_version, "kind": "Gizmo", "metadata": metadata(rng, name), "spec": spec})
}

pub(crate) fn deployment(rng: &mut fastrand::Rng, name: &str) -> Value {
    let containers: Value = (0..rng.usize(1..=2)).map(|index| container(rng, &format!("c{index}"))).collect();
    let mut pod = json!({"containers": containers, "volumes": [{"name": "scratch", "emptyDir": {}}]});
    maybe(rng, &mut pod, "initContainers", |rng| some(rng, 2, |rng, index| container(rng, &format!("i{index}"))));
    maybe(rng, &mut pod, "nodeSelector", |rng| if rng.bool() { json!({}) } else { json!({"disk": "ssd"}) });
    maybe(rng, &mut pod, "tolerations", |rng| {
        some(rng, 2, |_, index| json!({"key": format!("t{index}"), "operator": "Exists"}))
    });
    maybe(rng, &mut pod, "hostNetwork", |_| json!(false));
    maybe(rng, &mut pod, "securityContext", |rng| if rng.bool() { json!({}) } else { json!({"runAsNonRoot": true}) });
    let mut spec = json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
    });
    maybe(rng, &mut spec, "replicas", |rng| json!(rng.u32(0..3)));
    maybe(rng, &mut spec, "paused", |rng| json!(rng.bool()));
    maybe(rng, &mut spec, "strategy", |rng| match rng.u32(0..3) {
        0 => json!({"type": "Recreate"}),
        1 => json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%"}}),
        _ => json!({}),
    });
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(rng, name), "spec": spec})
}

fn container(rng: &mut fastrand::Rng, name: &str) -> Value {
    let mut container = json!({"name": name, "image": "example.test/web:1"});
    maybe(rng, &mut container, "args", texts);
    maybe(rng, &mut container, "env", |rng| {
        some(rng, 3, |rng, index| match rng.u32(0..3) {
            0 => json!({"name": format!("E{index}")}),
            1 => json!({"name": format!("E{index}"), "value": text(rng)}),
            _ => json!({"name": format!("E{index}"), "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        })
    });
    maybe(rng, &mut container, "ports", |rng| {
        let mut elements = ports(rng);
        for (index, element) in elements.as_array_mut().into_iter().flatten().enumerate() {
            let port = element["port"].take();
            *element = match element["protocol"].as_str() {
                Some(protocol) => json!({"containerPort": port, "protocol": protocol, "name": format!("p{index}")}),
                None => json!({"containerPort": port}),
            };
        }
        elements
    });
    maybe(rng, &mut container, "resources", |rng| match rng.u32(0..3) {
        0 => json!({}),
        1 => json!({"limits": {"cpu": "1000m", "memory": "1024Mi"}}),
        _ => json!({"limits": {}, "requests": {"cpu": 1}}),
    });
    maybe(rng, &mut container, "volumeMounts", |rng| {
        some(rng, 1, |_, _| json!({"name": "scratch", "mountPath": "/s"}))
    });
    maybe(rng, &mut container, "stdin", |_| json!(false));
    container
}

pub(crate) fn service(rng: &mut fastrand::Rng, name: &str) -> Value {
    let mut elements = ports(rng);
    for (index, element) in elements.as_array_mut().into_iter().flatten().enumerate() {
        element.as_object_mut().map(|fields| fields.remove("title"));
        element["name"] = json!(format!("p{index}"));
        maybe(rng, element, "targetPort", |rng| if rng.bool() { json!(8080) } else { json!("http") });
    }
    if elements == json!([]) {
        elements = json!([{"port": 80}]);
    }
    let mut spec = json!({"ports": elements});
    maybe(rng, &mut spec, "selector", |rng| if rng.bool() { json!({}) } else { json!({"app": "a", "tier": "b"}) });
    maybe(rng, &mut spec, "externalIPs", |rng| some(rng, 2, |_, index| json!(format!("192.0.2.{index}"))));
    maybe(rng, &mut spec, "sessionAffinity", |_| json!("None"));
    maybe(rng, &mut spec, "publishNotReadyAddresses", |rng| json!(rng.bool()));
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(rng, name), "spec": spec})
}
