//! Label selectors as kubectl writes them (apimachinery's `labels.Parse`): checked, and brought into one form.

use std::collections::BTreeSet;

/// The same selector in the form that all of its spellings share; None where it selects everything.
///
/// # Errors
/// Why it is none.
pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    let invalid = |why: String| format!("label selector {text:?}: {why}");
    let requirements = split(text).into_iter().filter(|_| !text.trim().is_empty());
    let requirements: BTreeSet<String> = requirements.map(requirement).collect::<Result<_, _>>().map_err(invalid)?;
    Ok((!requirements.is_empty()).then(|| Vec::from_iter(requirements).join(",")))
}

/// At the commas that are not between brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    })
    .collect()
}

fn requirement(text: &str) -> Result<String, String> {
    let text = text.trim();
    if let Some(key) = text.strip_prefix('!') {
        return Ok(format!("!{}", checked_key(key.trim())?));
    }
    for (operator, canonical) in [("!=", "!="), ("==", "="), ("=", "=")] {
        if let Some((key, value)) = text.split_once(operator) {
            return Ok(format!("{}{canonical}{}", checked_key(key.trim())?, checked_value(value.trim())?));
        }
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else { return Ok(checked_key(text)?.to_owned()) };
    let (key, rest) = (checked_key(key)?, rest.trim());
    let (operator, single, list) = match (rest.strip_prefix("notin"), rest.strip_prefix("in")) {
        (Some(list), _) => ("notin", "!=", list),
        (None, Some(list)) => ("in", "=", list),
        (None, None) => return Err(format!("{rest:?} after {key:?} is no operator: =, ==, !=, in, notin")),
    };
    let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let list = list.ok_or_else(|| format!("{operator} needs its values in brackets"))?;
    let values: BTreeSet<&str> = list.split(',').map(|value| checked_value(value.trim())).collect::<Result<_, _>>()?;
    let values = Vec::from_iter(values);
    Ok(match values.as_slice() {
        [value] => format!("{key}{single}{value}"),
        _ => format!("{key} {operator} ({})", values.join(",")),
    })
}

/// `name` or `domain/name`.
fn checked_key(key: &str) -> Result<&str, String> {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_label = |label: &str| {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(is_label);
    match !name.is_empty() && is_word(name) && domain.is_none_or(is_domain) {
        true => Ok(key),
        false => Err(format!("{key:?} can't be the key of a label")),
    }
}

fn checked_value(value: &str) -> Result<&str, String> {
    match is_word(value) {
        true => Ok(value),
        false => Err(format!("{value:?} can't be the value of a label")),
    }
}

/// At most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends; or nothing.
fn is_word(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63 && text.chars().all(is_inner) && is_edge(text.chars().next()) && is_edge(text.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[track_caller]
    fn assert_is(text: &str, expected: &str) {
        assert_eq!(canonical(text).expect(text).unwrap_or_default(), expected, "{text:?}");
    }

    #[test]
    fn every_spelling_has_one_form() {
        assert_is("", "");
        assert_is("  ", "");
        assert_is("app", "app");
        assert_is("! app", "!app");
        assert_is("app=web", "app=web");
        assert_is("app == web", "app=web");
        assert_is("app=", "app=");
        assert_is("app!=web", "app!=web");
        assert_is("app in (web)", "app=web");
        assert_is("app notin (web)", "app!=web");
        assert_is("app in (web, api,web)", "app in (api,web)");
        assert_is("app notin(web,api)", "app notin (api,web)");
        assert_is("tier,app in (a,b),!old", "!old,app in (a,b),tier");
        assert_is("example.com/app=web", "example.com/app=web");
        assert_is("app=web,app=web", "app=web");
    }

    #[test]
    fn what_the_api_server_would_refuse_is_refused_here() {
        for text in [
            ",",
            "a,",
            "=",
            "=web",
            "!",
            "a b",
            "a in",
            "a in b",
            "a in (b",
            "a=b=c",
            "a>1",
            "-a",
            "a=-b",
            "a/b/c",
            "A_/b",
            "a=b c",
            "a=\u{e9}",
            "a)",
            "/a",
            "a/",
            "a in (b))",
        ] {
            assert!(canonical(text).is_err(), "{text:?} is taken as {:?}", canonical(text));
        }
        assert!(canonical(&"a".repeat(64)).is_err());
    }
}
