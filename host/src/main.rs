//! `operator`: see `operator --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator_host::cli::main()
}
