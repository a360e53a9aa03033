//! Running kubectl as a user would.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::AsyncWriteExt as _;

use super::{ADMIN, Cluster};

/// A call of kubectl, not yet run.
#[derive(Debug)]
#[must_use = "nothing runs until `run` is awaited"]
pub struct Command {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    args: Vec<String>,
    stdin: Option<String>,
}

/// What a program said and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
}

impl Output {
    /// The standard output of a call that went well.
    ///
    /// # Errors
    /// When the exit code was not 0; the message carries what it said.
    pub fn ok(self) -> crate::Result<String> {
        ensure!(self.code == 0, "exit code {}: {}{}", self.code, self.stderr, self.stdout);
        Ok(self.stdout)
    }

    pub(crate) fn from_std(output: &std::process::Output) -> Self {
        Self {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code().unwrap_or(-1),
        }
    }
}

impl Command {
    /// Gives it text to read from `-f -`.
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Runs it with a kubeconfig other than the administrator's.
    pub fn kubeconfig(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.kubeconfig);
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When kubectl can't be started, or takes more than two minutes.
    pub async fn run(self) -> crate::Result<Output> {
        let mut child = tokio::process::Command::new(&self.program)
            .args(&self.args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        if let (Some(mut pipe), Some(text)) = (child.stdin.take(), self.stdin) {
            // A kubectl that ended early says why itself.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
        let output = tokio::time::timeout(Duration::from_secs(120), child.wait_with_output())
            .await
            .with_context(|| format!("kubectl {} takes too long", self.args.join(" ")))?
            .context("kubectl did not end")?;
        Ok(Output::from_std(&output))
    }
}

impl Cluster {
    /// The kubectl of the cluster's version.
    #[must_use]
    pub fn kubectl_path(&self) -> PathBuf {
        self.programs.path("kubectl")
    }

    /// A call of kubectl as the administrator.
    ///
    /// # Panics
    /// When its kubeconfig can't be written.
    pub fn kubectl_command(&self, args: &[&str]) -> Command {
        let kubeconfig = match self.kubeconfig(ADMIN) {
            Ok(path) => path,
            Err(error) => panic!("no kubeconfig for kubectl: {error:#}"),
        };
        Command {
            program: self.kubectl_path(),
            kubeconfig,
            cache: self.folder.join("kubectl-cache"),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            stdin: None,
        }
    }

    /// Runs kubectl as the administrator and returns what it said.
    ///
    /// # Errors
    /// When it can't be started or does not end; a failed call is an [`Output`] with its code.
    pub async fn kubectl(&self, args: &[&str]) -> crate::Result<Output> {
        self.kubectl_command(args).run().await
    }

    /// Applies manifests (YAML or JSON) and waits until each CustomResourceDefinition among them is served.
    ///
    /// # Errors
    /// When kubectl fails, or a definition is not established within a minute.
    pub async fn apply(&self, manifests: &str) -> crate::Result<()> {
        let names = self
            .kubectl_command(&["apply", "--server-side", "-o", "name", "-f", "-"])
            .stdin(manifests)
            .run()
            .await?
            .ok()?;
        let crd = "customresourcedefinition.apiextensions.k8s.io/";
        let crds: Vec<&str> = names.lines().filter(|name| name.starts_with(crd)).collect();
        if crds.is_empty() {
            return Ok(());
        }
        let mut args = vec!["wait", "--for=condition=Established", "--timeout=60s"];
        args.extend(crds);
        self.kubectl(&args).await?.ok()?;
        Ok(())
    }
}
