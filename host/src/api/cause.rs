//! An error and what caused it, on one line.

use anyhow::anyhow;
use kube::client::AuthError;
use std::error::Error;
use std::fmt::Display;
use std::iter::successors;

/// Longest complaint of a credential plugin that is quoted.
const COMPLAINT: usize = 600;

/// The error, what caused it, and so on.
pub(super) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// The error for people of what failed.
pub(super) fn of(what: impl Display, error: &(dyn Error + 'static)) -> anyhow::Error {
    anyhow!("{what}: {}", line(error))
}

/// Each cause once. Of a credential plugin it says what that complained of, and never what it printed: credentials are there.
pub(super) fn line(error: &(dyn Error + 'static)) -> String {
    if let Some(text) = chain(error).find_map(|cause| of_plugin(cause.downcast_ref()?)) {
        return text;
    }
    let mut line = String::new();
    for cause in chain(error).map(ToString::to_string).filter(|text| !text.is_empty()) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

fn of_plugin(error: &AuthError) -> Option<String> {
    let what = match error {
        AuthError::AuthExecStart(error) => format!("can't be started: {error}"),
        AuthError::AuthExecRun { out, .. } => match complaint(&out.stderr) {
            said if said.is_empty() => format!("failed ({})", out.status),
            said => format!("failed ({}): {said}", out.status),
        },
        AuthError::AuthExecParse(_) => "printed what is no ExecCredential".to_owned(),
        AuthError::ExecPluginFailed => "printed an ExecCredential without a status".to_owned(),
        _ => return None,
    };
    Some(format!("the kubeconfig's credential plugin (users[].user.exec) {what}"))
}

/// What a plugin wrote to standard error, on one line.
fn complaint(stderr: &[u8]) -> String {
    let words = String::from_utf8_lossy(stderr);
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    words[..words.floor_char_boundary(COMPLAINT)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{ExitStatus, Output};

    #[test]
    fn a_cause_that_is_told_already_is_not_told_again() {
        let missing = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = kube::Error::Auth(AuthError::ReadTokenFile(missing, "/token".into()));
        assert_eq!(line(&error), "auth error: failed to read token file '\"/token\"': no such file");
    }

    #[test]
    fn of_a_plugin_its_complaint_is_told_and_not_what_it_printed() {
        let out = Output {
            status: ExitStatus::from_raw(3 << 8),
            stdout: b"hunter2".to_vec(),
            stderr: b"log in\n  first\n".to_vec(),
        };
        let error =
            kube::Error::Auth(AuthError::AuthExecRun { cmd: "PASSWORD=hunter2 login".into(), out: Box::new(out) });
        let told = line(&error);
        assert!(told.ends_with("failed (exit status: 3): log in first"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
