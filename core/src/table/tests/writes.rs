use super::*;

#[test]
fn an_answered_write_is_seen_at_once_and_its_echo_wakes_nobody() {
    let mut bench = Bench::selecting();
    assert_eq!(origins(&bench.own_write(&draft("a", "u", 5))), [Origin::OwnWrite]);
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"));
    assert!(bench.upserted(&draft("a", "u", 5)).changes.is_empty());
    assert_eq!(origins(&bench.upserted(&draft("a", "u", 6))), [Origin::Watch]);
}

#[test]
fn an_echo_that_overtakes_the_answer_wakes_nobody_but_others() {
    let mut bench = Bench::selecting();
    bench.table.write_started(&name("a"));
    assert!(bench.upserted(&draft("a", "u", 5)).changes.is_empty(), "the key was woken by its own write");
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"), "a reader was kept from the news");
    assert_eq!(origins(&bench.own_write(&draft("a", "u", 5))), [Origin::OwnWrite]);
}

#[test]
fn a_change_by_another_before_our_write_wakes_though_our_write_already_shows_it() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 5));
    let effects = bench.upserted(&draft("a", "u", 4));
    assert_eq!(origins(&effects), [Origin::Watch], "the key that wrote 5 did not know of 4");
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"), "the table went back behind our own write");
}

#[test]
fn a_change_by_another_during_our_write_wakes_after_the_answer() {
    let mut bench = Bench::selecting();
    bench.table.write_started(&name("a"));
    assert!(bench.upserted(&draft("a", "u", 4)).changes.is_empty());
    assert_eq!(origins(&bench.own_write(&draft("a", "u", 5))), [Origin::Watch]);
}

#[test]
fn an_answer_that_comes_after_the_object_is_gone_brings_nothing_back() {
    let mut bench = Bench::selecting();
    bench.table.write_started(&name("a"));
    let _ = bench.upserted(&draft("a", "u", 5));
    let _ = bench.deleted(&draft("a", "u", 6).terminating());
    assert_eq!(origins(&bench.own_write(&draft("a", "u", 5))), [Origin::Watch]);
    assert_eq!(bench.shows("a"), None);
}

#[test]
fn what_we_deleted_stays_gone_while_the_watch_still_tells_of_its_life() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 5));
    assert_eq!(origins(&bench.table.own_delete(&name("a"), &"u".into())), [Origin::OwnWrite]);
    for stale in [4, 5] {
        assert!(bench.upserted(&draft("a", "u", stale)).changes.is_empty());
        assert_eq!(bench.shows("a"), None);
    }
    let effects = bench.deleted(&draft("a", "u", 6));
    assert!(effects.changes.is_empty() && effects.vanished.is_empty());
    assert!(bench.table.tombstones.is_empty(), "a tombstone was kept after the watch told of the deletion");
}

#[test]
fn a_delete_that_only_made_the_object_terminate_is_seen() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 5));
    let _ = bench.table.own_delete(&name("a"), &"u".into());
    let _ = bench.upserted(&draft("a", "u", 6).terminating());
    assert_eq!(bench.shows("a").as_deref(), Some("u@6"));
}

#[test]
fn a_new_object_of_the_name_is_no_echo_of_the_deleted_one() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 5));
    let _ = bench.table.own_delete(&name("a"), &"u".into());
    let _ = bench.own_write(&draft("a", "v", 8));
    assert!(bench.deleted(&draft("a", "u", 6)).vanished.is_empty());
    assert_eq!(bench.shows("a").as_deref(), Some("v@8"));
}

#[test]
fn a_lost_answer_makes_the_name_doubtful_until_it_is_read() {
    let mut bench = Bench::selecting();
    bench.table.write_started(&name("a"));
    let _ = bench.table.write_lost(&name("a"));
    assert!(bench.table.is_doubtful(&name("a")));
    let _ = bench.table.observed(draft("a", "u", 5).content(), None, bench.now);
    assert!(!bench.table.is_doubtful(&name("a")));
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"));

    let _ = bench.table.write_lost(&name("a"));
    let known = bench.table.known(&name("a"));
    let _ = bench.table.observed_absent(&name("a"), known.as_ref());
    assert!(!bench.table.is_doubtful(&name("a")));
    assert_eq!(bench.shows("a"), None);
}

#[test]
fn a_read_that_found_nothing_removes_only_what_was_known_when_it_was_sent() {
    let mut bench = Bench::selecting();
    let known = bench.table.known(&name("a"));
    let _ = bench.upserted(&draft("a", "u", 5));
    let _ = bench.table.observed_absent(&name("a"), known.as_ref());
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"));
}

#[test]
fn an_object_whose_name_a_read_found_taken_stays_gone_while_the_watch_still_tells_of_its_life() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 5));
    let _ = bench.table.observed(draft("a", "v", 7).unlabelled().content(), None, bench.now);
    assert_eq!(bench.shows("a"), None);
    let _ = bench.upserted(&draft("a", "u", 4));
    assert_eq!(bench.shows("a"), None, "the table went back behind our own write");
}

