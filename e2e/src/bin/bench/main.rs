//! What the host costs beside the same operator in Go: `bench --help` lists what can be set. Measures, asserts nothing.
//!
//! In come the two programs; out comes a Markdown table of medians and ratios. Each measurement has an API server of its
//! own, the operators take turns, and both get the same flags, objects and kubeconfig.

mod operator;
mod report;
mod round;

use anyhow::{Context as _, ensure};
use clap::Parser;

use self::operator::Operator;
use self::report::Report;

/// Measures the host beside the same operator in Go, on bare API servers, and prints a Markdown table.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 120)]
struct Options {
    /// WebApps that are there before the operator starts
    #[arg(long, value_name = "N", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,
    /// Single edits of a spec whose way to the Deployment is timed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    edits: u32,
    /// Measurements of each operator; the table shows the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Objects that an operator works on at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Measure the host alone
    #[arg(long)]
    host_only: bool,
}

#[tokio::main]
async fn main() -> operator_e2e::Result<()> {
    let options = Options::parse();
    ensure!(options.edits <= options.objects, "--edits: each is of another object, so at most --objects");
    let mut operators = vec![Operator::host(options.workers).await?];
    if !options.host_only {
        operators.push(Operator::go(options.workers).await?);
    }
    for operator in &operators {
        eprintln!("{}: {}", operator.name(), operator.program().display());
    }
    let mut report = Report::new(options.objects, &operators);
    for round in 1..=options.rounds {
        for operator in &operators {
            eprintln!("round {round} of {}: {}, load average {}", options.rounds, operator.name(), load()?);
            let measured = round::measure(operator, options.objects, options.edits).await?;
            eprintln!("  {measured}");
            report.add(operator, measured);
        }
        // Who comes second finds a warmer machine.
        operators.reverse();
    }
    print!("{report}");
    Ok(())
}

/// Of the last minute: how busy the machine was with other work, too.
fn load() -> operator_e2e::Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg").context("/proc shows no load")?;
    Ok(load.split(' ').next().unwrap_or_default().to_owned())
}
