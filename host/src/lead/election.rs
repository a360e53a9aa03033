//! Runs the elector: sends what it wants sent, tells it what came of that and what the watch shows, and lets the term last for as long as it
//! says.

use super::news::News;
use super::{Permits, Term, clock};
use crate::api::exempt::{Exempt, LeaseName};
use crate::api::{ApiError, ApiServer};
use jiff::Timestamp;
use operator_core::lead::{
    Answer, BootTime, Elector, End, Lease, Loss, ModuleVersion, Options, Paused, Request, Standing, Step, Timing,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

/// What leader election is set to.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who this process is in it.
    pub identity: String,
    /// How long a term lasts.
    pub timing: Timing,
    /// Whether an older module takes over from a newer one at once.
    pub allow_older_module: bool,
}

/// How this process stands in the election.
#[derive(Debug)]
pub struct Leadership {
    standing: watch::Receiver<Standing>,
    paused: watch::Receiver<Paused>,
    beat: Beat,
    slow_paths: Arc<AtomicU64>,
    stop: CancellationToken,
    /// Keeps the channel open where there is no election.
    _always: Option<watch::Sender<Standing>>,
}

impl Leadership {
    /// Leads without being elected.
    pub fn without_election() -> Self {
        let (always, standing) = watch::channel(Standing::Leading);
        let (_, paused) = watch::channel(Paused::default());
        Self {
            standing,
            paused,
            beat: Beat::default(),
            slow_paths: Arc::default(),
            stop: CancellationToken::new(),
            _always: Some(always),
        }
    }

    /// Starts to compete for the Lease. `modules` is asked for what the Lease shall say that this process runs.
    pub fn compete(
        config: Config,
        api: &Arc<ApiServer>,
        permits: &Permits,
        modules: impl Fn() -> Vec<ModuleVersion> + Send + 'static,
        handle: &Handle,
    ) -> Self {
        let (sender, standing) = watch::channel(Standing::Unknown { problem: None });
        let (pauses, paused) = watch::channel(Paused::default());
        let stop = CancellationToken::new();
        let lease = LeaseName::new(&config.namespace, &config.name);
        info!(%lease, identity = config.identity, "competing for the Lease");
        let Config { namespace, name, identity, timing, allow_older_module } = config;
        let elector =
            Elector::new(Options { namespace, name, identity, timing, allow_older_module, seed: fastrand::u64(..) });
        let beat = Beat::new(timing.lease_duration());
        let slow_paths = Arc::new(AtomicU64::new(0));
        let election = Election {
            slow_paths: Arc::clone(&slow_paths),
            beat: beat.clone(),
            elector,
            news: News::follow(handle.clone(), Arc::clone(api), &lease),
            api: Arc::clone(api),
            lease,
            term: permits.term().map(Arc::clone).unwrap_or_default(),
            modules: Box::new(modules),
            standing: sender,
            paused: pauses,
            stop: stop.clone(),
        };
        handle.spawn(election.run());
        Self { standing, paused, beat, slow_paths, stop, _always: None }
    }

    /// Counts renewals that had to read the Lease first (client-go's slow path).
    pub fn slow_paths(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let slow_paths = Arc::clone(&self.slow_paths);
        move || slow_paths.load(Ordering::Relaxed)
    }

