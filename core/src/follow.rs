//! When the content of a file that others write may be taken: once it has come to rest.
//!
//! In come looks at the file, whenever something may have happened to it; out comes what has to be read, when to look again, and the
//! moment at which a content may be taken. Guaranteed: what is taken was found by two looks [`REST`] apart, and the file's stamp (its
//! size, times and inode) was the same at both; what the file holds when its writers are done is taken in the end.

use std::time::{Duration, Instant};

/// How long a file must have been left alone.
pub const REST: Duration = Duration::from_millis(300);

/// Follows one file. `S` is its stamp, which a write or a rename changes; `C` stands for its content, such as a digest.
#[derive(Clone, Debug)]
pub struct Follower<S, C> {
    /// Of the file as its content was last taken.
    taken: Option<S>,
    moving: Option<Moving<S, C>>,
}

/// What was found first, and may stay.
#[derive(Clone, Debug)]
struct Moving<S, C> {
    stamp: S,
    content: C,
    since: Instant,
}

impl<S, C> Default for Follower<S, C> {
    /// Nothing is known of the file: its content, whatever it is, will be taken.
    fn default() -> Self {
        Self { taken: None, moving: None }
    }
}

impl<S: PartialEq, C: PartialEq> Follower<S, C> {
    /// Whether a file with this stamp has to be read: nothing was taken of it yet as it is now.
    pub fn is_news(&mut self, stamp: &S) -> bool {
        if self.taken.as_ref() == Some(stamp) {
            // Put back before anybody could make something of what was there meanwhile.
            self.moving = None;
            return false;
        }
        true
    }

    /// Tells what a file was found to hold that had this stamp before it was read; true if that may be taken now.
    pub fn read(&mut self, now: Instant, stamp: S, content: C) -> bool {
        match &self.moving {
            Some(found) if found.stamp == stamp && found.content == content => {
                if now.saturating_duration_since(found.since) < REST {
                    return false;
                }
                self.moving = None;
                self.taken = Some(stamp);
                true
            }
            _ => {
                self.moving = Some(Moving { stamp, content, since: now });
                false
            }
        }
    }

    /// When to look again though nothing is known to have happened.
    pub fn due(&self) -> Option<Instant> {
        self.moving.as_ref().map(|found| found.since + REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file, its writers and who follows it, in a time of their own.
    struct World {
        now: Instant,
        follower: Follower<u32, &'static str>,
        stamp: u32,
        content: &'static str,
    }

    impl World {
        fn with(content: &'static str) -> Self {
            Self { now: Instant::now(), follower: Follower::default(), stamp: 0, content }
        }

        fn write(&mut self, content: &'static str) {
            self.stamp += 1;
            self.content = content;
        }

        fn after(&mut self, time: Duration) -> Option<&'static str> {
            self.now += time;
            if !self.follower.is_news(&self.stamp) {
                return None;
            }
            self.follower.read(self.now, self.stamp, self.content).then_some(self.content)
        }

        /// Looks when it is time to, until it is time no more.
        fn settle(&mut self) -> Option<&'static str> {
            let mut taken = self.after(Duration::ZERO);
            while let Some(due) = self.follower.due() {
                taken = self.after(due - self.now).or(taken);
            }
            taken
        }
    }

    #[test]
    fn a_content_is_taken_once_after_it_was_left_alone() {
        let mut world = World::with("a");
        assert_eq!(world.after(Duration::ZERO), None, "one look can't tell");
        assert_eq!(world.after(REST / 2), None, "too soon");
        assert_eq!(world.after(REST / 2), Some("a"));
        assert_eq!(world.settle(), None, "it was taken already");
        world.write("b");
        assert_eq!(world.settle(), Some("b"));
    }

    #[test]
    fn what_a_slow_writer_leaves_half_done_is_not_taken() {
        let mut world = World::with("a");
        world.settle();
        for half in ["b", "bb", "bbb"] {
            world.write(half);
            assert_eq!(world.after(REST * 2 / 3), None);
        }
        assert_eq!(world.settle(), Some("bbb"));
    }

    #[test]
    fn a_write_that_no_stamp_shows_is_seen_by_its_content() {
        let mut world = World::with("a");
        world.settle();
        world.write("b");
        assert_eq!(world.after(Duration::ZERO), None);
        // Within the resolution of the file system's clock.
        world.content = "c";
        assert_eq!(world.after(REST), None);
        assert_eq!(world.after(REST), Some("c"));
    }

    #[test]
    fn a_touch_is_taken_as_well() {
        let mut world = World::with("a");
        world.settle();
        world.write("a");
        assert_eq!(world.settle(), Some("a"), "a touch asks for another attempt");
    }

    #[test]
    fn a_file_that_was_put_back_is_left() {
        let mut world = World::with("a");
        world.settle();
        let before = world.stamp;
        world.write("b");
        assert_eq!(world.after(Duration::ZERO), None);
        (world.stamp, world.content) = (before, "a");
        assert_eq!(world.after(REST), None);
        assert_eq!(world.follower.due(), None);
    }

    #[test]
    fn whatever_the_writers_do_the_last_content_is_taken_and_none_too_early() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut world = World::with("first");
            let mut written = world.now;
            for _ in 0..random.usize(1..40) {
                if random.bool() {
                    world.write(random.choice(["a", "b", "c", "d"]).expect("there are some"));
                    written = world.now;
                }
                if let Some(taken) = world.after(Duration::from_millis(random.u64(0..500))) {
                    assert_eq!(taken, world.content, "seed {seed}");
                    assert!(world.now - written >= REST, "seed {seed}: taken too early");
                }
            }
            world.write("last");
            assert_eq!(world.settle(), Some("last"), "seed {seed}");
        }
    }
}
