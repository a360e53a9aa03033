//! What the contract gives a module: `log` and `clock`.

use crate::module::bindings::operator::reconciler::{clock, log, types};
use crate::module::call::Guest;
use crate::module::log::LogLevel;

impl types::Host for Guest {}

impl log::Host for Guest {
    fn emit(&mut self, level: log::Level, message: String, fields: Vec<log::Field>) {
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        let fields = fields.iter().map(|field| (field.key.as_str(), field.value.as_str()));
        self.log.sink().emit(level, &message, fields);
    }
}

impl clock::Host for Guest {
    fn now(&mut self) -> u64 {
        self.ask_clock()
    }
}
