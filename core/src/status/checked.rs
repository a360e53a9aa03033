//! A module's status after the checks that need no live object.

use serde_json::{Map, Value};

use super::{CONDITIONS, OBSERVED_GENERATION};
use crate::contract::{Condition, Status};
use crate::names::RECONCILED;
use crate::plan::canonical::strict;

/// Longest reason (metav1.Condition).
const REASON_MAX: usize = 1024;

/// The status of a module, checked: its fields are an object without what only the host writes, its conditions are
/// declared ones.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleStatus {
    fields: Map<String, Value>,
    conditions: Vec<Condition>,
}

/// Why a module's status is not written. The outcome is invalid, the module's author has to act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Not one JSON value, or one that can't be sent as it is; the text says where.
    #[error("status.fields: {0}")]
    Fields(String),
    /// Another JSON type than an object.
    #[error("status.fields must be a JSON object")]
    NotAnObject,
    /// A field that only the host writes.
    #[error("status.fields must not hold {0}: the host writes it")]
    HostOwned(&'static str),
    /// A condition type that `describe` does not name.
    #[error("condition {0:?} is not one of the module's declared condition types")]
    Undeclared(String),
    /// A condition type twice.
    #[error("condition {0:?} is given twice")]
    Twice(String),
    /// A reason that the API server would refuse.
    #[error(
        "condition {condition:?}: reason {reason:?} is not CamelCase (^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$, at most 1024 characters)"
    )]
    Reason {
        /// Type of the condition.
        condition: String,
        /// The reason, cut.
        reason: String,
    },
}

impl ModuleStatus {
    /// Checks a module's status against the condition types that it declared.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn check(status: &Status, declared: &[String]) -> Result<Self, Invalid> {
        let fields = match strict(&status.fields).map_err(|refusal| Invalid::Fields(refusal.to_string()))? {
            Value::Object(fields) => fields,
            _ => return Err(Invalid::NotAnObject),
        };
        for name in [OBSERVED_GENERATION, CONDITIONS] {
            if fields.contains_key(name) {
                return Err(Invalid::HostOwned(name));
            }
        }
        for (index, condition) in status.conditions.iter().enumerate() {
            let type_ = &condition.type_;
            if type_ == RECONCILED || !declared.contains(type_) {
                return Err(Invalid::Undeclared(type_.clone()));
            }
            if status.conditions[..index].iter().any(|earlier| earlier.type_ == *type_) {
                return Err(Invalid::Twice(type_.clone()));
            }
            if !is_reason(&condition.reason) {
                let reason = condition.reason.chars().take(100).collect();
                return Err(Invalid::Reason { condition: type_.clone(), reason });
            }
        }
        Ok(Self { fields, conditions: status.conditions.clone() })
    }

    pub(super) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    pub(super) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

/// Whether the API server takes a text as reason of a condition: metav1's `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`, at
/// most 1024 characters.
pub fn is_reason(text: &str) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphabetic()
        && word(last)
        && bytes.iter().all(|byte| word(byte) || matches!(byte, b',' | b':'))
        && bytes.len() <= REASON_MAX
}
