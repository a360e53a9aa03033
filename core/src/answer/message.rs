//! What a user reads of an answer. The same trouble gives the same words: counters, versions and ports of connections
//! are left out, so that a condition is not written again for them.

use super::{Answer, Cause, Class, Request};

/// Longest message; values that are rejected can be whole specs.
const MAX: usize = 600;

/// One sentence for a condition, an event or a log line; the caller names the object. `class` is that of the answer.
pub fn message(answer: &Answer, class: Class, request: &Request<'_>) -> String {
    let is_secret = request.type_ref.kind == "Secret" && request.type_ref.api_version == "v1";
    let said = said(answer, is_secret);
    let sentence = match class {
        Class::Ok => "done".to_owned(),
        Class::ModuleError => format!("the API server can't take it: {said}"),
        Class::Invalid => format!("the API server refuses it: {said}"),
        Class::Immutable => format!("a field can't be changed: {said}"),
        Class::Forbidden => format!("the API server forbids it: {said}"),
        Class::Quota => format!("a quota is in the way: {}", without_used(&said)),
        Class::Terminating => "it, its namespace or its type is being deleted".to_owned(),
        Class::Conflict => "it was changed in the meantime".to_owned(),
        Class::Refuse => "another object of this name is there".to_owned(),
        Class::Gone => "the version asked for is too old".to_owned(),
        Class::NotFound if answer.is_missing_type() => format!("the API server does not serve {}", request.type_ref),
        Class::NotFound => format!("not found: {said}"),
        Class::TooMany => "the API server asks for patience (429)".to_owned(),
        Class::Retry if answer.is_version_ahead() => "the API server lags behind".to_owned(),
        Class::Retry if said.is_empty() => format!("the API server answered {}", answer.code),
        Class::Retry => format!("the API server answered {}: {}", answer.code, without_ports(&said)),
    };
    shorten(&sentence)
}

/// The server's words: field by field where it gave them so.
fn said(answer: &Answer, is_secret: bool) -> String {
    let mut fields: Vec<String> = Vec::new();
    for cause in answer.details.causes.iter().filter(|cause| is_telling(cause)) {
        let text = if is_secret { without_value(&cause.message) } else { cause.message.clone() };
        let line = format!("{}: {text}", cause.field);
        // A server lists some causes once for each stage that found them.
        if !fields.contains(&line) {
            fields.push(line);
        }
    }
    if !fields.is_empty() {
        return fields.join("; ");
    }
    if is_secret { without_value(&answer.message) } else { answer.message.clone() }
}

fn is_telling(cause: &Cause) -> bool {
    !cause.field.is_empty() && cause.field != "<nil>" && cause.field != "[]"
}

/// Cuts out what validation quotes: values of Secrets reach no condition and no log.
fn without_value(text: &str) -> String {
    if let Some((before, _)) = text.split_once(", got ") {
        return before.to_owned();
    }
    match (text.find("value: "), text.rfind(": ")) {
        (Some(start), Some(end)) if end > start + "value".len() => {
            format!("{}{}", &text[..start + "value".len()], &text[end..])
        }
        (Some(start), _) => text[..start + "value".len()].to_owned(),
        _ => text.to_owned(),
    }
}

/// `requested: a=1, used: a=3, limited: a=3`: what is used counts up and down.
fn without_used(text: &str) -> String {
    match (text.find(", used: "), text.find(", limited: ")) {
        (Some(start), Some(end)) if start < end => format!("{}{}", &text[..start], &text[end..]),
        _ => text.to_owned(),
    }
}

/// `read tcp 10.0.0.1:43210->10.0.0.2:443: connection reset`: our side's port is another each time.
pub(crate) fn without_ports(text: &str) -> String {
    let words = text.split(' ').map(|word| word.split_once("->").map_or(word, |(_, remote)| remote));
    words.collect::<Vec<_>>().join(" ")
}

fn shorten(text: &str) -> String {
    if text.len() <= MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX)])
}
