//! Connections that end with the term: from then on not a byte of a write leaves, however long ago it was handed over.

use crate::lead::{Permits, Term};
use hyper::rt::Executor;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// What drives a connection, in hyper's hands.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs what drives connections, for as long as the term lasts; always, where there is no election.
#[derive(Clone, Debug)]
pub(super) struct Connections(Option<Arc<Term>>);

impl Connections {
    pub(super) fn new(permits: &Permits) -> Self {
        Self(permits.term().cloned())
    }
}

impl Executor<Driver> for Connections {
    fn execute(&self, mut driver: Driver) {
        let Some(term) = self.0.clone() else {
            tokio::spawn(driver);
            return;
        };
        tokio::spawn(async move {
            // Looked at right before each write to the socket: a process that was stopped in between, or waited for a connection, must
            // not go on where it was. Dropping a driver closes its connection.
            let while_it_lasts = poll_fn(|context| match term.is_over() {
                true => Poll::Ready(()),
                false => driver.as_mut().poll(context),
            });
            tokio::select! {
                biased;
                () = term.lost() => {}
                () = while_it_lasts => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;

    /// Something that is never done; tells by the receiver when it was dropped.
    fn driver() -> (Driver, oneshot::Receiver<()>) {
        let (alive, dropped) = oneshot::channel::<()>();
        let driver = Box::pin(async move {
            let _alive = alive;
            std::future::pending().await
        });
        (driver, dropped)
    }

    #[tokio::test]
    async fn a_connection_closes_when_the_term_is_lost_and_none_opens_after_it() {
        let permits = Permits::while_leading();
        let connections = Connections::new(&permits);
        let (open, mut closed) = driver();
        connections.execute(open);
        // A standby's connections are nobody's business.
        let early = tokio::time::timeout(Duration::from_millis(10), &mut closed).await;
        assert!(early.is_err(), "closed before there was a term");
        permits.term().expect("a term").lose();
        assert!(closed.await.is_err(), "still open");
        let (late, closed) = driver();
        connections.execute(late);
        assert!(closed.await.is_err(), "open after the term");
    }
}
