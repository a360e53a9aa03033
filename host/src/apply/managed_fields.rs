//! The patches of managedFields that the host makes: each leaves all of the object as it is but for who owns what.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

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

/// A merge patch that makes what earlier managers own ours, as if it had been applied by us (client-go `csaupgrade`): what is no longer
/// applied then goes, as it does with fields of our own. None where they own nothing.
pub(super) fn taken_over(
    object: &[u8],
    uid: &str,
    from: &[String],
    manager: &str,
) -> Result<Option<Value>, serde_json::Error> {
    let Object { metadata } = serde_json::from_slice(object)?;
    let (mut kept, mut ours, mut fields) = (Vec::new(), None, Map::new());
    let mut found = false;
    for raw in metadata.managed_fields {
        let mut entry: Value = serde_json::from_str(raw.get())?;
        let of_object = entry["subresource"].as_str().unwrap_or_default().is_empty();
        let is_theirs = of_object && from.iter().any(|name| entry["manager"] == **name);
        let is_ours = of_object && entry["manager"] == manager && entry["operation"] == "Apply";
        if !is_theirs && !is_ours {
            kept.push(entry);
            continue;
        }
        found |= is_theirs;
        if let Value::Object(set) = entry["fieldsV1"].take() {
            unite(&mut fields, set);
        }
        ours.get_or_insert(entry);
    }
    let Some(mut entry) = ours.filter(|_| found) else { return Ok(None) };
    // A status that was written by way of the object is not ours to apply.
    fields.remove("f:status");
    entry["manager"] = manager.into();
    entry["operation"] = "Apply".into();
    entry["fieldsV1"] = fields.into();
    kept.push(entry);
    Ok(Some(json!({ "metadata": { "uid": uid, "resourceVersion": metadata.resource_version, "managedFields": kept } })))
}

/// A merge patch by which we own these paths no longer: their values stay whatever is applied. None where we own none of them.
pub(super) fn handed_over(
    object: &[u8],
    uid: &str,
    manager: &str,
    paths: &[String],
) -> Result<Option<Value>, serde_json::Error> {
    let Object { metadata } = serde_json::from_slice(object)?;
    let (mut entries, mut found) = (Vec::new(), false);
    for raw in metadata.managed_fields {
        let mut entry: Value = serde_json::from_str(raw.get())?;
        if entry["manager"] == manager
            && entry["operation"] == "Apply"
            && let Value::Object(fields) = &mut entry["fieldsV1"]
        {
            for path in paths {
                let names: Vec<String> = path.split('.').map(|name| format!("f:{name}")).collect();
                found |= remove(fields, &names);
            }
        }
        entries.push(entry);
    }
    let metadata = json!({ "uid": uid, "resourceVersion": metadata.resource_version, "managedFields": entries });
    Ok(found.then(|| json!({ "metadata": metadata })))
}

fn unite(into: &mut Map<String, Value>, set: Map<String, Value>) {
    for (element, below) in set {
        match (into.get_mut(&element), below) {
            (Some(Value::Object(into)), Value::Object(below)) => unite(into, below),
            (Some(_), _) => {}
            (None, below) => drop(into.insert(element, below)),
        }
    }
}

/// Whether it was there. A node that nothing is left below would own all of itself.
fn remove(fields: &mut Map<String, Value>, names: &[String]) -> bool {
    let Some((first, rest)) = names.split_first() else { return false };
    if rest.is_empty() {
        return fields.remove(first).is_some();
    }
    let Some(Value::Object(below)) = fields.get_mut(first) else { return false };
    let removed = remove(below, rest);
    if removed && below.is_empty() {
        fields.remove(first);
    }
    removed
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

    const OBJECT: &[u8] = br#"{"metadata":{"resourceVersion":"7","managedFields":[
        {"manager":"old","operation":"Update","fieldsV1":{"f:spec":{"f:a":{},"f:b":{}}}},
        {"manager":"old","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}},
        {"manager":"older","operation":"Apply","fieldsV1":{"f:spec":{"f:b":{"f:c":{}}},"f:data":{}}},
        {"manager":"kubectl","operation":"Update","fieldsV1":{"f:spec":{"f:d":{}}}}]}}"#;

    #[test]
    fn what_earlier_managers_own_becomes_ours() {
        let from = ["old".to_owned(), "older".to_owned()];
        let patch = taken_over(OBJECT, "u", &from, "ours").expect("is an object").expect("they own something");
        let entries = patch["metadata"]["managedFields"].as_array().expect("a list");
        let managers: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str().expect("a text")).collect();
        assert_eq!(managers, ["old", "kubectl", "ours"], "the status stays with who writes it");
        assert_eq!(entries[2]["operation"], "Apply");
        assert_eq!(entries[2]["fieldsV1"], json!({"f:spec": {"f:a": {}, "f:b": {"f:c": {}}}, "f:data": {}}));
        assert_eq!(taken_over(OBJECT, "u", &["nobody".to_owned()], "ours").expect("is an object"), None);
    }

    #[test]
    fn what_is_handed_over_is_ours_no_longer() {
        let paths = ["data".to_owned(), "spec.b.c".to_owned(), "spec.x".to_owned()];
        let patch = handed_over(OBJECT, "u", "older", &paths).expect("is an object").expect("it owned two of them");
        assert_eq!(patch["metadata"]["managedFields"][2]["fieldsV1"], json!({}), "nothing empty is left");
        assert_eq!(handed_over(OBJECT, "u", "older", &["spec.x".to_owned()]).expect("is an object"), None);
    }
}
