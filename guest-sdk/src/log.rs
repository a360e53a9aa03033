//! Lines in the host's log. The host adds the object and the module to each; in unit tests they go to standard error.

pub use crate::bindings::operator::reconciler::log::Level;

/// What only a developer wants to see; shown with `-v`.
pub fn debug(message: impl AsRef<str>) {
    emit(Level::Debug, message, &[]);
}

/// What happened.
pub fn info(message: impl AsRef<str>) {
    emit(Level::Info, message, &[]);
}

/// What a person should look at some day.
pub fn warn(message: impl AsRef<str>) {
    emit(Level::Warn, message, &[]);
}

/// What a person should look at now.
pub fn error(message: impl AsRef<str>) {
    emit(Level::Error, message, &[]);
}

/// A line with structured values, as (key, value).
pub fn emit(level: Level, message: impl AsRef<str>, fields: &[(&str, &str)]) {
    imports::emit(level, message.as_ref(), fields);
}

#[cfg(target_family = "wasm")]
mod imports {
    use crate::bindings::operator::reconciler::log::{self, Field, Level};

    pub(super) fn emit(level: Level, message: &str, fields: &[(&str, &str)]) {
        let fields: Vec<Field> =
            fields.iter().map(|(key, value)| Field { key: key.to_string(), value: value.to_string() }).collect();
        log::emit(level, message, &fields);
    }
}

#[cfg(not(target_family = "wasm"))]
mod imports {
    use super::Level;

    pub(super) fn emit(level: Level, message: &str, fields: &[(&str, &str)]) {
        let fields: String = fields.iter().map(|(key, value)| format!(" {key}={value:?}")).collect();
        eprintln!("{level:?} {message}{fields}");
    }
}
