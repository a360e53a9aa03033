//! CustomResourceDefinitions from the types that an operator decodes, in a test of the operator.
//!
//! The definition is generated once and kept in files: one for people and `kubectl`, one that the module embeds. The
//! test that generates it fails when a file is stale, so that schema derives never weigh on the module. `guest-webapp`
//! shows the whole of it.

use std::path::Path;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `.status` as the API server stores it: the operator's own fields, and those that the host writes.
///
/// Nothing in it is required or has a default: the host's condition is written before the operator's first report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "What was last seen of the object.", transform = optional_without_defaults)]
pub struct StatusSchema<S> {
    /// What the operator returns.
    #[serde(flatten)]
    pub fields: S,
    /// The generation of the spec that this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// What is known of the object, one entry for each type of condition.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// apimachinery's metav1.Condition, with the rules that controller-gen derives from its markers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "One thing that is known of the object.")]
pub struct Condition {
    /// The type of the condition, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,
    /// The status of the condition: True, False or Unknown.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The generation of the spec that the condition was set for.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// The last time that the status changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Why the condition has its status, as one CamelCase word.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Why the condition has its status, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
}

fn is_zero(generation: &i64) -> bool {
    *generation == 0
}

fn optional_without_defaults(schema: &mut Schema) {
    schema.remove("required");
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(|properties| properties.values_mut()) {
        if let Some(property) = property.as_object_mut() {
            property.remove("default");
        }
    }
}

/// Checks that each file holds this definition: as YAML where it ends in `.yaml`, else as compact JSON. With the
/// environment variable `UPDATE_CRDS` set, writes the files instead.
///
/// # Panics
/// When a file is stale or can't be written. The message names the file and the command that renews it.
pub fn assert_up_to_date(crd: &impl Serialize, files: &[&Path]) {
    let mut crd = serde_json::to_value(crd).expect("a CustomResourceDefinition is JSON");
    // Other crates of a build may make maps keep the order of insertion.
    crd.sort_all_objects();
    whole_numbers(&mut crd);
    for file in files {
        let fresh = render(&crd, file);
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(file, fresh).unwrap_or_else(|error| panic!("can't write {}: {error}", file.display()));
            continue;
        }
        let stored = std::fs::read_to_string(file).unwrap_or_default();
        assert!(
            stored == fresh,
            "{} is not what the types say. Renew it with: UPDATE_CRDS=1 cargo test -p {} crd",
            file.display(),
            std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".to_owned())
        );
    }
}

fn render(crd: &Value, file: &Path) -> String {
    if file.extension().is_some_and(|extension| extension == "yaml") {
        let yaml = serde_saphyr::to_string(crd).expect("JSON is YAML");
        format!("# Generated from the operator's types; a test says how to renew it.\n{yaml}")
    } else {
        format!("{crd}\n")
    }
}

/// `maximum: 50.0` is what the types of the Kubernetes API say, `maximum: 50` is what people write.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15) {
                *value = Value::from(float as i64);
            }
        }
        _ => {}
    }
}
