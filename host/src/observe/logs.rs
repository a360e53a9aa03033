//! Where log lines go and how many there are.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Sends log lines to standard error: text for people or one JSON object a line, by default at level info of the host's own
/// and warn of its libraries. Each `-v` says more; `RUST_LOG` (tracing's filter directives) overrides it. A second call
/// changes nothing.
pub fn init(json: bool, verbose: u8) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directives(verbose)));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_timer(SystemTime).with_writer(io::stderr);
    // Fails only where a subscriber is installed already, as by a test.
    let _ = if json {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).finish().try_init()
    } else {
        lines.with_ansi(io::stderr().is_terminal()).finish().try_init()
    };
}

/// The filter of a count of `-v`. What kube says of an answer is said better where the answer is judged. Frames and TLS records of the HTTP stack would drown all else, and are never asked for.
fn directives(verbose: u8) -> String {
    let (ours, libraries) = match verbose {
        0 => ("info", "warn"),
        1 => ("debug", "info"),
        _ => ("trace", "debug"),
    };
    format!("{libraries},operator={ours},h2=warn,kube_client=off,hyper=warn,hyper_util=warn,rustls=warn,tower=warn")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_of_v_is_a_filter_without_mistakes() {
        for verbose in 0..4 {
            let directives = directives(verbose);
            EnvFilter::builder().parse(&directives).expect(&directives);
        }
    }

    #[test]
    fn a_second_start_of_the_log_is_no_panic() {
        init(true, 0);
        init(false, 2);
    }
}
