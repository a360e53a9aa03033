//! Asks the API server, while the breaker is open, whether it is well again.

use super::{ApiError, ApiServer};
use operator_core::breaker::{Admission, Signal};
use std::time::{Duration, Instant};

/// How long an answer may take. A connection that leads nowhere any more must not hide for long that the server is back.
const ANSWER: Duration = Duration::from_secs(5);

impl ApiServer {
    /// Watches over the breaker for as long as the process runs: when it opens, one cheap request at a time tells when to close it.
    pub async fn keep_probing(&self) {
        let mut is_open = self.breaker();
        while is_open.wait_for(|open| *open).await.is_ok() {
            self.probe_until_closed().await;
        }
    }

    async fn probe_until_closed(&self) {
        loop {
            let admission = self.breaker_state().admit(Instant::now());
            match admission {
                Admission::Pass => return,
                Admission::Wait(until) => tokio::time::sleep_until(until.into()).await,
                Admission::Probe => {
                    // Any authenticated user may read it; any answer but a server error shows a server at work.
                    let signal = match self.read("/readyz", ANSWER).await {
                        Err(ApiError::Transport { .. }) => Signal::Transport,
                        Err(ApiError::Answer(answer)) if answer.code >= 500 => Signal::Unavailable,
                        Err(ApiError::Answer(answer)) if answer.code == 429 => {
                            Signal::Throttled { retry_after: answer.retry_after }
                        }
                        _ => Signal::Success,
                    };
                    self.report(Some(signal));
                }
            }
        }
    }
}
