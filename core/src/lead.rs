//! Leader election: what is heard of a Lease and the time in, requests and the end of a term out.
//!
//! client-go's `tools/leaderelection`: the holder renews its record; another takes over when it has not seen the record change for as long as
//! the record says, by its own monotonic clock, so that clocks need not agree. Every write carries the resourceVersion that it is based on:
//! of two, the server refuses one. Stricter than client-go in these points:
//!
//! - A term permits writes for the renew deadline, counted from before the last successful renewal was *sent*. Others wait for the whole
//!   lease duration, counted from after the server carried it out: what lies between is for writes that are on their way.
//! - A holder that sees another's name in the Lease, or none, has lost it.
//! - A Lease that was deleted is not made anew before the term of the holder that was last seen in it is over.
//! - A standby hears of changes by a watch, tries at the moment when the record expires, and asks only when it has heard nothing for a while.
//! - A standby with an older module than the last holder's holds back for some time ([`ModuleVersion`]).

mod lease;
mod modules;
mod standing;
#[cfg(test)]
mod tests;
mod time;
mod timing;

pub use lease::{Lease, Paused, Record};
pub use modules::{ModuleVersion, Older};
pub use standing::{End, Loss, Standing};
pub use time::BootTime;
pub use timing::{InvalidTiming, Timing};

use jiff::Timestamp;
use std::time::Duration;
use timing::JITTER;

/// How long an older module leaves the Lease alone after a newer holder's last renewal.
const HOLD_BACK: Duration = Duration::from_secs(600);

/// What an elector is set to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who this process is: no other, and no earlier one, may have the same.
    pub identity: String,
    /// The three numbers.
    pub timing: Timing,
    /// Take over from a newer module at once.
    pub allow_older_module: bool,
    /// Feeds the jitter of attempts.
    pub seed: u64,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this time, unless something is heard.
    Wait(BootTime),
    /// Send it, wait for the answer no longer than this, and tell it by [`Elector::answered`].
    Send(Request, Duration),
    /// Nothing ever again.
    End(End),
}

/// A request about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A consistent read.
    Get,
    /// Make it; this is the body.
    Create(String),
    /// Replace it; this is the body, with a resourceVersion.
    Replace(String),
}

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Success: the Lease as it now is.
    Lease(Lease),
    /// 404: there is none.
    Absent,
    /// 409: it is another than was thought.
    Conflict,
    /// Any other answer, or none within the time: what was asked for may have happened all the same.
    Failed(String),
}

#[derive(Debug)]
enum Phase {
    Standby,
    /// `sent`: before the last successful write of ours was sent.
    Holding {
        sent: BootTime,
    },
    Ended(End),
}

/// The last record that was seen, also where the Lease is gone since.
#[derive(Debug)]
struct Observed {
    record: Record,
    modules: Vec<ModuleVersion>,
    /// When this process first saw it: others' clocks say nothing.
    since: BootTime,
}

#[derive(Debug)]
struct InFlight {
    is_write: bool,
    sent: BootTime,
}

/// The state machine of one process. See the [module](self).
#[derive(Debug)]
pub struct Elector {
    options: Options,
    modules: Vec<ModuleVersion>,
    phase: Phase,
    /// What the next write is based on; None: there is none.
    lease: Option<Lease>,
    observed: Option<Observed>,
    /// The Lease has to be read before it is written.
    is_doubtful: bool,
    /// It was read for this very attempt.
    is_fresh: bool,
    /// A write whose answer is not known may have made it ours.
    may_be_ours: bool,
    not_before: BootTime,
    /// When a standby that hears nothing asks.
    ask_at: BootTime,
    /// Until when it may try to give the Lease back, once it was asked to stop.
    stop_by: Option<BootTime>,
    in_flight: Option<InFlight>,
    problem: Option<String>,
    rng: fastrand::Rng,
}

