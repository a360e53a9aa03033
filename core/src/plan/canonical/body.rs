//! The body of an apply: the desired object and what the host adds, as JSON that YAML reads the same.
//!
//! The API server parses an apply as YAML whatever it is sent: raw U+0085, U+2028 and U+2029 are folded as line breaks,
//! other controls refused, and so are characters beyond the basic plane that are written as a pair of escapes.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value, json};

use super::Desired;
use crate::contract::{ObjectName, OnPrune, TypeRef};
use crate::names;
use crate::object::controller_annotation;

/// go-yaml gives up on a simple key after this many bytes, quotes and escapes included.
const KEY_MAX: usize = 1024;

/// What an apply says beside the desired object.
#[derive(Clone, Copy, Debug)]
pub struct ApplyBody<'a> {
    /// Value of the host's label.
    pub installation: &'a str,
    /// `Orphan` is kept on the live object: at prune time nothing else knows it.
    pub on_prune: OnPrune,
    /// The primary.
    pub owner: Owner<'a>,
    /// What must hold on the server.
    pub precondition: Precondition<'a>,
}

/// The primary as a controller.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Its type; on a change the one that the live reference has, so that a new version of the type writes nothing.
    pub type_ref: &'a TypeRef,
    /// Its name.
    pub name: &'a ObjectName,
    /// Its uid.
    pub uid: &'a str,
}

impl Owner<'_> {
    /// Whether an owner reference leads from a child of this name to the primary: to a cluster-scoped one, or one of the same namespace.
    pub fn reaches(&self, child: &ObjectName) -> bool {
        self.name.namespace.is_none() || self.name.namespace == child.namespace
    }
}

/// What must hold for an apply to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition<'a> {
    /// Nothing of that name is there: `resourceVersion: "1"`, which no object has. Answered by 409 otherwise.
    Absent,
    /// The object there has this uid. Answered by 409 or 422 otherwise.
    Uid(&'a str),
    /// None: for servers that can't take the first. Somebody must look at the answer.
    Any,
}

impl ApplyBody<'_> {
    /// The text to send for a desired object. Its namespace must have been filled in.
    pub fn render(&self, desired: &Desired) -> String {
        let mut object = desired.value.clone();
        object.insert("metadata".into(), self.metadata(desired).into());
        to_yaml_safe_json(&Value::Object(object))
    }

    fn metadata(&self, desired: &Desired) -> Map<String, Value> {
        let owner = self.owner;
        let is_reached = owner.reaches(&desired.name);
        let tracked = (!is_reached).then(|| controller_annotation(owner.type_ref, owner.name, owner.uid));
        let mut metadata = host_metadata(desired, self.installation, self.on_prune, tracked.as_deref());
        if let Some(namespace) = &desired.name.namespace {
            metadata.insert("namespace".into(), (**namespace).into());
        }
        if is_reached {
            let reference = json!({
                "apiVersion": owner.type_ref.api_version, "kind": owner.type_ref.kind, "name": &*owner.name.name, "uid": owner.uid,
                "controller": true, "blockOwnerDeletion": true,
            });
            metadata.insert("ownerReferences".into(), [reference].into_iter().collect());
        }
        match self.precondition {
            Precondition::Absent => metadata.insert("resourceVersion".into(), "1".into()),
            Precondition::Uid(uid) => metadata.insert("uid".into(), uid.into()),
            Precondition::Any => None,
        };
        metadata
    }
}

/// The desired metadata with the host's label and annotations; `tracked` stands for an owner reference.
pub(in crate::plan) fn host_metadata(
    desired: &Desired,
    installation: &str,
    on_prune: OnPrune,
    tracked: Option<&str>,
) -> Map<String, Value> {
    let mut metadata = desired.value.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut set = |field: &str, key: &str, value: &str| {
        let entries = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
        if let Some(entries) = entries.as_object_mut() {
            entries.insert(key.into(), value.into());
        }
    };
    set("labels", names::INSTALLATION_LABEL, installation);
    set("annotations", names::DESIRED_ANNOTATION, &desired.hash);
    if on_prune == OnPrune::Orphan {
        set("annotations", names::ON_PRUNE_ANNOTATION, names::ORPHAN);
    }
    if let Some(controller) = tracked {
        set("annotations", names::CONTROLLER_ANNOTATION, controller);
    }
    metadata
}

/// A value as JSON text that a YAML parser reads as the same value.
fn to_yaml_safe_json(value: &Value) -> String {
    let mut text = Vec::new();
    // Writing a tree to memory can't fail; were it to, the server would refuse the empty body.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut text, YamlSafe));
    String::from_utf8(text).unwrap_or_default()
}

/// Whether a key is longer, as it is sent, than go-yaml reads.
pub(super) fn is_long_key(key: &str) -> bool {
    // No character takes more than six bytes.
    key.len() > KEY_MAX / 6 - 2 && to_yaml_safe_json(&key.into()).len() > KEY_MAX
}

/// Compact JSON with more escapes than JSON asks for.
struct YamlSafe;

impl Formatter for YamlSafe {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, char)) = rest.char_indices().find(|(_, char)| needs_escape(*char)) {
            write!(writer, "{}\\u{:04x}", &rest[..at], u32::from(char))?;
            rest = &rest[at + char.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

fn needs_escape(char: char) -> bool {
    matches!(char, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}
