//! How often a child that somebody keeps changing back is set right.
//!
//! Two controllers that fight over a field would write for ever. A child has five corrections free, then one per 2^n
//! seconds; after ten quiet minutes it starts over. Time is passed in.

use std::time::{Duration, Instant};

/// Corrections without a wait.
const FREE: u32 = 5;
/// The longest wait doubles no further: 2^10 s is seventeen minutes.
const DOUBLINGS_MAX: u32 = 10;
/// The fight is over when so long after the end of the last wait nothing had to be corrected.
const QUIET: Duration = Duration::from_secs(600);

/// The corrections of one child. Kept for as long as its key is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevertBudget {
    spent: u32,
    last: Option<Instant>,
}

impl RevertBudget {
    /// Whether a correction may be made now: if not, when.
    ///
    /// # Errors
    /// The time from which on one may be made.
    pub fn check(&self, now: Instant) -> Result<(), Instant> {
        match self.next(now) {
            Some(at) if now < at => Err(at),
            _ => Ok(()),
        }
    }

    /// Counts a correction that is being made. Only what corrects a drift counts, not a new wish of the module.
    pub fn spend(&mut self, now: Instant) {
        if self.is_quiet(now) {
            self.spent = 0;
        }
        self.spent = self.spent.saturating_add(1);
        self.last = Some(now);
    }

    fn next(&self, now: Instant) -> Option<Instant> {
        if self.is_quiet(now) { None } else { Some(self.last? + self.wait()) }
    }

    /// What has to pass after the last correction.
    fn wait(&self) -> Duration {
        match self.spent.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(over) => Duration::from_secs(1 << over.min(DOUBLINGS_MAX)),
        }
    }

    fn is_quiet(&self, now: Instant) -> bool {
        // A wait that is longer than the quiet time must not end the fight by itself.
        self.last.is_some_and(|last| now.saturating_duration_since(last) >= self.wait().saturating_add(QUIET))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Times after the start at which somebody who changes the child back at once is corrected.
    fn corrections(until: Duration) -> Vec<u64> {
        let start = Instant::now();
        let (mut budget, mut now, mut made) = (RevertBudget::default(), start, Vec::new());
        while now - start < until {
            match budget.check(now) {
                Ok(()) => {
                    budget.spend(now);
                    made.push((now - start).as_secs());
                }
                Err(at) => now = at,
            }
        }
        made
    }

    #[test]
    fn five_are_free_then_the_waits_double() {
        assert_eq!(corrections(100 * SECOND), [0, 0, 0, 0, 0, 1, 3, 7, 15, 31, 63]);
    }

    #[test]
    fn a_fight_of_a_day_costs_less_than_a_hundred_writes() {
        assert!(corrections(86_400 * SECOND).len() < 100);
    }

    #[test]
    fn after_ten_quiet_minutes_it_starts_over() {
        let start = Instant::now();
        let mut budget = RevertBudget::default();
        (0..7).for_each(|_| budget.spend(start));
        assert_eq!(budget.check(start), Err(start + 4 * SECOND));
        let later = start + 604 * SECOND;
        for _ in 0..5 {
            assert_eq!(budget.check(later), Ok(()));
            budget.spend(later);
        }
        assert_eq!(budget.check(later), Err(later + SECOND));
    }

    proptest! {
        #[test]
        fn in_any_ten_minutes_a_fight_gets_few_writes(waits in proptest::collection::vec(0_u64..120_000, 1..200)) {
            let start = Instant::now();
            let (mut budget, mut now, mut made) = (RevertBudget::default(), start, Vec::new());
            for wait in waits {
                now += Duration::from_millis(wait);
                if budget.check(now).is_ok() {
                    budget.spend(now);
                    made.push(now);
                }
            }
            // Five free ones, and one for each doubling that fits into ten minutes.
            let busiest = made.iter().map(|from| made.iter().filter(|at| **at >= *from && **at - *from < QUIET).count()).max();
            prop_assert!(busiest.unwrap_or(0) <= 15, "{busiest:?}");
        }
    }
}
