//! What our field managers own of an object, and what they lost.

use std::sync::Arc;

use super::fields::{Element, Fields};

/// More lost paths than this are not named.
const LOST_MAX: usize = 8;

/// The `fieldsV1` of one manager's entry, without `f:ownerReferences`: those hold the owner's uid, and are compared as
/// parsed metadata. Interned, so that children of one shape share one copy.
#[derive(Clone, Debug)]
pub struct OwnedSet(pub(super) Arc<str>);

impl OwnedSet {
    /// The tree, parsed now.
    ///
    /// # Errors
    /// What is no tree of owned fields.
    pub fn fields(&self) -> Result<Fields<'_>, serde_json::Error> {
        let mut fields = Fields::parse(&self.0)?;
        // An entry that owned nothing but the owner reference of our metadata owns none of it now.
        fields.children.retain(|(name, below)| !(below.is_leaf() && *name == Element::Field("metadata".into())));
        Ok(fields)
    }

    /// Whether a path of field names, with dots in between, leads to something owned.
    pub fn has_path(&self, path: &str) -> bool {
        let elements: Vec<Element<'_>> = path.split('.').map(|name| Element::Field(name.into())).collect();
        self.fields().is_ok_and(|fields| fields.contains(&elements.iter().collect::<Vec<_>>()))
    }

    /// The text, `fieldsV1` as the server wrote it but for the cut.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for OwnedSet {
    /// Pointers first: sets of one decoder are equal only when they are the same.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for OwnedSet {}

/// What is recorded of an object's field managers at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// There are entries, of whomever.
    Kept,
    /// No entry: somebody wiped them, and nobody wrote since.
    Wiped,
    /// They were wiped, then somebody applied: the server made a co-owner `before-first-apply` of all that stood there.
    BeforeFirstApply,
}

/// What the managers of this process own of one object.
#[derive(Clone, Debug)]
pub struct Ownership {
    pub(super) record: Record,
    pub(super) entries: Box<[Entry]>,
    pub(super) lost: Option<Arc<[Lost]>>,
}

/// One `managedFields` entry of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: Arc<str>,
    pub(super) part: Part,
    pub(super) set: OwnedSet,
}

/// What an entry was written by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Our applies: operation Apply, no subresource.
    Apply,
    /// Our status patches: operation Update, subresource `status`; or none, where a type has no such subresource.
    Status,
}

/// A field that one of our managers no longer owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// As the API server prints it: `.spec.template.spec.containers[name="web"].image`.
    pub path: String,
    /// Who owns it now; None when nobody does: it was removed.
    pub manager: Option<String>,
}

impl Ownership {
    /// What a manager owns by its applies.
    pub fn applied(&self, manager: &str) -> Option<&OwnedSet> {
        self.entries.iter().find(|entry| entry.is(manager, Part::Apply)).map(|entry| &entry.set)
    }

    /// What a manager owns by its status patches: one set for each version of the type that it patched.
    pub fn status(&self, manager: &str) -> impl Iterator<Item = &OwnedSet> {
        self.entries.iter().filter(move |entry| entry.is(manager, Part::Status)).map(|entry| &entry.set)
    }

    /// What is recorded of managers at all.
    pub fn record(&self) -> Record {
        self.record
    }

    /// What left our applied sets when they last changed, by path; at most eight.
    pub fn lost(&self) -> &[Lost] {
        self.lost.as_deref().unwrap_or_default()
    }
}

impl Entry {
    fn is(&self, manager: &str, part: Part) -> bool {
        self.part == part && &*self.manager == manager
    }
}

/// Which paths left our applied sets since the previous copy, and who has them now.
///
/// `others` are the entries of all managers in the new copy. Sets that did not change keep what was known: who took a
/// field is still to be told after the next unrelated write.
pub(super) fn lost(previous: &Ownership, entries: &[Entry], others: &[(&str, &str)]) -> Option<Arc<[Lost]>> {
    let applied = |entries: &[Entry]| -> Vec<Entry> {
        entries.iter().filter(|entry| entry.part == Part::Apply).cloned().collect()
    };
    let (before, now) = (applied(&previous.entries), applied(entries));
    if before == now {
        return previous.lost.clone();
    }
    let mut lost = Vec::new();
    for entry in &before {
        let set = now.iter().find(|candidate| candidate.manager == entry.manager).map(|candidate| &candidate.set);
        if set == Some(&entry.set) {
            continue;
        }
        let (Ok(had), Ok(has)) = (entry.set.fields(), set.map_or_else(|| Ok(Fields::default()), OwnedSet::fields))
        else {
            continue;
        };
        let others: Vec<_> = others
            .iter()
            .filter(|(manager, _)| *manager != &*entry.manager)
            .filter_map(|(manager, fields)| Some((*manager, Fields::parse(fields).ok()?)))
            .collect();
        for path in had.leaves_not_in(&has, LOST_MAX) {
            let manager =
                others.iter().find(|(_, fields)| fields.contains(&path)).map(|(manager, _)| (*manager).to_owned());
            lost.push(Lost { path: path.iter().map(ToString::to_string).collect(), manager });
        }
    }
    lost.truncate(LOST_MAX);
    (!lost.is_empty()).then(|| lost.into())
}
