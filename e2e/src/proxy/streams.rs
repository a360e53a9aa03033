//! Open watches on their way through the proxy, and the switch that breaks, ends or pauses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::sync::watch;

/// Why a watch that goes through the proxy broke.
#[derive(Debug, thiserror::Error)]
#[error("cut by the test's proxy")]
pub(super) struct Cut;

#[derive(Debug, Clone, Copy, Default)]
struct Switch {
    cuts: usize,
    ends: usize,
    paused: bool,
}

#[derive(Debug)]
pub(super) struct Streams {
    switch: watch::Sender<Switch>,
    open: Arc<AtomicUsize>,
}

impl Default for Streams {
    fn default() -> Self {
        let (switch, _) = watch::channel(Switch::default());
        Self { switch, open: Arc::default() }
    }
}

impl Streams {
    pub(super) fn cut(&self) {
        self.switch.send_modify(|switch| switch.cuts += 1);
    }

    pub(super) fn end(&self) {
        self.switch.send_modify(|switch| switch.ends += 1);
    }

    pub(super) fn pause(&self, paused: bool) {
        self.switch.send_modify(|switch| switch.paused = paused);
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The watch's body, as long as the switch lets it.
    pub(super) fn pass(&self, body: Body) -> impl Stream<Item = Result<Bytes, Cut>> + Send + use<> {
        let passing = Passing {
            body: body.into_data_stream().boxed(),
            switch: self.switch.subscribe(),
            began: *self.switch.borrow(),
            over: false,
            _open: Counted::new(&self.open),
        };
        futures::stream::unfold(passing, |mut passing| async move {
            let chunk = passing.next().await?;
            passing.over = chunk.is_err();
            Some((chunk, passing))
        })
    }
}

struct Passing {
    body: futures::stream::BoxStream<'static, Result<Bytes, kube::Error>>,
    switch: watch::Receiver<Switch>,
    began: Switch,
    over: bool,
    _open: Counted,
}

impl Passing {
    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            if self.over {
                return None;
            }
            let switch = *self.switch.borrow_and_update();
            if switch.cuts > self.began.cuts {
                return Some(Err(Cut));
            }
            if switch.ends > self.began.ends {
                return None;
            }
            tokio::select! {
                biased;
                changed = self.switch.changed() => {
                    if changed.is_err() {
                        return Some(Err(Cut));
                    }
                }
                chunk = self.body.next(), if !switch.paused => {
                    return chunk.map(|chunk| chunk.map_err(|_| Cut));
                }
            }
        }
    }
}

/// Counts itself for as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
