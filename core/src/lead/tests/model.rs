//! Many processes, one server, and a network that delays, reorders and loses, while processes stand still, die and have clocks of their own:
//! a term never begins while another's Lease may be thought to be held, and when all is well again somebody leads.

use super::server::Server;
use super::*;
use proptest::prelude::*;

const MILLI: Duration = Duration::from_millis(1);
/// Long enough for what is under way to arrive, a term to expire and the next to begin.
const CALM: u64 = 90_000;

/// What befalls one process at a step of the model.
#[derive(Clone, Debug)]
enum Fate {
    /// It acts; what it sends takes so long there and back, in milliseconds.
    Acts { there: u16, back: u16 },
    /// It acts; what it sends does not arrive.
    LosesRequest,
    /// It acts; the answer does not arrive.
    LosesAnswer { there: u16 },
    /// It stands still for so long.
    Pauses(u16),
    /// A watch shows the Lease as it was so many changes ago.
    Hears { ago: usize },
    /// It is asked to stop.
    Stops,
    /// It dies, and another takes its place.
    Dies,
    /// Somebody labels the Lease.
    Labels,
}

fn fate() -> impl Strategy<Value = Fate> {
    let delay = prop_oneof![4 => 0..50u16, 2 => 0..3_000u16, 1 => 0..30_000u16];
    prop_oneof![
        12 => (delay.clone(), delay.clone()).prop_map(|(there, back)| Fate::Acts { there, back }),
        2 => Just(Fate::LosesRequest),
        3 => delay.prop_map(|there| Fate::LosesAnswer { there }),
        2 => (0..40_000u16).prop_map(Fate::Pauses),
        4 => (0..3usize).prop_map(|ago| Fate::Hears { ago }),
        1 => Just(Fate::Stops),
        1 => Just(Fate::Dies),
        1 => Just(Fate::Labels),
    ]
}

struct Process {
    elector: Elector,
    /// What its clocks are ahead of the model's.
    boot: Duration,
    wall: Timestamp,
    /// When it acts next, by the model's clock.
    wakes: u64,
    /// An answer that it waits for: when, or None where the time for it ran out.
    awaits: Option<(u64, Answer)>,
    /// By the model's clock: until when its Lease can't be anybody else's, as it knows.
    holds_until: Option<u64>,
}

impl Process {
    fn new(number: u32) -> Self {
        let identity = format!("process-{number}");
        let elector = Elector::new(Options { seed: number.into(), ..options(&identity) });
        // No two processes agree on either clock.
        let boot = Duration::from_secs(u64::from(number) * 977);
        let hours = i64::from(number % 7) * 5 - 15;
        let wall = wall() + jiff::SignedDuration::from_hours(hours);
        Self { elector, boot, wall, wakes: 0, awaits: None, holds_until: None }
    }

    fn now(&self, time: u64) -> BootTime {
        BootTime::new(self.boot + time as u32 * MILLI)
    }

    fn permits(&self, time: u64) -> bool {
        self.elector.permits_until().is_some_and(|until| self.now(time) < until)
    }
}

/// A request that arrives at the server at a time, and what becomes of the answer.
struct Sent {
    arrives: u64,
    request: Request,
    by: String,
    sent: u64,
    /// When the answer is back; None: never.
    back: Option<u64>,
}

struct World {
    time: u64,
    server: Server,
    /// The Lease after each change.
    history: Vec<Option<Lease>>,
    processes: Vec<Process>,
    born: u32,
    sent: Vec<Sent>,
}

impl World {
    fn new(count: usize) -> Self {
        let processes = (0..count as u32).map(Process::new).collect();
        Self {
            time: 0,
            server: Server::default(),
            history: vec![None],
            processes,
            born: count as u32,
            sent: Vec::new(),
        }
    }

    /// Lets time pass to the next thing that happens to this process, and lets that happen.
    fn step(&mut self, who: usize, fate: &Fate) {
        let process = &self.processes[who];
        let due = process.awaits.as_ref().map_or(process.wakes, |(at, _)| *at);
        self.pass_until(due.max(self.time));
        let now = self.processes[who].now(self.time);
        let process = &mut self.processes[who];
        if let Some((_, answer)) = process.awaits.take() {
            process.elector.answered(answer, now);
        }
        match fate {
            Fate::Acts { there, back } => {
                let back = Some(u64::from(*there) + u64::from(*back));
                self.act(who, Some(u64::from(*there)), back);
            }
            Fate::LosesRequest => self.act(who, None, None),
            Fate::LosesAnswer { there } => self.act(who, Some(u64::from(*there)), None),
            Fate::Pauses(length) => process.wakes = self.time + u64::from(*length),
            Fate::Hears { ago } => {
                let seen = self.history[self.history.len().saturating_sub(1 + ago)].clone();
                process.elector.saw(seen, now);
                self.act(who, Some(1), Some(2));
            }
            Fate::Stops => {
                process.elector.stop(now);
                process.holds_until = None;
                self.act(who, Some(1), Some(2));
            }
            Fate::Dies => self.replace(who),
            Fate::Labels => {
                if self.server.lease().is_some() {
                    let time = self.time;
                    self.server
                        .edit(|lease| lease["metadata"]["labels"] = serde_json::json!({ "at": time.to_string() }));
                    self.history.push(self.server.lease());
                }
            }
        }
        self.check();
    }