impl Elector {
    /// A standby that has heard of nothing.
    pub fn new(options: Options) -> Self {
        let rng = fastrand::Rng::with_seed(options.seed);
        Self {
            options,
            modules: Vec::new(),
            phase: Phase::Standby,
            lease: None,
            observed: None,
            is_doubtful: true,
            is_fresh: false,
            may_be_ours: false,
            not_before: BootTime::default(),
            ask_at: BootTime::default(),
            stop_by: None,
            in_flight: None,
            problem: None,
            rng,
        }
    }

    /// Sets the modules that the process runs; the Lease carries them from the next write on.
    pub fn runs(&mut self, modules: Vec<ModuleVersion>) {
        self.modules = modules;
    }

    /// Which modules the Lease, as it was last seen, says are paused.
    pub fn paused(&self) -> Paused {
        self.lease.as_ref().map(|lease| lease.paused().clone()).unwrap_or_default()
    }

    /// Who this process is in the Lease.
    pub fn identity(&self) -> &str {
        &self.options.identity
    }

    /// Whether it was asked to [stop](Self::stop).
    pub fn is_stopping(&self) -> bool {
        self.stop_by.is_some()
    }

    /// Until when this process may write; None: not at all.
    pub fn permits_until(&self) -> Option<BootTime> {
        match self.phase {
            Phase::Holding { sent } if self.stop_by.is_none() => Some(sent + self.options.timing.renew_deadline()),
            _ => None,
        }
    }

    /// How the process stands with the Lease.
    pub fn standing(&self, now: BootTime, wall: Timestamp) -> Standing {
        let holder = || self.observed.as_ref().map(|observed| observed.record.holder.clone());
        match &self.phase {
            Phase::Ended(end) => Standing::Ended(end.clone()),
            Phase::Holding { .. } => Standing::Leading,
            Phase::Standby if self.observed.is_none() && self.is_doubtful => {
                Standing::Unknown { problem: self.problem.clone() }
            }
            Phase::Standby => match self.older() {
                older if !older.is_empty() && self.expires() <= now && self.free_at(now, wall) > now => {
                    Standing::HoldsBack { holder: holder().unwrap_or_default(), older }
                }
                _ => Standing::Standby { holder: holder().unwrap_or_default(), problem: self.problem.clone() },
            },
        }
    }

    /// Asks it to give back what it holds. All guarded work must have ended, as permits end now and another may follow at once.
    pub fn stop(&mut self, now: BootTime) {
        self.stop_by.get_or_insert(now + self.options.timing.renew_deadline());
        self.not_before = now;
    }

    /// What to do next. `wall` is what the Lease shows to people; nothing but [holding back](Standing::HoldsBack) depends on it.
    pub fn next(&mut self, now: BootTime, wall: Timestamp) -> Step {
        if let (Phase::Holding { sent }, None) = (&self.phase, self.stop_by)
            && *sent + self.options.timing.renew_deadline() <= now
        {
            let within = self.options.timing.renew_deadline();
            self.phase = Phase::Ended(End::Lost(Loss::NotRenewed { within, problem: self.problem.clone() }));
        }
        if let (Phase::Standby | Phase::Holding { .. }, Some(stop_by)) = (&self.phase, self.stop_by) {
            let is_ours = self.may_be_ours || matches!(self.phase, Phase::Holding { .. });
            match is_ours {
                false => self.phase = Phase::Ended(End::Released),
                true if stop_by <= now => self.phase = Phase::Ended(End::Kept),
                true => {}
            }
        }
        match &self.phase {
            Phase::Ended(end) => Step::End(end.clone()),
            _ if now < self.not_before => self.wait(self.not_before),
            _ if self.is_doubtful => self.send(Request::Get, now),
            Phase::Standby if self.stop_by.is_none() => {
                let free_at = self.free_at(now, wall);
                if free_at <= now {
                    return self.write(wall, now);
                }
                match self.ask_at <= now {
                    true => self.send(Request::Get, now),
                    false => self.wait(free_at.min(self.ask_at)),
                }
            }
            Phase::Standby | Phase::Holding { .. } => self.write(wall, now),
        }
    }

