//! Child processes that never outlive the test process.
//!
//! Each child carries a mark in its environment. One watchdog shell per test process waits for the end of a pipe that
//! only this process holds; when the process ends, by whatever way, the watchdog kills everything that carries the
//! mark, children of children too, and removes the temporary folder. A `PR_SET_PDEATHSIG` would not do: it follows the
//! *thread* that spawned the child, and test threads end before a cluster that tests share.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

const MARK: &str = "OPERATOR_E2E_OWNER";
const KEEP: &str = "OPERATOR_E2E_KEEP";

const WATCHDOG: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    # Its exit status tells nothing: a process that ended in between counts as an error.
    marked=$(grep -lzsxF "$1" /proc/[0-9]*/environ)
    [ -n "$marked" ] || break
    for environ in $marked; do
        pid=${environ#/proc/}
        kill -9 "${pid%/environ}" 2>/dev/null
    done
    sleep 0.1
done
[ -n "$3" ] || rm -rf "$2"
"#;

struct Watched {
    mark: String,
    scratch: PathBuf,
    _watchdog: Child,
}

fn watched() -> crate::Result<&'static Watched> {
    static WATCHED: OnceLock<Result<Watched, String>> = OnceLock::new();
    WATCHED
        .get_or_init(|| start_watchdog().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))
}

fn start_watchdog() -> crate::Result<Watched> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    let mark = format!("{}-{}", std::process::id(), now.as_nanos());
    let scratch = std::env::temp_dir().join(format!("operator-e2e-{mark}"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make the folder {}", scratch.display()))?;
    let watchdog = Command::new("sh")
        .args(["-c", WATCHDOG, "operator-e2e-watchdog"])
        .arg(format!("{MARK}={mark}"))
        .arg(&scratch)
        .arg(if keeps_files() { "keep" } else { "" })
        .env_remove(MARK)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot start the watchdog shell")?;
    Ok(Watched { mark, scratch, _watchdog: watchdog })
}

/// The folder that everything temporary of this process lies in.
///
/// # Errors
/// When the watchdog that removes it can't be started.
pub fn scratch() -> crate::Result<&'static Path> {
    Ok(&watched()?.scratch)
}

/// Whether temporary files stay (`OPERATOR_E2E_KEEP`).
#[must_use]
pub fn keeps_files() -> bool {
    std::env::var_os(KEEP).is_some_and(|value| !value.is_empty())
}

/// A running child in a process group of its own; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`; stdout and stderr are appended to the file `log`.
    ///
    /// # Errors
    /// When the log can't be opened or the program can't be started.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> crate::Result<Self> {
        let out = open_log(log)?;
        let err = out.try_clone().context("cannot share the log file")?;
        let child = command
            .env(MARK, &watched()?.mark)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .with_context(|| {
                let program = Path::new(command.get_program());
                format!("cannot start {name} ({})", program.display())
            })?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), status: None })
    }

    /// What the process is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Sends a signal to the process alone, not to its children; nothing when it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.exited().is_none()
            && let Some(pid) = pid_of(&self.child)
        {
            // It may have ended just now, which is what most signals are for.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the process and all that it started (SIGKILL), and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(pid) = pid_of(&self.child)
            && self.exited().is_none()
        {
            // Only while it is unreaped is the group surely ours.
            let _ = kill_process_group(pid, Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// When it still runs at the deadline; the message carries the end of its log.
    pub async fn wait(&mut self, deadline: Duration) -> crate::Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.exited() {
                return Ok(status);
            }
            if started.elapsed() > deadline {
                bail!("{} still runs after {deadline:?}; its log ends with\n{}", self.name, self.tail(40));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// All of its output so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The file its output goes to.
    #[must_use]
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn open_log(path: &Path) -> crate::Result<File> {
    let open = || -> io::Result<File> { OpenOptions::new().create(true).append(true).open(path) };
    open().with_context(|| format!("cannot open the log {}", path.display()))
}
