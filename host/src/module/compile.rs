//! Compiling in a process of its own, so that a file that makes the compiler loop or swell takes nothing down with it.
//!
//! In: the bytes of a component. Out: a file of native code, written by `operator compile`, which limits itself before
//! it reads a byte and is killed when it takes too long.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, nice, set_parent_process_death_signal, setrlimit};

use crate::module::engine;
use crate::module::log::clean;

/// CPU time of a compilation.
const CPU: Duration = Duration::from_secs(60);
/// Time on the wall: on a machine that is busy or throttled, a compilation waits most of the time.
const WALL: Duration = Duration::from_secs(300);
/// Bytes of memory that a compilation may allocate.
const MEMORY: u64 = 1 << 30;
/// Threads of a compilation: each costs memory.
const THREADS: &str = "4";
/// Longest text taken over from the compiler.
const TEXT_BYTES: usize = 2 << 10;

/// The program that compiles: this one, called with `compile --in FILE --out FILE`.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    program: PathBuf,
}

impl Compiler {
    /// `program` in place of the running executable.
    pub(crate) fn new(program: Option<PathBuf>) -> Self {
        Self { program: program.unwrap_or_else(this_program) }
    }

    /// Compiles the component in `input` to `output`; the error says why that failed.
    pub(crate) fn run(&self, input: &Path, output: &Path) -> Result<(), String> {
        let mut child = Command::new(&self.program)
            .arg0("operator")
            .args([OsString::from("compile"), "--in".into(), input.into(), "--out".into(), output.into()])
            .env_clear()
            .env("RAYON_NUM_THREADS", THREADS)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} can't be started to compile it: {error}", self.program.display()))?;
        let ended = wait(&mut child, WALL).map_err(|error| format!("the compiler was lost: {error}"))?;
        let mut text = Vec::new();
        if let Some(stderr) = child.stderr.take() {
            // What a pipe holds and no more: a compiler that writes more was stopped by its own full pipe.
            let _ = stderr.take(64 << 10).read_to_end(&mut text);
        }
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(why(status, &String::from_utf8_lossy(&text))),
            None => Err(format!("it takes longer than {WALL:?}; give the host more CPU, or make the module smaller")),
        }
    }
}

/// The running file itself, also after an upgrade put another one in its place.
fn this_program() -> PathBuf {
    let running = Path::new("/proc/self/exe");
    if running.exists() { running.to_owned() } else { env::current_exe().unwrap_or_else(|_| "operator".into()) }
}

/// None when the child had to be killed.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn why(status: ExitStatus, text: &str) -> String {
    let text = clean(text.trim(), TEXT_BYTES);
    match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => {
            format!("it needs more than {CPU:?} of CPU time; make the module smaller")
        }
        _ if text.contains("memory allocation of") => {
            format!("it needs more than {} MiB of memory; make the module smaller", MEMORY >> 20)
        }
        Some(signal) if signal == Signal::KILL.as_raw() => {
            "the compiler was killed, as the kernel does when memory runs out".into()
        }
        Some(signal) if text.is_empty() => format!("the compiler was ended by signal {signal}"),
        Some(signal) => format!("the compiler was ended by signal {signal}: {text}"),
        None => text,
    }
}

/// Arguments of `operator compile`.
#[derive(Debug, clap::Args)]
pub struct CompileArgs {
    /// Component to compile
    #[arg(long = "in", value_name = "FILE")]
    input: PathBuf,
    /// File of native code to write
    #[arg(long = "out", value_name = "FILE")]
    output: PathBuf,
}

/// The body of `operator compile`: reads a component and writes native code.
///
/// Limits itself to 60 s of CPU time and 1 GiB of memory, and gives way to the host's own work. Errors go to standard
/// error.
pub fn compile_main(args: &CompileArgs) -> ExitCode {
    match compile(&args.input, &args.output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The host that reads it may be gone.
            let _ = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compile(input: &Path, output: &Path) -> anyhow::Result<()> {
    // A second apart, or the kernel kills without the signal that says why.
    limit(Resource::Cpu, CPU.as_secs(), CPU.as_secs() + 1)?;
    limit(Resource::Data, MEMORY, MEMORY)?;
    // Not being allowed to is no reason not to compile. A host that ends takes its compilers with it.
    let _ = (nice(5), set_parent_process_death_signal(Some(Signal::KILL)));
    let component = fs::read(input).with_context(|| format!("reading {}", input.display()))?;
    let code = engine::compiler()?.precompile_component(&component)?;
    fs::write(output, code).with_context(|| format!("writing {}", output.display()))
}

/// Lowers a limit; one that is lower already stays.
fn limit(resource: Resource, soft: u64, hard: u64) -> anyhow::Result<()> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>, most: u64| Some(limit.map_or(most, |limit| limit.min(most)));
    setrlimit(resource, Rlimit { current: least(now.current, soft), maximum: least(now.maximum, hard) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, signal: i32, text: &str) -> String {
        why(ExitStatus::from_raw(code << 8 | signal), text)
    }

    #[test]
    fn a_compiler_that_fails_is_quoted() {
        assert_eq!(ended(1, 0, "too many locals\n"), "too many locals");
    }

    #[test]
    fn a_limit_that_ended_the_compiler_is_named() {
        let cpu = ended(0, Signal::XCPU.as_raw(), "");
        assert_eq!(cpu, "it needs more than 60s of CPU time; make the module smaller");
        let memory = ended(0, Signal::ABORT.as_raw(), "memory allocation of 1 bytes failed");
        assert_eq!(memory, "it needs more than 1024 MiB of memory; make the module smaller");
        assert!(ended(0, Signal::KILL.as_raw(), "").contains("when memory runs out"));
        assert_eq!(ended(0, Signal::SEGV.as_raw(), ""), "the compiler was ended by signal 11");
    }

    #[test]
    fn a_compiler_that_is_not_there_is_told() {
        let error = Compiler::new(Some("/nowhere/operator".into())).run(Path::new("in"), Path::new("out")).unwrap_err();
        assert!(error.contains("/nowhere/operator can't be started"), "{error}");
    }
}
