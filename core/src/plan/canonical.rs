//! The desired object in the one form that is hashed, compared and sent.
//!
//! In: a module's JSON text. Out: a [`Desired`] without nulls, defaults of serialisers and what the host or the server
//! owns, or a [`Refusal`] that names the field. Equal wishes give equal hashes, whatever the order of keys, the way of
//! writing a number, or the language that wrote them.

mod body;
mod checks;
mod parse;

use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::contract::{ObjectName, TypeRef};
use crate::path::Path;
use crate::schema::{NeedsSchema, Published};

pub(super) use body::host_metadata;
pub use body::{ApplyBody, Owner, Precondition};
pub(crate) use parse::strict;

/// Bytes of the hash that are kept: enough that no two wishes of a module meet by accident.
const HASH_BYTES: usize = 16;

/// A child as a module wants it, in canonical form.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// `apiVersion` and `kind`.
    pub type_ref: TypeRef,
    /// Its name, and the namespace that the module wrote: None where it wrote none, until the caller fills it.
    pub name: ObjectName,
    /// All of it but the namespace, keys sorted.
    pub value: Map<String, Value>,
    /// `v1:` and the hash of `value`, as it stands in the live object's annotation.
    pub hash: Arc<str>,
}

/// Why a desired object is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not one JSON value; the text says line and column.
    #[error("is not valid JSON: {0}")]
    Syntax(String),
    /// A key stands twice in one object: a reader would silently take one of the two.
    #[error("{path}: the key stands twice")]
    DuplicateKey {
        /// Of the key.
        path: String,
    },
    /// An integer that neither JSON readers nor the API server hold exactly.
    #[error("{path}: the number is beyond 64 bits")]
    Number {
        /// Of the number.
        path: String,
    },
    /// A key that the API server can't read: it parses what is applied as YAML.
    #[error("{path}: a key may not be longer than 1,024 bytes")]
    LongKey {
        /// Of the object that has the key.
        path: String,
    },
    /// A field that every object has is absent or empty.
    #[error("{path}: is required")]
    Missing {
        /// Of the field.
        path: &'static str,
    },
    /// A field of another JSON type than it must be.
    #[error("{path}: must be {expected}")]
    Type {
        /// Of the field.
        path: String,
        /// `a string`, `an object`.
        expected: &'static str,
    },
    /// A name or namespace that would be another path of the API (apimachinery `path.IsValidPathSegmentName`).
    #[error("{path}: may not be '.', may not be '..', may not contain '/' and may not contain '%'")]
    NoSegment {
        /// Of the field.
        path: &'static str,
    },
    /// A name that the server would make up anew at each apply.
    #[error("metadata.generateName: children need a name that stays the same")]
    GenerateName,
    /// A field that the server writes.
    #[error("{path}: is the API server's to write{}", if *.edited { EDITED } else { "" })]
    ServerOwned {
        /// Of the field.
        path: String,
        /// Whether the object looks like a live one.
        edited: bool,
    },
    /// A field that the host writes.
    #[error("{path}: is the host's to write")]
    HostOwned {
        /// Of the field.
        path: String,
    },
    /// An element without fields, in a list whose elements go by key fields: the server makes it of defaults and
    /// deletes it at the next, equal apply.
    #[error("{path}: an element of a keyed list needs at least one of its fields")]
    EmptyElement {
        /// Of the element.
        path: String,
    },
    /// A status: a child's is written by its own controller.
    #[error("status: a child's status is its own controller's to write")]
    Status,
}

/// What helps the author who changed a live object and returned it.
const EDITED: &str = "; this looks like a live object that was edited: return only the fields that the module wants";

