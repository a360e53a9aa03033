//! What a module writes, by `log.emit` or to its standard streams, bounded for each call.
//!
//! In: lines in any number and size. Out: [`GuestLog`]: the first lines, cut, and a count of what was dropped.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::module::limits::Limits;

/// Longest message kept; the rest is cut and counted.
const LINE_BYTES: usize = 4 << 10;
/// Fields kept of a line.
const LINE_FIELDS: usize = 16;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the module's author.
    Debug,
    /// The default.
    Info,
    /// Something a user may want to change.
    Warn,
    /// Something went wrong.
    Error,
}

/// A line that a module wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its level; `Info` for standard output, `Warn` for standard error.
    pub level: LogLevel,
    /// Its text, fields appended as `key=value`; control characters replaced.
    pub message: String,
}

/// What a module wrote during a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestLog {
    /// The first lines.
    pub lines: Vec<LogLine>,
    /// Lines dropped.
    pub dropped_lines: usize,
    /// Bytes dropped, of dropped lines and of cut ones.
    pub dropped_bytes: usize,
}

/// Collects what a module writes, up to the limits of a call.
#[derive(Debug)]
pub(crate) struct LogSink {
    lines_left: usize,
    bytes_left: usize,
    log: GuestLog,
    stdout: Partial,
    stderr: Partial,
    panic: Option<Panic>,
}

/// The sink of a call, which its standard streams hold too.
#[derive(Clone, Debug)]
pub(crate) struct SharedSink(Arc<Mutex<LogSink>>);

impl SharedSink {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self(Arc::new(Mutex::new(LogSink::new(limits))))
    }

    pub(crate) fn sink(&self) -> MutexGuard<'_, LogSink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a module says as it panics.
#[derive(Debug)]
struct Panic {
    text: String,
    /// Which lines of the log say it.
    lines: Vec<usize>,
}

/// The start of a line whose end was not written yet.
#[derive(Debug, Default)]
struct Partial {
    text: Vec<u8>,
    cut: usize,
}

impl LogSink {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            lines_left: limits.log_lines,
            bytes_left: limits.log_bytes,
            log: GuestLog::default(),
            stdout: Partial::default(),
            stderr: Partial::default(),
            panic: None,
        }
    }

    /// A line by `log.emit`.
    pub(crate) fn emit<'a>(
        &mut self,
        level: LogLevel,
        message: &str,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
    ) {
        let mut text = message.to_owned();
        for (key, value) in fields.take(LINE_FIELDS) {
            let _ = write!(text, " {key}={value}");
        }
        if level == LogLevel::Error && is_panic(&text) {
            self.begin_panic(&text);
        }
        self.line(level, &text, 0);
    }

    /// Bytes to standard output or error; lines end at `\n`.
    pub(crate) fn write(&mut self, stream: Stream, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (end, piece) = match piece.split_last() {
                Some((b'\n', rest)) => (true, rest),
                _ => (false, piece),
            };
            let partial = self.partial(stream);
            let room = LINE_BYTES.saturating_sub(partial.text.len());
            let kept = piece.len().min(room);
            partial.text.extend_from_slice(&piece[..kept]);
            partial.cut += piece.len() - kept;
            if end {
                self.end_line(stream);
            }
        }
    }

    /// The last panic's message, on one line. From then on the log does not say it: the call's error does.
    pub(crate) fn take_panic(&mut self) -> Option<String> {
        let Panic { text, lines } = self.panic.take()?;
        let mut index = 0..;
        self.log.lines.retain(|_| index.next().is_none_or(|index| !lines.contains(&index)));
        Some(text)
    }

    /// What was kept; lines without an end are ended.
    pub(crate) fn finish(&mut self) -> GuestLog {
        self.flush();
        std::mem::take(&mut self.log)
    }

    /// Ends lines that the module did not end itself, as before a trap.
    pub(crate) fn flush(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !self.partial(stream).text.is_empty() {
                self.end_line(stream);
            }
        }
    }

    fn partial(&mut self, stream: Stream) -> &mut Partial {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn end_line(&mut self, stream: Stream) {
        let Partial { text, cut } = std::mem::take(self.partial(stream));
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.is_empty() {
            return;
        }
        if stream == Stream::Stderr {
            self.note_panic(&text);
        }
        self.line(stream.level(), &text, cut);
    }

    /// Rust's standard hook writes `thread 'x' panicked at src/lib.rs:1:2:`, the message on the line below it, and how to see more.
    fn note_panic(&mut self, line: &str) {
        let index = self.log.lines.len();
        match &mut self.panic {
            Some(panic) if panic.text.ends_with(':') => {
                let _ = write!(panic.text, " {}", clean(line, LINE_BYTES));
                panic.lines.push(index);
            }
            Some(panic) if line.starts_with("note: run with `RUST_BACKTRACE") => panic.lines.push(index),
            _ if is_panic(line) => {
                let at = line.find("panicked at").unwrap_or_default();
                self.begin_panic(&line[at..]);
            }
            _ => {}
        }
    }

    /// The line that comes next says it.
    fn begin_panic(&mut self, text: &str) {
        self.panic = Some(Panic { text: clean(text, LINE_BYTES), lines: vec![self.log.lines.len()] });
    }

    fn line(&mut self, level: LogLevel, text: &str, already_cut: usize) {
        if self.lines_left == 0 || self.bytes_left == 0 {
            self.log.dropped_lines += 1;
            self.log.dropped_bytes += text.len() + already_cut;
            return;
        }
        let message = clean(text, LINE_BYTES.min(self.bytes_left));
        self.log.dropped_bytes += text.len().saturating_sub(message.len()) + already_cut;
        self.bytes_left -= message.len().min(self.bytes_left);
        self.lines_left -= 1;
        self.log.lines.push(LogLine { level, message });
    }
}

