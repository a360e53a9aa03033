//! `metadata.resourceVersion`.

use std::cmp::Ordering;
use std::fmt;

/// Version of an object or a list: opaque text, which is nearly always a decimal number.
///
/// Two versions of one type may be compared when both are numbers (KEP-5504); where a server writes something else
/// only equality means anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(Box<str>),
}

impl ResourceVersion {
    /// The version that a server wrote.
    pub fn new(text: &str) -> Self {
        // Only what prints as it was read: KEP-5504 allows neither signs nor leading zeros.
        let canonical = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if canonical => Self(Repr::Number(number)),
            _ => Self(Repr::Text(text.into())),
        }
    }

    /// The number, where it is one.
    pub fn number(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            Repr::Text(_) => None,
        }
    }

    /// The order of two versions of one type; None where they can't be compared and differ.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Repr::Number(a), Repr::Number(b)) => Some(a.cmp(b)),
            (a, b) => (a == b).then_some(Ordering::Equal),
        }
    }

    /// Whether this is known to be newer than the other.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Greater)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => number.fmt(f),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_and_print_as_they_were_read() {
        let (old, new) = (ResourceVersion::new("999"), ResourceVersion::new("1000"));
        assert!(new.is_newer_than(&old) && !old.is_newer_than(&new) && !old.is_newer_than(&old));
        for text in ["1", "18446744073709551615", "18446744073709551616", "007", "+5", "-1", "", "0", "a7"] {
            assert_eq!(ResourceVersion::new(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_number_is_only_equal_or_not() {
        let (a, b) = (ResourceVersion::new("a"), ResourceVersion::new("b"));
        assert_eq!(a.compare(&a), Some(Ordering::Equal));
        assert_eq!(a.compare(&b), None);
        assert_eq!(a.compare(&ResourceVersion::new("7")), None);
        assert_eq!(ResourceVersion::new("007").number(), None);
    }
}
