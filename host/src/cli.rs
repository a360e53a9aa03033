//! The command line: one file a subcommand. Exit codes: 0 done, 1 failed (every error listed), 2 usage.

mod crd;
mod host;
mod inspect;
mod lead;
mod units;

use crate::module::{self, Limits, RuntimeOptions};
use crate::observe::logs;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
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

/// The limits that a module runs under; the same flags for every command that loads one.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Longest call of a module, by the clock on the wall
    #[arg(long, env = "OPERATOR_TIMEOUT", value_name = "DURATION", default_value = "5s", value_parser = units::some_time, help_heading = "Module limits")]
    timeout: std::time::Duration,
    /// Most CPU time that a call of a module may use
    #[arg(long, env = "OPERATOR_CPU_TIMEOUT", value_name = "DURATION", default_value = "1s", value_parser = units::some_time, help_heading = "Module limits")]
    cpu_timeout: std::time::Duration,
    /// Most memory that one instance of a module may have
    #[arg(long, env = "OPERATOR_MAX_MEMORY", value_name = "SIZE", default_value = "64Mi", value_parser = units::size, help_heading = "Module limits")]
    max_memory: usize,
    /// Folder of compiled modules; created with mode 0700 [default: operator-host/modules in the user's cache folder]
    #[arg(long, env = "OPERATOR_MODULE_CACHE", value_name = "DIR", help_heading = "Module limits")]
    module_cache: Option<PathBuf>,
}

impl LimitArgs {
    fn runtime(&self, callers: u32) -> RuntimeOptions {
        let limits = Limits { cpu: self.cpu_timeout, wall: self.timeout, memory: self.max_memory, ..Limits::default() };
        RuntimeOptions { limits, callers, cache: self.module_cache.clone(), compiler: None }
    }
}

/// Wrong usage that shows only where several flags are looked at together; ends the process as the parser itself does.
fn misuse(message: &str) -> ! {
    Cli::command().error(ErrorKind::ArgumentConflict, message).exit()
}

/// Parses the command line, runs the command and says how the process ends.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    logs::init(cli.log.log_format == LogFormat::Json, cli.log.verbose);
    let result = match cli.command {
        Command::Host(args) => return host::run(*args),
        Command::Crd(args) => crd::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Compile(args) => return module::compile_main(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
