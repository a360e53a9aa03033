//! Durations and sizes as flags take them: `1h30m`, `500ms`, `64Mi`.

use std::time::Duration;

/// A duration in Go's notation, as other Kubernetes tools take it: `10h`, `1h30m`, `250ms`. A bare `0` is zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let signed: jiff::SignedDuration =
        text.parse().map_err(|_| format!("expected a duration such as 500ms, 5s or 1h30m, got {text:?}"))?;
    Duration::try_from(signed).map_err(|_| format!("expected a duration that is not negative, got {text:?}"))
}

/// A duration of more than nothing.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("expected a duration above 0, got {text:?}")),
        time => Ok(time),
    }
}

/// The name of a namespace (RFC 1123 label).
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let sound = !text.is_empty() && text.len() <= 63 && !text.starts_with('-') && !text.ends_with('-');
    if sound && text.bytes().all(inner) {
        return Ok(text.to_owned());
    }
    Err(format!("expected the name of a namespace: at most 63 of a-z, 0-9 and '-', got {text:?}"))
}

/// The name of an object (RFC 1123 subdomain).
pub(super) fn object_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| namespace(label).is_ok();
    if text.len() <= 253 && text.split('.').all(is_label) {
        return Ok(text.to_owned());
    }
    Err(format!("expected the name of an object: a-z, 0-9, '-' and '.', at most 253 of them, got {text:?}"))
}

/// A number of bytes, as resource quantities write it: `64Mi`, `1Gi`, `500k`, `1048576`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor: usize = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(format!("expected a size such as 64Mi, 1Gi or 1048576, got {text:?}")),
    };
    let number: usize = digits.parse().map_err(|_| format!("expected a size such as 64Mi or 1Gi, got {text:?}"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is more than this machine can address"))
}

/// A rate a second that is more than nothing.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("expected a number such as 10 or 0.5, got {text:?}"))?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err(format!("expected a number above 0, got {text:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("10h"), Ok(Duration::from_secs(36_000)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in ["", "5", "-5s", "soon"] {
            assert!(duration(bad).is_err(), "{bad:?} is no duration");
        }
    }

    #[test]
    fn namespaces_are_labels() {
        assert_eq!(namespace("team-a"), Ok("team-a".to_owned()));
        for bad in ["", "-a", "A", "a.b", "a/b"] {
            assert!(namespace(bad).is_err(), "{bad:?} names no namespace");
        }
    }

    #[test]
    fn names_are_labels_with_dots_between() {
        assert_eq!(object_name("operator-host-a.b"), Ok("operator-host-a.b".to_owned()));
        for bad in ["", ".a", "a..b", "A", "a_b"] {
            assert!(object_name(bad).is_err(), "{bad:?} names no object");
        }
    }

    #[test]
    fn sizes_are_read_as_quantities() {
        assert_eq!(size("64Mi"), Ok(64 << 20));
        assert_eq!(size("1048576"), Ok(1 << 20));
        assert_eq!(size("500k"), Ok(500_000));
        for bad in ["", "Mi", "64MB", "-1", "99999999999Gi", "1.5Gi"] {
            assert!(size(bad).is_err(), "{bad:?} is no size");
        }
    }
}
