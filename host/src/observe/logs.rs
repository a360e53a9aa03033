//! Where log lines go and how many there are.

use std::io::{self, IsTerminal as _};

use super::traces;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::{self, time::SystemTime};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Sends log lines to standard error: text for people or one JSON object a line, by default at level info of the host's own
/// and warn of its libraries. Each `-v` says more; `RUST_LOG` (tracing's filter directives) overrides it. A second call
/// changes nothing. A process that makes passes is `traced` where somebody asks for it.
pub fn init(json: bool, verbose: u8, traced: bool) {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let (filter, mistake) = filter(&asked, verbose);
    let lines = fmt::layer().with_timer(SystemTime).with_writer(io::stderr);
    // A line that nobody takes, as when the reader of a pipe is gone or a disk is full, is lost. The default is to say so on standard
    // error, which panics there.
    let lines = lines.log_internal_errors(false);
    let lines = if json {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
    } else {
        lines.with_ansi(io::stderr().is_terminal()).boxed()
    };
    let (traces, trouble) = if traced { traces::layer() } else { Default::default() };
    // Fails only where a subscriber is installed already, as by a test.
    let _ = tracing_subscriber::registry().with(traces).with(lines.with_filter(filter)).try_init();
    if let Some(trouble) = trouble {
        tracing::warn!("{trouble}");
    }
    if let Some(error) = mistake {
        tracing::warn!(%error, asked, "RUST_LOG is no filter and counts as unset; one looks like info,operator=debug");
    }
}

/// The filter that was asked for, else that of a count of `-v`; and what is wrong with the one that was asked for.
fn filter(asked: &str, verbose: u8) -> (EnvFilter, Option<ParseError>) {
    let standard = || EnvFilter::new(directives(verbose));
    // An empty variable is an unset one, as in a manifest that fills it in where there is something to say.
    if asked.trim().is_empty() {
        return (standard(), None);
    }
    match EnvFilter::builder().parse(asked) {
        Ok(filter) => (filter, None),
        Err(error) => (standard(), Some(error)),
    }
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
    fn a_filter_that_is_empty_or_can_not_be_read_silences_nothing() {
        let standard = EnvFilter::new(directives(0)).to_string();
        for (asked, is_mistake) in [("", false), (" ", false), ("operator=loud", true), ("a=b=c", true)] {
            let (filter, mistake) = filter(asked, 0);
            assert_eq!((filter.to_string(), mistake.is_some()), (standard.clone(), is_mistake), "{asked:?}");
        }
        assert_eq!(filter("error", 0).0.to_string(), "error");
    }

    #[test]
    fn a_second_start_of_the_log_is_no_panic() {
        init(true, 0, true);
        init(false, 2, false);
    }
}
