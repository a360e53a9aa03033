//! The one patch of managedFields that the host makes.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The entry that the server makes when an object without entries is applied to (structured-merge-diff, `BeforeFirstApply`).
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    resource_version: String,
    #[serde(borrow, default)]
    managed_fields: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    manager: String,
}

/// A merge patch that leaves every entry but that one, for exactly this state of the object.
pub(super) fn without_before_first_apply(object: &[u8], uid: &str) -> Result<Value, serde_json::Error> {
    let Object { metadata } = serde_json::from_slice(object)?;
    let mut kept = Vec::new();
    for entry in metadata.managed_fields {
        if serde_json::from_str::<Entry>(entry.get())?.manager != BEFORE_FIRST_APPLY {
            kept.push(serde_json::from_str::<Value>(entry.get())?);
        }
    }
    Ok(json!({ "metadata": { "uid": uid, "resourceVersion": metadata.resource_version, "managedFields": kept } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_entry_goes() {
        let object = br#"{"metadata":{"resourceVersion":"7","managedFields":[
            {"manager":"before-first-apply","operation":"Update"},{"manager":"kubectl","operation":"Update"}]}}"#;
        let patch = without_before_first_apply(object, "u").expect("is an object");
        assert_eq!(patch["metadata"]["managedFields"], json!([{"manager":"kubectl","operation":"Update"}]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }
}
