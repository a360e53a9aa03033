//! Who can talk to the cluster.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::folder::Folder;

pub(super) const TOKENS: &str = "tokens.csv";

/// The user in `system:masters`.
pub const ADMIN: &str = "admin";

/// Users without rights; tests give them some with [`Client::grant`](crate::Client::grant).
const SPARE: usize = 8;

/// A name that the server knows, and the token that proves it.
#[derive(Debug, Clone)]
pub struct User {
    name: String,
    token: String,
}

impl User {
    pub(super) fn new(name: &str, token: &str) -> Self {
        Self { name: name.to_owned(), token: token.to_owned() }
    }

    /// The name that RBAC subjects use.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its bearer token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// Makes the users and writes the token file for the API server.
pub(super) fn make(folder: &Folder) -> crate::Result<Vec<User>> {
    let names = std::iter::once(ADMIN.to_owned()).chain((0..SPARE).map(|n| format!("user-{n}")));
    let users: Vec<User> =
        names.map(|name| User { token: format!("{name}-{:016x}", fastrand::u64(..)), name }).collect();
    let mut file = String::new();
    for User { name, token } in &users {
        let group = if name == ADMIN { ",system:masters" } else { "" };
        // Writing to a string can't fail.
        let _ = writeln!(file, "{token},{name},{name}{group}");
    }
    folder.write(TOKENS, file)?;
    Ok(users)
}

pub(super) fn write_kubeconfig(folder: &Folder, user: &User, url: &str, ca: &Path) -> crate::Result<PathBuf> {
    let ca = if url.starts_with("https:") {
        format!("    certificate-authority: {}\n", ca.display())
    } else {
        String::new()
    };
    let User { name, token } = user;
    let text = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: e2e\n\
         contexts:\n\
         - name: e2e\n  \
           context:\n    \
             cluster: e2e\n    \
             user: {name}\n\
         clusters:\n\
         - name: e2e\n  \
           cluster:\n    \
             server: {url}\n\
         {ca}\
         users:\n\
         - name: {name}\n  \
           user:\n    \
             token: {token}\n"
    );
    let port = url.rsplit(':').next().unwrap_or_default();
    // KUBECONFIG is a list of files with colons between them.
    let name = name.replace(':', "-");
    folder.write(&format!("kubeconfig-{name}-{port}.yaml"), text)
}
