//! Where a value stands in a JSON document.

use std::fmt;

/// A path that is extended on the way down and printed only when somebody asks: nothing is allocated on the happy way.
#[derive(Clone, Copy, Debug)]
pub enum Path<'p> {
    /// The document.
    Root,
    /// A field of a struct or a key of a map.
    Field(&'p Path<'p>, &'p str),
    /// An element of a list.
    Item(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    /// The path of a field below this one.
    pub fn field(&'p self, name: &'p str) -> Self {
        Self::Field(self, name)
    }

    /// The path of an element below this one.
    pub fn item(&'p self, index: usize) -> Self {
        Self::Item(self, index)
    }

    /// The path that this one was made from; None for the document.
    pub fn parent(&self) -> Option<&'p Self> {
        match *self {
            Self::Root => None,
            Self::Field(parent, _) | Self::Item(parent, _) => Some(parent),
        }
    }
}

impl fmt::Display for Path<'_> {
    /// `spec.containers[0].image`, `metadata.labels["a/b"]`; `(the object)` for the document.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        match self {
            Self::Root => f.write_str("(the object)"),
            Self::Field(Self::Root, name) if plain(name) => f.write_str(name),
            Self::Field(Self::Root, name) => write!(f, "[{name:?}]"),
            Self::Field(parent, name) if plain(name) => write!(f, "{parent}.{name}"),
            Self::Field(parent, name) => write!(f, "{parent}[{name:?}]"),
            Self::Item(Self::Root, index) => write!(f, "[{index}]"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_users_write_them() {
        let root = Path::Root;
        let (spec, metadata) = (root.field("spec"), root.field("metadata"));
        let (containers, labels) = (spec.field("containers"), metadata.field("labels"));
        let first = containers.item(0);
        assert_eq!(first.field("image").to_string(), "spec.containers[0].image");
        assert_eq!(labels.field("a/b").to_string(), r#"metadata.labels["a/b"]"#);
        assert_eq!(root.to_string(), "(the object)");
    }
}
