//! `operator`: see `operator --help`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use operator_host::module;

#[derive(Debug, Parser)]
#[command(name = "operator", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compile one module; the host runs this in a child process with limits
    #[command(hide = true)]
    Compile(module::CompileArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Compile(args) => module::compile_main(&args),
    }
}
