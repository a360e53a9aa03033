//! Names of Kubernetes objects.

/// Whether a Service and a label value can carry this name: at most 63 characters of a-z, 0-9 and '-', first a letter,
/// last a letter or digit. apimachinery's `validation.IsDNS1035Label`.
pub fn is_dns_label(name: &str) -> bool {
    let letter_or_digit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 63
        && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && name.bytes().last().is_some_and(letter_or_digit)
        && name.bytes().all(|byte| letter_or_digit(byte) || byte == b'-')
}