    /// Until then, but no longer than to the term's end, which has to be noticed.
    fn wait(&mut self, until: BootTime) -> Step {
        self.is_fresh = false;
        let ends = self.permits_until().or(self.stop_by);
        Step::Wait(ends.map_or(until, |ends| ends.min(until)))
    }

    fn send(&mut self, request: Request, now: BootTime) -> Step {
        self.in_flight = Some(InFlight { is_write: request != Request::Get, sent: now });
        // As controller-runtime: time for a second attempt.
        let limit = self.options.timing.renew_deadline() / 2;
        let left = self.permits_until().or(self.stop_by).map_or(limit, |ends| now.until(ends));
        Step::Send(request, limit.min(left))
    }

    /// Acquires, renews or releases.
    fn write(&mut self, wall: Timestamp, now: BootTime) -> Step {
        let record = self.next_record(wall);
        let request = match &self.lease {
            Some(lease) => Request::Replace(lease.replaced(&record, &self.modules)),
            None => {
                let Options { namespace, name, .. } = &self.options;
                Request::Create(Lease::created(namespace, name, &record, &self.modules))
            }
        };
        self.send(request, now)
    }

    fn next_record(&self, wall: Timestamp) -> Record {
        let before = self.lease.as_ref().map(Lease::record).cloned().unwrap_or_default();
        if self.stop_by.is_some() {
            // client-go's `release`: one second, so that also those who look at the duration alone need not wait.
            return Record {
                holder: String::new(),
                duration: Duration::from_secs(1),
                acquired: Some(wall),
                renewed: Some(wall),
                transitions: before.transitions,
            };
        }
        let is_ours = before.holder == self.options.identity;
        let is_new = self.lease.is_none();
        Record {
            holder: self.options.identity.clone(),
            duration: self.options.timing.lease_duration(),
            acquired: if is_ours { before.acquired } else { Some(wall) },
            renewed: Some(wall),
            transitions: if is_ours || is_new { before.transitions } else { before.transitions.saturating_add(1) },
        }
    }

    /// Takes what came of the request that was sent.
    pub fn answered(&mut self, answer: Answer, now: BootTime) {
        let Some(InFlight { is_write, sent }) = self.in_flight.take() else { return };
        match (answer, is_write) {
            (Answer::Lease(lease), true) => self.written(lease, sent, now),
            (Answer::Lease(lease), false) => self.read(Some(lease), now),
            (Answer::Absent, false) => self.read(None, now),
            (Answer::Absent | Answer::Conflict, _) => self.write_failed(false, now),
            (Answer::Failed(problem), true) => {
                self.problem = Some(problem);
                self.write_failed(true, now);
            }
            (Answer::Failed(problem), false) => {
                self.problem = Some(problem);
                self.is_doubtful = true;
                self.not_before = now + self.retry();
            }
        }
    }

    fn written(&mut self, lease: Lease, sent: BootTime, now: BootTime) {
        self.observe(Some(lease), now);
        self.problem = None;
        self.may_be_ours = false;
        self.is_fresh = false;
        let timing = self.options.timing;
        self.not_before = (sent + timing.retry_period()).max(now);
        if self.stop_by.is_some() {
            self.phase = Phase::Ended(End::Released);
        } else if matches!(self.phase, Phase::Standby) && sent + timing.renew_deadline() <= now {
            // Answered too late to begin anything: the process stood still. The Lease is ours, so that the next write is a renewal.
            self.may_be_ours = true;
            self.not_before = now;
        } else {
            self.phase = Phase::Holding { sent };
        }
    }

