//! The body of a watch, line by line.

use super::{ApiError, transport};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// Longest line: etcd refuses objects of a few MiB, an event adds little to one.
const LINE_MAX: usize = 64 << 20;

/// Lines of a watch. Empty ones are left out.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no line end.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line, without its end; None when the server ended the stream.
    ///
    /// # Errors
    /// The connection broke, or a line is longer than 64 MiB.
    pub async fn next(&mut self) -> Option<Result<Bytes, ApiError>> {
        loop {
            if let Some(line) = self.cut() {
                if line.is_empty() {
                    continue;
                }
                return Some(Ok(line));
            }
            if self.buffer.len() > LINE_MAX {
                return Some(Err(ApiError::TooLarge { limit: LINE_MAX }));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Some(Err(transport(&error))),
                None if self.buffer.is_empty() => return None,
                // A line without an end was cut off: the connection broke in the middle of an event.
                None => {
                    self.buffer.clear();
                    let message = "the stream ended within an event".to_owned();
                    return Some(Err(ApiError::Transport { message, unsent: false }));
                }
            }
        }
    }

    fn cut(&mut self) -> Option<Bytes> {
        let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let length = self.searched + end;
        let line = self.buffer.split_to(length + 1).freeze();
        self.searched = 0;
        Some(line.slice(..length))
    }
}
