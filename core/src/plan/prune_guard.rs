//! The optional guard against pruning too much at once: an outcome that a broken module, or a broken input, may have caused is held
//! until it is confirmed.
//!
//! In come the children that an outcome would prune, and how many there are; out goes whether they are pruned now. Held is what leaves
//! a primary none of its several children, and what makes more than half of a module's children go within a minute. It is let through when
//! the module answers the same though it was shown something else, after [`HOLD`], or when somebody says so.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an outcome is held that nobody confirms.
pub const HOLD: Duration = Duration::from_secs(60);
/// The time within which a module's prunes are added up.
const WINDOW: Duration = Duration::from_secs(60);
/// Fewer children than this are never too many.
const MIN: usize = 2;

/// What one outcome would prune.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Uids of the children that would go.
    pub prunes: HashSet<Arc<str>>,
    /// How many children the primary has, those included.
    pub children: usize,
    /// Digest of what the module was shown of the primary and of those children.
    pub shown: u64,
    /// Whether somebody says that it is meant so.
    pub released: bool,
}

/// Why an outcome is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It leaves the primary none of its children.
    All,
    /// With it, more than half of the module's children would go within a minute.
    Half,
}

/// An outcome that is held; what is remembered of it from one pass of its key to the next.
#[derive(Clone, Debug)]
pub struct Held {
    prunes: HashSet<Arc<str>>,
    shown: u64,
    /// When it was first held.
    pub since: Instant,
    /// Why.
    pub why: Why,
}

impl Held {
    /// When it is let through if nobody confirms it before.
    pub fn until(&self) -> Instant {
        self.since + HOLD
    }
}

/// What one module pruned of late.
#[derive(Debug, Default)]
pub struct PruneGuard {
    window: Option<Window>,
}

/// A minute that begins with a prune.
#[derive(Debug)]
struct Window {
    began: Instant,
    /// How many children the module had then.
    children: usize,
    pruned: HashSet<Arc<str>>,
}

impl PruneGuard {
    /// Whether an outcome's prunes may be carried out now; if not, why. `held` is what the last call left for this key, `all` counts
    /// the children of all of the module's primaries.
    ///
    /// # Errors
    /// They are held.
    pub fn judge(
        &mut self,
        now: Instant,
        held: Option<Held>,
        asked: Asked,
        all: impl FnOnce() -> usize,
    ) -> Result<(), Held> {
        if asked.prunes.is_empty() {
            return Ok(());
        }
        let window = self.window(now, all);
        let held = match held.filter(|held| held.prunes == asked.prunes) {
            Some(held) if held.shown != asked.shown || now >= held.until() => None,
            Some(held) => Some(held),
            None => window.objection(&asked).map(|why| Held {
                prunes: asked.prunes.clone(),
                shown: asked.shown,
                since: now,
                why,
            }),
        };
        match held {
            Some(held) if !asked.released => Err(held),
            _ => {
                window.pruned.extend(asked.prunes);
                Ok(())
            }
        }
    }

    fn window(&mut self, now: Instant, all: impl FnOnce() -> usize) -> &mut Window {
        let running = self.window.take().filter(|window| now.saturating_duration_since(window.began) < WINDOW);
        self.window.insert(running.unwrap_or_else(|| Window { began: now, children: all(), pruned: HashSet::new() }))
    }
}