    fn read(&mut self, lease: Option<Lease>, now: BootTime) {
        self.is_doubtful = false;
        self.is_fresh = true;
        let holder = lease.as_ref().map(|lease| lease.record().holder.clone());
        self.may_be_ours = holder.as_ref() == Some(&self.options.identity);
        self.observe(lease, now);
        if self.stop_by.is_some() && !self.may_be_ours {
            self.phase = Phase::Ended(End::Released);
        }
        if let Phase::Holding { .. } = self.phase
            && let Some(holder) = holder
            && holder != self.options.identity
        {
            let loss = if holder.is_empty() { Loss::Cleared } else { Loss::Taken(holder) };
            self.phase = Phase::Ended(End::Lost(loss));
        }
        // Of a Lease that is free, or would be, only the write that follows tells whether it can be taken.
        if matches!(self.phase, Phase::Standby) && now < self.expires() {
            self.problem = None;
        }
    }

    /// The Lease is to be read, at once unless it was read just before.
    fn write_failed(&mut self, may_have_happened: bool, now: BootTime) {
        self.may_be_ours |= may_have_happened;
        self.is_doubtful = true;
        self.not_before = if self.is_fresh { now + self.retry() } else { now };
        self.is_fresh = false;
    }

    /// Takes what a watch of the Lease showed: how it is, or that there is none. What came before is ignored where that can be told.
    pub fn saw(&mut self, lease: Option<Lease>, now: BootTime) {
        let known = self.lease.as_ref().map(Lease::version);
        if let (Some(lease), Some(known)) = (&lease, known)
            && known.is_newer_than(lease.version())
        {
            return;
        }
        match self.phase {
            Phase::Standby => {
                self.is_fresh = false;
                if self.observe(lease, now) && self.stop_by.is_none() {
                    self.not_before = now;
                }
            }
            // A write tells whether it is true: the server compares versions.
            Phase::Holding { .. } => {
                if lease.is_none_or(|lease| lease.record().holder != self.options.identity) {
                    self.not_before = now;
                }
            }
            Phase::Ended(_) => {}
        }
    }

    /// Remembers what the Lease is; whether its record is another one than before.
    fn observe(&mut self, lease: Option<Lease>, now: BootTime) -> bool {
        // A holder renews every retry period: after two without a change it is time to ask.
        let retry = self.options.timing.retry_period();
        self.ask_at = now + retry * 2 + retry.mul_f64(self.rng.f64());
        self.lease = lease;
        let Some(lease) = &self.lease else { return false };
        let modules = lease.modules().to_vec();
        match &mut self.observed {
            Some(observed) if observed.record == *lease.record() => {
                observed.modules = modules;
                false
            }
            observed => {
                *observed = Some(Observed { record: lease.record().clone(), modules, since: now });
                true
            }
        }
    }

    /// When the term of the last holder is over.
    fn expires(&self) -> BootTime {
        let Some(Observed { record, since, .. }) = &self.observed else { return BootTime::default() };
        match &record.holder {
            holder if holder.is_empty() => *since,
            // An answer of ours was lost.
            holder if *holder == self.options.identity => *since,
            _ => *since + record.duration,
        }
    }

    /// When the Lease may be taken.
    fn free_at(&self, now: BootTime, wall: Timestamp) -> BootTime {
        let expires = self.expires();
        let Some(Observed { record, since, .. }) = &self.observed else { return expires };
        if self.older().is_empty() {
            return expires;
        }
        // A renewal that was long ago when it was first seen counts from then, as far as clocks agree.
        let ago = record.renewed.and_then(|renewed| Duration::try_from(wall.duration_since(renewed)).ok());
        let left = HOLD_BACK.saturating_sub(ago.unwrap_or_default());
        expires.max((*since + HOLD_BACK).min(now + left))
    }

    /// Our modules that are older than those of the last holder, where that matters.
    fn older(&self) -> Vec<Older> {
        match &self.observed {
            Some(Observed { record, modules, .. })
                if !self.options.allow_older_module && record.holder != self.options.identity =>
            {
                modules::older(&self.modules, modules)
            }
            _ => Vec::new(),
        }
    }

    /// Standbys spread out (client-go `JitterUntil`), the holder does not.
    fn retry(&mut self) -> Duration {
        let retry = self.options.timing.retry_period();
        match self.phase {
            Phase::Standby => retry.mul_f64(1.0 + JITTER * self.rng.f64()),
            _ => retry,
        }
    }
}