    /// Says for how long the election has stood still, if that is longer than it ever should.
    pub fn stuck(&self) -> impl Fn() -> Option<Duration> + Send + Sync + 'static {
        let beat = self.beat.clone();
        move || beat.stuck(clock::now())
    }

    /// Which modules the Lease says are paused. It ends where there is no election.
    pub fn paused(&self) -> watch::Receiver<Paused> {
        self.paused.clone()
    }

    /// A reader of the standing.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Waits until this process leads.
    ///
    /// # Errors
    /// It led, and does so no more.
    pub async fn acquired(&mut self) -> Result<(), Loss> {
        let standing = self.wait_for(|standing| matches!(standing, Standing::Leading | Standing::Ended(_))).await;
        match standing {
            Standing::Ended(End::Lost(loss)) => Err(loss),
            _ => Ok(()),
        }
    }

    /// Waits until this process has lost the Lease.
    pub async fn lost(&mut self) -> Loss {
        match self.wait_for(|standing| matches!(standing, Standing::Ended(End::Lost(_)))).await {
            Standing::Ended(End::Lost(loss)) => loss,
            _ => std::future::pending().await,
        }
    }

    /// Gives back what is held and waits until that is done. All guarded work must have ended.
    pub async fn release(mut self) {
        self.stop.cancel();
        if self._always.is_none() {
            self.wait_for(|standing| matches!(standing, Standing::Ended(_))).await;
        }
    }

    async fn wait_for(&mut self, is_it: impl FnMut(&Standing) -> bool) -> Standing {
        let standing = self.standing.wait_for(is_it).await.ok().map(|standing| standing.clone());
        standing.unwrap_or_else(|| {
            // A panic. Permits end by the clock; a process that stayed would do nothing, and say that it is well.
            let loss = Loss::Unattended;
            error!("{loss}");
            Standing::Ended(End::Lost(loss))
        })
    }
}

/// When the election last went on. A leader whose election stands still writes nothing, as its term runs out by the clock, and never says
/// so: only a restart helps (client-go's `HealthzAdaptor`).
#[derive(Clone, Debug, Default)]
struct Beat {
    /// Nanoseconds of [`BootTime`]; 0: there is no election, or it has ended.
    last: Arc<AtomicU64>,
    /// Longest time between two beats.
    limit: Duration,
}

impl Beat {
    /// What client-go's adaptor grants beyond the lease duration.
    const GRACE: Duration = Duration::from_secs(20);

    fn new(lease_duration: Duration) -> Self {
        let beat = Self { last: Arc::default(), limit: lease_duration + Self::GRACE };
        beat.set(Some(clock::now()));
        beat
    }

    fn set(&self, at: Option<BootTime>) {
        let nanoseconds = at.map_or(0, |at| u64::try_from(at.since_boot().as_nanos()).unwrap_or(u64::MAX));
        self.last.store(nanoseconds, Ordering::Relaxed);
    }

    fn stuck(&self, now: BootTime) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed);
        let since = BootTime::new(Duration::from_nanos(last)).until(now);
        (last > 0 && since > self.limit).then_some(since)
    }
}

struct Election {
    slow_paths: Arc<AtomicU64>,
    beat: Beat,
    elector: Elector,
    news: News,
    api: Arc<ApiServer>,
    lease: LeaseName,
    term: Arc<Term>,
    modules: Box<dyn Fn() -> Vec<ModuleVersion> + Send>,
    standing: watch::Sender<Standing>,
    paused: watch::Sender<Paused>,
    stop: CancellationToken,
}

impl Election {
    async fn run(mut self) {
        loop {
            self.elector.runs((self.modules)());
            let now = clock::now();
            let step = self.elector.next(now, Timestamp::now());
            self.beat.set((!matches!(step, Step::End(_))).then_some(now));
            // Before anything is sent: what is given back permits nothing any more.
            self.publish();
            match step {
                Step::Send(request, limit) => self.exchange(request, limit).await,
                Step::Wait(until) => self.wait(clock::now().until(until)).await,
                Step::End(_) => return,
            }
        }
    }

