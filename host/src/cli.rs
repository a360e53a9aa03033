//! The command line: one file a subcommand. Exit codes: 0 done, 1 failed (every error listed), 2 usage.

mod cluster;
mod crd;
mod grants;
mod host;
mod inspect;
mod lead;
mod modules;
mod rbac;
mod release;
mod units;

use crate::module;
use crate::observe::logs;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::io::{self, ErrorKind as IoErrorKind, Write as _};
use std::process::ExitCode;

/// Runs Kubernetes operators whose reconcile logic is a sandboxed WebAssembly component.
#[derive(Debug, Parser)]
#[command(name = "operator", version, propagate_version = true, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operators of one or more modules against a cluster
    Host(Box<host::HostArgs>),
    /// Print the CustomResourceDefinitions of a module, for `kubectl apply -f -`
    Crd(crd::CrdArgs),
    /// Show what a module is: kind, contract, imports, exports, children, limits
    Inspect(inspect::InspectArgs),
    /// Print the rights that the host needs for a module, and no more, for `kubectl apply -f -`
    Rbac(rbac::RbacArgs),
    /// Take a module's finalizer off every object that carries it: what it would have cleaned up stays as it is
    Release(Box<release::ReleaseArgs>),
    /// Compile one module; the host runs this in a child process with limits
    #[command(hide = true)]
    Compile(module::CompileArgs),
}

#[derive(Debug, Args)]
struct LogArgs {
    /// How log lines are written
    #[arg(long, env = "OPERATOR_LOG_FORMAT", global = true, value_enum, default_value_t = LogFormat::Text, help_heading = "Logs")]
    log_format: LogFormat,
    /// Say more; twice for everything
    #[arg(short, long, env = "OPERATOR_VERBOSE", global = true, action = ArgAction::Count, help_heading = "Logs")]
    verbose: u8,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Wrong usage that shows only where several flags are looked at together; ends the process as the parser itself does.
fn misuse(message: &str) -> ! {
    Cli::command().error(ErrorKind::ArgumentConflict, message).exit()
}

/// Parses the command line, runs the command and says how the process ends.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let traced = matches!(cli.command, Command::Host(_));
    logs::init(cli.log.log_format == LogFormat::Json, cli.log.verbose, traced);
    let result = match cli.command {
        Command::Host(args) => return host::run(*args),
        Command::Crd(args) => crd::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Rbac(args) => rbac::run(&args),
        Command::Release(args) => release::run(*args),
        Command::Compile(args) => return module::compile_main(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints what a command was asked for. A reader that has had enough, as `head` has, is no error.
///
/// # Errors
/// Not all of it could be written.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("can't write to standard output"))
        }
        _ => Ok(()),
    }
}

/// A line on standard error. Where nobody takes it there is nobody left to tell, and the exit code says enough.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
