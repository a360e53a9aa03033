//! What one schema of a type lacks of another.

use std::collections::BTreeSet;

use super::{Member, Schema};

/// Fields that every object has, whatever its definition says of them.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Fields that the other schema of the type describes and this one prunes: sorted paths like
    /// `status.conditions[].reason`, of a whole subtree its top alone. One of the two must be of a definition: those refer
    /// to nothing, so the walk ends.
    pub fn lacks(&self, other: &Self) -> Vec<String> {
        let mut lacking = BTreeSet::new();
        for (name, theirs) in other.described(other.root).filter(|(name, _)| !OF_EVERY_OBJECT.contains(name)) {
            self.compare(self.root, other, theirs, name, name.to_owned(), &mut lacking);
        }
        lacking.into_iter().collect()
    }

    /// Compares one field of a node with what the other schema says of it.
    fn compare(
        &self,
        node: usize,
        other: &Self,
        theirs: usize,
        name: &str,
        path: String,
        lacking: &mut BTreeSet<String>,
    ) {
        match self.member(node, name) {
            Member::Described(ours) => self.compare_below(ours, other, theirs, &path, lacking),
            Member::Kept => {}
            Member::Pruned => {
                lacking.insert(path);
            }
        }
    }

    fn compare_below(&self, node: usize, other: &Self, theirs: usize, path: &str, lacking: &mut BTreeSet<String>) {
        for (name, below) in other.described(theirs) {
            self.compare(node, other, below, name, format!("{path}.{name}"), lacking);
        }
        if let (Some(ours), Some(theirs)) = (self.find(node, |node| node.items), other.find(theirs, |node| node.items))
        {
            self.compare_below(ours, other, theirs, &format!("{path}[]"), lacking);
        }
        let additional = |schema: &Self, node| schema.find(node, |node| node.additional);
        if let (Some(ours), Some(theirs)) = (additional(self, node), additional(other, theirs)) {
            self.compare_below(ours, other, theirs, &format!("{path}.*"), lacking);
        }
    }

    /// The fields that a node describes by name.
    fn described(&self, node: usize) -> impl Iterator<Item = (&str, usize)> {
        self.chain(node).flat_map(|node| node.properties.iter().map(|(name, below)| (&**name, *below)))
    }
}