#[test]
fn a_read_object_that_nobody_watches_is_not_kept() {
    let mut bench = Bench::selecting();
    let _ = bench.table.observed(draft("a", "u", 5).unlabelled().content(), None, bench.now);
    assert_eq!(bench.shows("a"), None, "it would grow old unseen");
}

#[test]
fn versions_that_cannot_be_compared_are_fenced_until_the_echo_or_the_timeout() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", "opaque-2"));
    let _ = bench.upserted(&draft("a", "u", "opaque-1"));
    assert_eq!(bench.shows("a").as_deref(), Some("u@opaque-2"));
    let _ = bench.upserted(&draft("a", "u", "opaque-2"));
    let _ = bench.upserted(&draft("a", "u", "opaque-3"));
    assert_eq!(bench.shows("a").as_deref(), Some("u@opaque-3"));

    let _ = bench.own_write(&draft("a", "u", "opaque-4"));
    bench.later(FENCE_TIMEOUT);
    let _ = bench.upserted(&draft("a", "u", "opaque-5"));
    assert_eq!(bench.shows("a").as_deref(), Some("u@opaque-5"), "the fence froze the object");
}

#[test]
fn children_are_found_by_their_controller_and_follow_it() {
    let mut bench = Bench::selecting();
    for object in [draft("b", "u1", 2), draft("a", "u2", 3), draft("c", "u3", 4).owned_by("other")] {
        let _ = bench.upserted(&object);
    }
    let names = |bench: &Bench, owner: &str| -> Vec<String> {
        bench.table.children(owner).iter().map(|child| child.meta.name.name.to_string()).collect()
    };
    assert_eq!(names(&bench, "parent"), ["a", "b"]);
    let _ = bench.upserted(&draft("b", "u1", 5).owned_by("other"));
    let _ = bench.deleted(&draft("a", "u2", 6).terminating());
    assert_eq!(names(&bench, "parent"), [""; 0]);
    assert_eq!(names(&bench, "other"), ["b", "c"]);
}

#[test]
fn an_answer_that_is_older_than_what_was_known_shows_that_the_server_went_back_in_time() {
    let mut bench = Bench::selecting();
    let _ = bench.upserted(&draft("a", "u", 500));
    bench.table.write_started(&name("a"));
    assert!(bench.own_write(&draft("a", "u", 400)).went_back);

    // What came in while the write was under way proves nothing, nor does a write that changed nothing.
    bench.table.write_started(&name("b"));
    let _ = bench.upserted(&draft("b", "v", 600));
    assert!(!bench.own_write(&draft("b", "v", 590)).went_back);
    bench.table.write_started(&name("b"));
    assert!(!bench.own_write(&draft("b", "v", 600)).went_back);

    let known = bench.table.known(&name("b"));
    assert!(bench.table.observed(draft("b", "v", 450).content(), known.as_ref(), bench.now).went_back);
}

#[test]
fn what_we_cut_loose_is_gone_at_once_and_its_earlier_states_bring_nothing_back() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 5));
    assert_eq!(origins(&bench.own_write(&draft("a", "u", 6).unlabelled())), [Origin::OwnWrite]);
    assert_eq!(bench.shows("a"), None);
    for stale in [4, 5] {
        assert!(bench.upserted(&draft("a", "u", stale)).changes.is_empty());
        assert_eq!(bench.shows("a"), None);
    }
    let effects = bench.deleted(&draft("a", "u", 6));
    assert!(effects.changes.is_empty() && effects.vanished.is_empty());
    assert!(bench.table.tombstones.is_empty(), "a tombstone was kept after the watch told that the object left");
    let _ = bench.upserted(&draft("a", "u", 9));
    assert_eq!(bench.shows("a").as_deref(), Some("u@9"), "it was handed back");
}

#[test]
fn what_left_the_watch_before_the_answer_that_cut_it_loose_can_be_handed_back() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 5));
    bench.table.write_started(&name("a"));
    let _ = bench.deleted(&draft("a", "u", 7));
    let _ = bench.own_write(&draft("a", "u", 7).unlabelled());
    assert_eq!(bench.shows("a"), None);
    let _ = bench.upserted(&draft("a", "u", 9));
    assert_eq!(bench.shows("a").as_deref(), Some("u@9"));
}

#[test]
fn a_name_that_two_write_at_once_keeps_its_news_for_both() {
    let mut bench = Bench::selecting();
    bench.table.write_started(&name("a"));
    assert!(bench.upserted(&draft("a", "u", 4)).changes.is_empty());
    bench.table.write_started(&name("a"));
    assert!(bench.own_write(&draft("a", "u", 5)).changes.is_empty(), "one is still on its way");
    assert_eq!(origins(&bench.table.write_failed(&name("a"))), [Origin::Watch]);
    assert!(bench.table.writes.is_empty());
}