/// A standard stream that a module can write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn level(self) -> LogLevel {
        match self {
            Self::Stdout => LogLevel::Info,
            Self::Stderr => LogLevel::Warn,
        }
    }
}

fn is_panic(text: &str) -> bool {
    text.contains("panicked at")
}

/// At most `max` bytes of `text`, without control characters: a guest must not write to the operator's terminal.
pub(crate) fn clean(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(lines: usize, bytes: usize) -> LogSink {
        LogSink::new(&Limits { log_lines: lines, log_bytes: bytes, ..Limits::default() })
    }

    #[test]
    fn lines_over_the_limit_are_counted_not_kept() {
        let mut sink = sink(2, 1 << 20);
        for n in 0..5 {
            sink.emit(LogLevel::Info, &format!("line {n}"), std::iter::empty());
        }
        let log = sink.finish();
        assert_eq!(log.lines.iter().map(|l| l.message.as_str()).collect::<Vec<_>>(), ["line 0", "line 1"]);
        assert_eq!((log.dropped_lines, log.dropped_bytes), (3, 18));
    }

    #[test]
    fn a_gigabyte_without_a_line_end_keeps_one_cut_line() {
        let mut sink = sink(10, 1 << 20);
        for _ in 0..1000 {
            sink.write(Stream::Stdout, &[b'x'; 4096]);
        }
        let log = sink.finish();
        assert_eq!(log.lines.len(), 1);
        assert_eq!(log.lines[0].message.len(), LINE_BYTES);
        assert_eq!(log.dropped_bytes, 999 * 4096);
    }

    #[test]
    fn fields_follow_the_message_and_control_characters_go() {
        let mut sink = sink(10, 1 << 20);
        sink.emit(LogLevel::Warn, "odd\x1b[31m", [("image", "nginx")].into_iter());
        assert_eq!(sink.finish().lines[0].message, "odd [31m image=nginx");
    }

    #[test]
    fn a_panic_is_told_once() {
        let mut sink = sink(10, 1 << 20);
        sink.write(Stream::Stderr, b"before\n\nthread '<unnamed>' (1) panicked at src/lib.rs:3:5:\nboom: ");
        sink.write(Stream::Stderr, b"twice\nnote: run with `RUST_BACKTRACE=1`\nafter\n");
        assert_eq!(sink.take_panic().as_deref(), Some("panicked at src/lib.rs:3:5: boom: twice"));
        let lines: Vec<String> = sink.finish().lines.into_iter().map(|line| line.message).collect();
        assert_eq!(lines, ["before", "after"]);
    }

    #[test]
    fn a_panic_that_no_error_tells_stays_in_the_log() {
        let mut sink = sink(10, 1 << 20);
        sink.emit(LogLevel::Error, "panicked at src/lib.rs:3:5: caught", std::iter::empty());
        assert_eq!(sink.finish().lines.len(), 1);
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(clean("aéé", 2), "a");
        assert_eq!(clean("aéé", 3), "aé");
    }
}
