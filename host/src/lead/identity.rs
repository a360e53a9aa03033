//! The name of this process in the Lease.

use std::fs;

/// The host's name and a random UUID, as controller-runtime makes it: a restarted process is another holder, which must not take its
/// predecessor's term for its own.
pub fn identity() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if name.trim().is_empty() { "unknown" } else { name.trim() };
    // Version 4, variant 1 (RFC 9562).
    let random = fastrand::u128(..) & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{random:032x}");
    format!("{name}_{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_name_of_its_own() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        let (host, uuid) = one.rsplit_once('_').expect("two parts");
        assert!(!host.is_empty());
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'4', "{uuid}");
        assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
    }
}
