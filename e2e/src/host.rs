//! The program under test: `operator host`, started as a user would.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::client::Client;
use crate::cluster::Output;
use crate::folder::Folder;
use crate::ports::Port;
use crate::process::{Process, Signal};
use crate::usage::Usage;
use crate::wait::eventually;

const READY: Duration = Duration::from_secs(60);
const DRAIN: Duration = Duration::from_secs(60);

/// A running `operator host`; killed when dropped, and its log shown when the test has failed.
#[derive(Debug)]
pub struct Host {
    process: Process,
    health: Port,
    _folder: Folder,
}

impl Host {
    /// Starts `operator host` with these modules against the cluster of the kubeconfig.
    ///
    /// Its health port is its own; the environment is the test's, with `KUBECONFIG` set.
    ///
    /// # Errors
    /// When the program isn't built or can't be started.
    pub fn spawn(kubeconfig: &Path, modules: &[&Path], extra_args: &[&str]) -> crate::Result<Self> {
        Self::spawn_with(kubeconfig, modules, extra_args, &[])
    }

    /// The same, with these variables in its environment.
    ///
    /// # Errors
    /// When the program isn't built or can't be started.
    pub fn spawn_with(
        kubeconfig: &Path,
        modules: &[&Path],
        extra_args: &[&str],
        variables: &[(&str, String)],
    ) -> crate::Result<Self> {
        let folder = Folder::new("host")?;
        let health = Port::free()?;
        let mut command = Command::new(operator_bin()?);
        command
            .arg("host")
            .arg(format!("--health-probe-bind-address=127.0.0.1:{health}"))
            .args(extra_args)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env("KUBECONFIG", kubeconfig)
            .env("NO_COLOR", "1");
        for module in modules {
            command.arg("--module").arg(module);
        }
        let process = Process::spawn("operator host", &mut command, &folder.join("host.log"))?;
        Ok(Self { process, health, _folder: folder })
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// When the host ends first, or is not ready after a minute; the message carries the end of its log.
    pub async fn wait_ready(&mut self) -> crate::Result<()> {
        let client = self.health_client()?;
        let began = Instant::now();
        loop {
            let answer = client.text("/readyz").await;
            if answer.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.exited() {
                bail!("operator host ended ({status}):\n{}", self.process.tail(40));
            }
            if began.elapsed() > READY {
                let instead = answer.map_or_else(|error| error.to_string(), |_| String::new());
                bail!("operator host is not ready after {READY:?}: {instead}\n{}", self.process.tail(40));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks its health port, such as `/healthz` or `/readyz?verbose`.
    ///
    /// # Errors
    /// When it does not answer 200.
    pub async fn health(&self, path: &str) -> crate::Result<String> {
        Ok(self.health_client()?.text(path).await?)
    }

    fn health_client(&self) -> crate::Result<Client> {
        Client::new(&format!("http://127.0.0.1:{}", self.health), None, None, "operator-e2e")
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// When it still runs after a minute.
    pub async fn sigterm(&mut self) -> crate::Result<ExitStatus> {
        self.process.signal(Signal::TERM);
        self.process.wait(DRAIN).await
    }

    /// Sends it any signal.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills it without warning (SIGKILL) and waits until it is gone.
    pub fn kill9(&mut self) {
        self.process.kill();
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited()
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// When it still runs at the deadline.
    pub async fn wait_exit(&mut self, deadline: Duration) -> crate::Result<ExitStatus> {
        self.process.wait(deadline).await
    }

    /// All of its log so far, stdout and stderr.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Whether its log contains this text.
    #[must_use]
    pub fn log_contains(&self, text: &str) -> bool {
        self.log().contains(text)
    }

    /// The lines of its log that end a pass; with `-v` those that wrote nothing are among them.
    #[must_use]
    pub fn passes(&self) -> Vec<String> {
        let is_pass = |line: &&str| line.contains("reconciled") && line.contains("took_ms=");
        self.log().lines().filter(is_pass).map(str::to_owned).collect()
    }

    /// Waits until its log contains this text.
    ///
    /// # Panics
    /// At the deadline, with the end of the log.
    pub async fn wait_log(&self, text: &str, deadline: Duration) {
        let what = format!("the host's log contains {text:?}");
        eventually(&what, deadline, || async {
            if self.log_contains(text) { Ok(()) } else { Err(self.process.tail(20)) }
        })
        .await;
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Resident memory in bytes, shared pages counted whole.
    ///
    /// # Errors
    /// When it has ended.
    pub fn rss(&self) -> crate::Result<u64> {
        Ok(Usage::of(self.pid())?.resident)
    }

    /// CPU time used until now, in user and system mode, of the host alone and not of processes that it started.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu(&self) -> crate::Result<Duration> {
        Ok(Usage::of(self.pid())?.cpu)
    }

    /// Threads.
    ///
    /// # Errors
    /// When it has ended.
    pub fn threads(&self) -> crate::Result<usize> {
        let status = self.proc_file("status")?;
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok());
        threads.context("/proc shows no threads")
    }

    /// What its file descriptors lead to, sorted: paths, or names such as `socket:[1]`.
    ///
    /// # Errors
    /// When it has ended.
    pub fn open_files(&self) -> crate::Result<Vec<String>> {
        let path = format!("/proc/{}/fd", self.pid());
        let entries = fs::read_dir(&path).with_context(|| format!("cannot read {path}: has the host ended?"))?;
        // One that was closed meanwhile can't be read any more.
        let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let mut files: Vec<String> = links.map(|link| link.display().to_string()).collect();
        files.sort();
        Ok(files)
    }

    /// Files of compiled modules that it has mapped.
    ///
    /// # Errors
    /// When it has ended.
    pub fn mapped_modules(&self) -> crate::Result<BTreeSet<String>> {
        let maps = self.proc_file("maps")?;
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        Ok(paths.filter(|path| path.contains(".cwasm")).map(str::to_owned).collect())
    }

    fn proc_file(&self, name: &str) -> crate::Result<String> {
        let path = format!("/proc/{}/{name}", self.pid());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}: has the host ended?"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("operator host (pid {}) said last:\n{}", self.pid(), self.process.tail(60));
        }
    }
}

/// Runs `operator` with these arguments to its end, for example a subcommand that needs no cluster.
///
/// # Errors
/// When the program isn't built or can't be started.
pub async fn operator(args: &[&str], kubeconfig: Option<&Path>) -> crate::Result<Output> {
    let mut command = tokio::process::Command::new(operator_bin()?);
    command.args(args).env("NO_COLOR", "1").kill_on_drop(true);
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let output = command.output().await.context("cannot run operator")?;
    Ok(Output::from_std(&output))
}

/// The program under test: `OPERATOR_BIN`, else the newer of the release and the debug build beside this test.
///
/// # Errors
/// When there is none.
pub fn operator_bin() -> crate::Result<PathBuf> {
    if let Some(path) = std::env::var_os("OPERATOR_BIN").map(PathBuf::from) {
        ensure!(path.is_file(), "OPERATOR_BIN={} is no file", path.display());
        return Ok(path);
    }
    let target = crate::modules::target_folder()?;
    let built = ["release", "debug"].map(|profile| target.join(profile).join("operator"));
    let age = |path: &PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    built.into_iter().filter(|path| path.is_file()).max_by_key(age).with_context(|| {
        format!(
            "no operator in {}: build it (cargo build --release --bin operator) or name it in OPERATOR_BIN",
            target.display()
        )
    })
}