impl Desired {
    /// The canonical form of a module's JSON text.
    ///
    /// # Errors
    /// What is no object of Kubernetes, or says what is not the module's to say.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut object = match parse::strict(text)? {
            Value::Object(object) => object,
            _ => return Err(Refusal::Type { path: "(the object)".into(), expected: "an object" }),
        };
        let type_ref = TypeRef::new(required(&object, "apiVersion")?, required(&object, "kind")?);
        checks::status(&mut object)?;
        let name = checks::metadata(&mut object)?;
        if type_ref.api_version == "v1" && type_ref.kind == "Secret" {
            fold_string_data(&mut object)?;
        }
        // A map of serde_json is sorted unless a dependency asks for insertion order.
        object.sort_keys();
        object.values_mut().for_each(Value::sort_all_objects);
        let hash = hash(&object);
        Ok(Self { type_ref, name, value: object, hash })
    }

    /// Leaves out what is handed to others: paths of field names, such as `spec.replicas`. A list is handed over whole.
    ///
    /// # Errors
    /// The first path that can't be handed over, and why.
    pub fn release(&mut self, paths: &[String]) -> Result<(), String> {
        for path in paths {
            let names: Vec<&str> = path.split('.').collect();
            let refused = |why: &str| Err(format!("release {path:?}: {why}"));
            if names.len() < 2 || names.iter().any(|name| name.is_empty() || name.contains(['[', ']'])) {
                return refused("expected field names with dots in between, such as spec.replicas");
            }
            if matches!(names[0], "metadata" | "status") {
                return refused("metadata and status can't be handed over");
            }
            remove(&mut self.value, &names);
        }
        if !paths.is_empty() {
            self.hash = hash(&self.value);
        }
        Ok(())
    }

    /// The refusal that takes the published schema to tell: see [`Refusal::EmptyElement`]. Elements of atomic lists, as
    /// in a NetworkPolicy's `ingress: [{}]`, may be empty.
    ///
    /// # Errors
    /// [`NeedsSchema`] where there is such an element and the schema is not loaded.
    pub fn empty_element(&self, published: Published<'_>) -> Result<Option<Refusal>, NeedsSchema> {
        for (name, value) in &self.value {
            if let Some(path) = checks::empty_element(value, &Path::Root.field(name), published)? {
                return Ok(Some(Refusal::EmptyElement { path }));
            }
        }
        Ok(None)
    }
}

fn remove(object: &mut Map<String, Value>, names: &[&str]) {
    match names {
        [] => {}
        [last] => drop(object.remove(*last)),
        [first, rest @ ..] => {
            if let Some(Value::Object(below)) = object.get_mut(*first) {
                remove(below, rest);
            }
        }
    }
}

/// A top-level text that must be there.
fn required<'a>(object: &'a Map<String, Value>, field: &'static str) -> Result<&'a str, Refusal> {
    match object.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(Value::String(_)) | None => Err(Refusal::Missing { path: field }),
        Some(_) => Err(Refusal::Type { path: field.into(), expected: "a string" }),
    }
}

/// Does to a Secret what the server does: `stringData` is write-only there, and drift in `data` would be invisible to
/// the owner of `stringData`.
fn fold_string_data(secret: &mut Map<String, Value>) -> Result<(), Refusal> {
    use base64::Engine as _;
    let not = |path: String, expected| Refusal::Type { path, expected };
    let plain = match secret.remove("stringData") {
        None => return Ok(()),
        Some(Value::Object(plain)) => plain,
        Some(_) => return Err(not("stringData".into(), "an object")),
    };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    let data = data.as_object_mut().ok_or_else(|| not("data".into(), "an object"))?;
    for (key, value) in plain {
        let text = value.as_str().ok_or_else(|| not(format!("stringData[{key:?}]"), "a string"))?;
        data.insert(key, base64::engine::general_purpose::STANDARD.encode(text).into());
    }
    Ok(())
}

fn hash(object: &Map<String, Value>) -> Arc<str> {
    use std::fmt::Write as _;
    let mut hasher = Sha256::new();
    // Neither writing a tree nor hashing can fail.
    let _ = serde_json::to_writer(&mut hasher, object);
    let digest = hasher.finalize();
    let mut text = String::from("v1:");
    for byte in &digest[..HASH_BYTES] {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[cfg(test)]
mod tests;