impl Window {
    fn objection(&self, asked: &Asked) -> Option<Why> {
        let fresh = asked.prunes.difference(&self.pruned).count();
        if fresh == 0 {
            // Let through before: carried out in part, or not at all.
            return None;
        }
        if asked.prunes.len() >= MIN && asked.prunes.len() == asked.children {
            return Some(Why::All);
        }
        let pruned = self.pruned.len() + fresh;
        (pruned >= MIN && pruned * 2 > self.children).then_some(Why::Half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What a primary of so many children would lose.
    fn asked(prunes: &[&str], children: usize) -> Asked {
        Asked { prunes: prunes.iter().map(|uid| Arc::from(*uid)).collect(), children, shown: 1, released: false }
    }

    /// The guard of a module with so many children in all.
    struct Bench {
        guard: PruneGuard,
        children: usize,
        now: Instant,
    }

    impl Bench {
        fn of(children: usize) -> Self {
            Self { guard: PruneGuard::default(), children, now: Instant::now() }
        }

        fn judge(&mut self, held: Option<Held>, asked: Asked) -> Result<(), Held> {
            self.guard.judge(self.now, held, asked, || self.children)
        }

        fn holds(&mut self, asked: Asked) -> Held {
            self.judge(None, asked).expect_err("it was not held")
        }
    }

    #[test]
    fn all_of_several_children_at_once_are_held_and_one_of_them_is_not() {
        let mut bench = Bench::of(100);
        assert_eq!(bench.holds(asked(&["a", "b"], 2)).why, Why::All);
        assert!(bench.judge(None, asked(&["a"], 2)).is_ok());
        assert!(bench.judge(None, asked(&["b"], 1)).is_ok(), "an only child is one child");
        assert!(bench.judge(None, asked(&[], 0)).is_ok());
    }

    #[test]
    fn more_than_half_of_a_modules_children_within_a_minute_are_held() {
        let mut bench = Bench::of(6);
        for uid in ["a", "b", "c"] {
            assert!(bench.judge(None, asked(&[uid], 2)).is_ok(), "{uid} is among half of them");
            bench.now += 10 * SECOND;
        }
        assert_eq!(bench.holds(asked(&["d"], 2)).why, Why::Half);
        // The same child again is no other one.
        assert!(bench.judge(None, asked(&["c"], 2)).is_ok());
        // The next minute counts anew, from what there is then.
        bench.children = 3;
        bench.now += 30 * SECOND;
        assert!(bench.judge(None, asked(&["d"], 2)).is_ok());
        assert_eq!(bench.holds(asked(&["e"], 2)).why, Why::Half);
    }

    #[test]
    fn a_module_may_prune_the_only_child_it_has() {
        assert!(Bench::of(1).judge(None, asked(&["a"], 1)).is_ok());
    }

    #[test]
    fn an_equal_answer_confirms_only_if_something_else_was_shown() {
        let mut bench = Bench::of(100);
        let held = bench.holds(asked(&["a", "b"], 2));
        bench.now += 30 * SECOND;
        let still = bench.judge(Some(held.clone()), asked(&["a", "b"], 2)).expect_err("nothing has changed");
        assert_eq!(still.since, held.since, "it is held no longer for having been asked again");
        assert!(bench.judge(Some(still), Asked { shown: 2, ..asked(&["a", "b"], 2) }).is_ok());
    }

    #[test]
    fn another_answer_is_held_anew() {
        let mut bench = Bench::of(100);
        let held = bench.holds(asked(&["a", "b"], 2));
        bench.now += 50 * SECOND;
        let other = bench.judge(Some(held), Asked { shown: 2, ..asked(&["a", "b", "c"], 3) });
        assert_eq!(other.expect_err("it is another answer").since, bench.now);
    }

    #[test]
    fn a_minute_or_a_word_lets_it_through() {
        let mut bench = Bench::of(100);
        let held = bench.holds(asked(&["a", "b"], 2));
        bench.now = held.until() - SECOND;
        let held = bench.judge(Some(held), asked(&["a", "b"], 2)).expect_err("a second is left");
        bench.now = held.until();
        assert!(bench.judge(Some(held), asked(&["a", "b"], 2)).is_ok());
        assert!(bench.judge(None, Asked { released: true, ..asked(&["c", "d"], 2) }).is_ok());
    }

    #[test]
    fn what_was_let_through_and_not_carried_out_is_let_through_again() {
        let mut bench = Bench::of(100);
        let released = Asked { released: true, ..asked(&["a", "b", "c"], 3) };
        assert!(bench.judge(None, released).is_ok());
        assert!(bench.judge(None, asked(&["a", "b"], 2)).is_ok(), "two could not be deleted at once");
    }
}
