//! What can be set before a cluster starts.

use super::Cluster;

/// Settings of a cluster; the default is a bare one.
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs until `start` is awaited"]
pub struct Options {
    full: bool,
    flags: Vec<String>,
}

impl Options {
    /// Adds the controller manager, the scheduler and a fake node.
    pub fn full(mut self) -> Self {
        self.full = true;
        self
    }

    /// Adds a flag of kube-apiserver, such as `--feature-gates=WatchList=false` or `--watch-cache=false`.
    ///
    /// It comes after the harness's own, and so wins over them.
    pub fn apiserver_flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Starts the cluster.
    ///
    /// # Errors
    /// When a program can't be built or does not become ready.
    pub async fn start(self) -> crate::Result<Cluster> {
        Cluster::start(self).await
    }

    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn flags(&self) -> &[String] {
        &self.flags
    }
}