    fn act(&mut self, who: usize, there: Option<u64>, back: Option<u64>) {
        let time = self.time;
        let process = &mut self.processes[who];
        match process.elector.next(process.now(time), process.wall + time as u32 * MILLI) {
            Step::Wait(until) => {
                let wait = process.now(time).until(until).as_millis() as u64;
                process.wakes = time + wait.max(1);
            }
            Step::Send(request, limit) => {
                let gives_up = time + limit.as_millis() as u64;
                process.wakes = time;
                process.awaits = Some((gives_up, Answer::Failed("no answer".into())));
                if let Some(there) = there {
                    let back = back.map(|back| time + back).filter(|back| *back < gives_up);
                    let by = process.elector.options.identity.clone();
                    self.sent.push(Sent { arrives: time + there, request, by, sent: time, back });
                }
            }
            Step::End(_) => self.replace(who),
        }
    }

    /// The server carries out what arrives until then.
    fn pass_until(&mut self, time: u64) {
        self.sent.sort_by_key(|sent| std::cmp::Reverse(sent.arrives));
        while self.sent.last().is_some_and(|sent| sent.arrives <= time) {
            let Some(Sent { arrives, request, by, sent, back }) = self.sent.pop() else { return };
            let before = self.server.lease();
            let answer = self.server.serve(&request);
            let is_change = request != Request::Get && matches!(answer, Answer::Lease(_));
            if is_change {
                self.history.push(self.server.lease());
                self.judge(before.as_ref(), arrives);
            }
            // Dead by now: its answers are nobody's.
            let mut living = self.processes.iter_mut();
            let Some(process) = living.find(|process| process.elector.options.identity == by) else { continue };
            if let Some(back) = back {
                if let (true, Answer::Lease(lease)) = (is_change, &answer)
                    && !lease.record().holder.is_empty()
                {
                    process.holds_until = Some(sent + 15_000);
                }
                process.awaits = Some((back, answer));
            }
        }
        self.time = time;
    }

    /// Who becomes the holder at this moment must not do so while another has reason to think that it still is.
    fn judge(&self, before: Option<&Lease>, at: u64) {
        let holder = |lease: Option<&Lease>| lease.map(|lease| lease.record().holder.clone()).unwrap_or_default();
        let (old, new) = (holder(before), holder(self.server.lease().as_ref()));
        if new == old || new.is_empty() {
            return;
        }
        for process in &self.processes {
            if process.elector.options.identity != new
                && let Some(until) = process.holds_until
            {
                assert!(until <= at, "{new} took the Lease at {at} though {old} held it until {until}");
            }
        }
    }

    fn check(&self) {
        let permitted: Vec<&str> = self
            .processes
            .iter()
            .filter(|process| process.permits(self.time))
            .map(|process| process.elector.options.identity.as_str())
            .collect();
        assert!(permitted.len() <= 1, "at {} all of these may write: {permitted:?}", self.time);
    }

    fn replace(&mut self, who: usize) {
        self.born += 1;
        let mut process = Process::new(self.born);
        process.wakes = self.time;
        self.processes[who] = process;
    }

    fn is_led(&self) -> bool {
        self.processes.iter().any(|process| process.permits(self.time))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn never_two_may_write_at_once_and_somebody_does_in_the_end(
        count in 2..5usize,
        fates in prop::collection::vec((any::<prop::sample::Index>(), fate()), 1..300),
    ) {
        let mut world = World::new(count);
        for (who, fate) in &fates {
            let who = who.index(count);
            world.step(who, fate);
        }
        let calm_since = world.time;
        while world.time < calm_since + CALM {
            let due = |process: &Process| process.awaits.as_ref().map_or(process.wakes, |(at, _)| *at);
            let next = (0..count).min_by_key(|who| due(&world.processes[*who])).unwrap_or(0);
            world.step(next, &Fate::Acts { there: 5, back: 5 });
        }
        prop_assert!(world.is_led(), "nobody leads though all is well");
    }
}
