//! What goes into a URL and was not chosen here: names that modules give, selectors, field managers.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text as one path segment or one value of a query: what is not unreserved (RFC 3986) is percent-encoded.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    if text.bytes().all(is_unreserved) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if is_unreserved(byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_segment() {
        assert_eq!(escape("web-1.example_x~"), "web-1.example_x~");
        assert_eq!(escape("a/b?c=d&e#f%2F"), "a%2Fb%3Fc%3Dd%26e%23f%252F");
        assert_eq!(escape("käse "), "k%C3%A4se%20");
    }
}
