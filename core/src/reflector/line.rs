//! The wire: a line of a watch, a page of a list. Objects stay text, for the decoder.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Fault;
use crate::answer::Answer;
use crate::object::ResourceVersion;

/// A line of a watch (`metav1.WatchEvent`).
#[derive(Debug)]
pub enum Line<'a> {
    /// ADDED or MODIFIED: the object's text.
    Upserted(&'a str),
    /// DELETED: the object's text.
    Deleted(&'a str),
    /// BOOKMARK.
    Bookmark {
        /// How far the stream has come.
        version: ResourceVersion,
        /// All of the initial events have been sent.
        ends_list: bool,
    },
    /// ERROR: the stream is over.
    Error(Fault),
}

/// A page of a list.
#[derive(Debug)]
pub struct Page<'a> {
    /// The list's version.
    pub version: ResourceVersion,
    /// Token of the next page.
    pub next: Option<String>,
    /// The objects' texts.
    pub items: Vec<&'a str>,
}

/// Bytes that are no line of a watch or no list.
#[derive(Debug, thiserror::Error)]
#[error("the API server sent what is no {expected}: {reason}")]
pub struct Broken {
    expected: &'static str,
    reason: serde_json::Error,
}

#[derive(Deserialize)]
struct WireLine<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct WireBookmark {
    metadata: WireBookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBookmarkMetadata {
    resource_version: String,
    annotations: Option<WireAnnotations>,
}

#[derive(Deserialize)]
struct WireAnnotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: Option<String>,
}

#[derive(Deserialize)]
struct WireList<'a> {
    metadata: WireListMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Reads a line of a watch.
///
/// # Errors
/// What is no line of a watch, and types of lines that nobody knows.
pub fn parse_line(line: &[u8]) -> Result<Line<'_>, Broken> {
    let broken = |reason| Broken { expected: "line of a watch", reason };
    let wire: WireLine<'_> = serde_json::from_slice(line).map_err(broken)?;
    let object = wire.object.get();
    match &*wire.kind {
        "ADDED" | "MODIFIED" => Ok(Line::Upserted(object)),
        "DELETED" => Ok(Line::Deleted(object)),
        "BOOKMARK" => {
            let WireBookmark { metadata } = serde_json::from_str(object).map_err(broken)?;
            let end = metadata.annotations.and_then(|annotations| annotations.initial_events_end);
            let version = ResourceVersion::new(&metadata.resource_version);
            Ok(Line::Bookmark { version, ends_list: end.as_deref() == Some("true") })
        }
        "ERROR" => Ok(Line::Error(Fault::answer(&Answer::parse(200, [], object.as_bytes())))),
        unknown => Err(broken(serde::de::Error::unknown_variant(
            unknown,
            &["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"],
        ))),
    }
}

/// Reads a page of a list.
///
/// # Errors
/// What is no list.
pub fn parse_page(body: &[u8]) -> Result<Page<'_>, Broken> {
    let broken = |reason| Broken { expected: "list", reason };
    let wire: WireList<'_> = serde_json::from_slice(body).map_err(broken)?;
    Ok(Page {
        version: ResourceVersion::new(&wire.metadata.resource_version),
        next: wire.metadata.next,
        items: wire.items.unwrap_or_default().into_iter().map(RawValue::get).collect(),
    })
}