    async fn wait(&mut self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            lease = self.news.next() => self.elector.saw(lease, clock::now()),
            () = self.stop.cancelled(), if !self.elector.is_stopping() => self.elector.stop(clock::now()),
        }
    }

    async fn exchange(&mut self, request: Request, limit: Duration) {
        let is_read = request == Request::Get;
        if is_read && self.elector.permits_until().is_some() {
            self.slow_paths.fetch_add(1, Ordering::Relaxed);
        }
        let answer = tokio::select! {
            answer = ask(&self.api, &self.lease, request, limit) => answer,
            // A standby that ends need not know any more.
            () = self.stop.cancelled(), if is_read && !self.elector.is_stopping() => Answer::Failed("stopping".into()),
        };
        if let Answer::Failed(problem) = &answer
            && self.elector.permits_until().is_some()
        {
            warn!(lease = %self.lease, problem, "can't renew the Lease; tried again until the renew deadline");
        }
        self.elector.answered(answer, clock::now());
        if self.stop.is_cancelled() && !self.elector.is_stopping() {
            self.elector.stop(clock::now());
        }
    }

    /// Makes the elector's state known: to who writes first.
    fn publish(&self) {
        self.term.set(self.elector.permits_until());
        let standing = self.elector.standing(clock::now(), Timestamp::now());
        // Asked before the connections end, which answers all of them.
        let unanswered = self.api.unanswered();
        if matches!(standing, Standing::Ended(End::Lost(_))) {
            self.term.lose();
        }
        // Before somebody begins to work.
        let paused = self.elector.paused();
        self.paused.send_if_modified(|known| std::mem::replace(known, paused.clone()) != paused);
        if *self.standing.borrow() != standing {
            self.say(&standing, unanswered);
            self.standing.send_replace(standing);
        }
    }

    fn say(&self, standing: &Standing, unanswered: usize) {
        let (lease, identity) = (&self.lease, self.elector.identity());
        match standing {
            Standing::Leading => info!(%lease, identity, "leading: the Lease is held by this process"),
            Standing::Standby { problem: None, .. } => info!(%lease, "standing by: the Lease {standing}"),
            Standing::Standby { problem: Some(_), .. } | Standing::Unknown { problem: Some(_) } => {
                warn!(%lease, "standing by: the Lease {standing} (tried again until it succeeds)");
            }
            Standing::HoldsBack { .. } => {
                warn!(%lease, "standing by: the Lease {standing}; taken over 10 minutes after its last renewal, or at once with --allow-older-module");
            }
            Standing::Unknown { problem: None } => {}
            Standing::Ended(End::Released) => debug!(%lease, "released the Lease"),
            Standing::Ended(End::Kept) => warn!(%lease, "the Lease {standing}"),
            Standing::Ended(End::Lost(loss)) => {
                error!(%lease, identity, unanswered, "lost the Lease: {loss}; nothing more is written, and this process ends");
            }
        }
    }
}

async fn ask(api: &ApiServer, lease: &LeaseName, request: Request, limit: Duration) -> Answer {
    let is_create = matches!(request, Request::Create(_));
    let result = match request {
        Request::Get => api.get_within(&lease.path(), limit).await,
        Request::Create(body) => api.write_exempt(Exempt::CreateLease { lease, body, limit }).await,
        Request::Replace(body) => api.write_exempt(Exempt::ReplaceLease { lease, body, limit }).await,
    };
    match result {
        Ok(body) => match Lease::parse(&body) {
            Ok(lease) => Answer::Lease(lease),
            Err(error) => Answer::Failed(format!("the API server answered with what is no Lease: {error}")),
        },
        // Of a create: there is no such namespace.
        Err(ApiError::Answer(answer)) if answer.code == 404 && !is_create => Answer::Absent,
        Err(ApiError::Answer(answer)) if answer.code == 409 => Answer::Conflict,
        Err(ApiError::Answer(answer)) if answer.code == 403 => {
            Answer::Failed(format!("{}; grant get, create, update, list and watch on leases there", answer.message))
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_that_stands_still_is_found_out_and_one_that_ended_is_not() {
        let beat = Beat::new(Duration::from_secs(15));
        let now = clock::now();
        beat.set(Some(now));
        assert_eq!(beat.stuck(now + Duration::from_secs(35)), None);
        assert_eq!(beat.stuck(now + Duration::from_secs(36)), Some(Duration::from_secs(36)));
        beat.set(None);
        assert_eq!(beat.stuck(now + Duration::from_secs(100)), None);
        assert_eq!(Beat::default().stuck(now), None, "without an election");
    }

    #[tokio::test]
    async fn an_election_that_nobody_runs_any_more_is_lost_and_held_up_by_nothing() {
        let (election, standing) = watch::channel(Standing::Leading);
        let mut leadership = Leadership {
            standing,
            paused: watch::channel(Paused::default()).1,
            beat: Beat::default(),
            slow_paths: Arc::default(),
            stop: CancellationToken::new(),
            _always: None,
        };
        assert!(leadership.acquired().await.is_ok());
        drop(election);
        assert_eq!(leadership.lost().await, Loss::Unattended);
        leadership.release().await;
    }
}
