//! The programs that are measured, and how each is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use operator_e2e::process::Process;
use operator_e2e::{host, modules};

/// An operator of WebApps.
#[derive(Debug)]
pub(crate) struct Operator {
    name: &'static str,
    agent: &'static str,
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Operator {
    /// The host with the WebApp module, which is compiled here, once.
    pub(crate) async fn host(workers: u16) -> operator_e2e::Result<Self> {
        let module = modules::build("webapp").await?;
        let path = module.to_str().context("the module's path is no UTF-8")?;
        host::operator(&["inspect", "--module", path], None).await?.ok()?;
        Ok(Self {
            name: "this host",
            agent: "operator-host/",
            program: host::operator_bin()?,
            arguments: vec![
                "host".into(),
                "--module".into(),
                module.into_os_string(),
                format!("--workers={workers}").into(),
                "--health-probe-bind-address=0".into(),
            ],
        })
    }

    /// The operator of `bench/`, which is built when it has changed.
    pub(crate) async fn go(workers: u16) -> operator_e2e::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/build.sh");
        let output = tokio::process::Command::new(&script).stderr(Stdio::inherit()).kill_on_drop(true).output();
        let output = output.await.with_context(|| format!("cannot run {}", script.display()))?;
        ensure!(output.status.success(), "{} failed: {}", script.display(), output.status);
        let program = String::from_utf8_lossy(&output.stdout).lines().last().map(PathBuf::from);
        Ok(Self {
            name: "Go",
            agent: "webapp-operator/",
            program: program.context("bench/build.sh named no program")?,
            arguments: vec![format!("--workers={workers}").into()],
        })
    }

    /// Its column in the table.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// How its user agent begins.
    pub(crate) const fn agent(&self) -> &'static str {
        self.agent
    }

    /// The file that runs.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Starts it against the cluster of that kubeconfig; what it says is appended to the log.
    pub(crate) fn start(&self, kubeconfig: &Path, log: &Path) -> operator_e2e::Result<Process> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env("KUBECONFIG", kubeconfig).env("NO_COLOR", "1");
        Process::spawn(self.name, &mut command, log)
    }
}
