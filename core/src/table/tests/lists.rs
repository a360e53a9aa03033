use super::*;

#[test]
fn a_child_that_left_the_selection_stays_until_somebody_looked() {
    let mut bench = Bench::selecting();
    let _ = bench.upserted(&draft("a", "u", 5));
    let effects = bench.deleted(&draft("a", "u", 6));
    assert!(effects.changes.is_empty(), "the module saw a gap");
    let vanished = Vanished { name: name("a"), uid: "u".into(), owner: Some("parent".into()) };
    assert_eq!(effects.vanished, [vanished]);
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"));

    // Its label was stripped: the read shows the version of the DELETED event.
    let effects = bench.table.vanished_found(draft("a", "u", 6).unlabelled().content(), bench.now);
    assert_eq!(origins(&effects), [Origin::Watch]);
    assert_eq!(bench.shows("a").as_deref(), Some("u@6"));
    // It is restored; the DELETED of before can't come again, and a later one is a new question.
    let _ = bench.own_write(&draft("a", "u", 7));
    assert_eq!(bench.deleted(&draft("a", "u", 9)).vanished.len(), 1);
}

#[test]
fn a_child_that_is_really_deleted_goes_with_the_answer() {
    let mut bench = Bench::selecting();
    let _ = bench.upserted(&draft("a", "u", 5));
    let _ = bench.deleted(&draft("a", "u", 6));
    let known = bench.table.known(&name("a"));
    let effects = bench.table.observed_absent(&name("a"), known.as_ref());
    assert_eq!(origins(&effects), [Origin::Watch]);
    assert_eq!(bench.shows("a"), None);
    assert!(bench.table.tombstones.is_empty(), "the watch will not tell of it again");
}

#[test]
fn a_terminating_child_and_one_whose_parent_is_gone_are_not_asked_for() {
    let mut bench = Bench::selecting();
    let _ = bench.upserted(&draft("a", "u", 5).terminating());
    assert_eq!(origins(&bench.deleted(&draft("a", "u", 6).terminating())), [Origin::Watch]);

    let _ = bench.upserted(&draft("b", "v", 7));
    let _ = bench.deleted(&draft("b", "v", 8));
    assert_eq!(origins(&bench.table.presumed_gone(&name("b"), &"v".into())), [Origin::Watch]);
    assert_eq!(bench.shows("b"), None);
}

#[test]
fn a_stripped_label_that_was_restored_before_its_event_came_is_history() {
    let mut bench = Bench::selecting();
    let _ = bench.own_write(&draft("a", "u", 8));
    let effects = bench.deleted(&draft("a", "u", 6));
    assert!(effects.vanished.is_empty());
    assert_eq!(bench.shows("a").as_deref(), Some("u@8"));
}

#[test]
fn a_watch_without_selector_tells_a_stripped_label_from_a_deletion_itself() {
    let mut bench = Bench::of_everything();
    let (by_label, _) = bench.table.join_watch(&Scope { selected: true, ..Scope::default() });
    let _ = bench.upserted(&draft("a", "u", 5));
    let _ = bench.table.upserted(by_label, draft("a", "u", 5).content(), bench.now);
    assert!(bench.table.deleted(by_label, &draft("a", "u", 6).content()).vanished.is_empty());
    let _ = bench.upserted(&draft("a", "u", 6).unlabelled());
    assert_eq!(bench.shows("a").as_deref(), Some("u@6"));
    assert_eq!(origins(&bench.deleted(&draft("a", "u", 7).unlabelled())), [Origin::Watch]);
    assert_eq!(bench.shows("a"), None);
}

#[test]
fn a_list_deletes_what_it_lacks_but_nothing_newer_than_itself() {
    let mut bench = Bench::of_everything();
    let _ = bench.upserted(&draft("old", "u1", 5));
    bench.table.list_started(bench.watch, true);
    let _ = bench.own_write(&draft("new", "u2", 9));
    let _ = bench.upserted(&draft("other", "u3", 7));
    let effects = bench.table.list_completed(bench.watch, &version(8), bench.now);
    assert_eq!(bench.shows("old"), None);
    assert_eq!(bench.shows("new").as_deref(), Some("u2@9"), "a list older than our write deleted it");
    assert_eq!(bench.shows("other").as_deref(), Some("u3@7"));
    assert_eq!(effects.changes.len(), 1);
}

#[test]
fn a_list_touches_only_what_its_watch_selects() {
    let mut bench = Bench::with(Scope { namespace: Some("elsewhere".into()), ..Scope::default() });
    let (other, _) = bench.table.join_watch(&Scope { namespace: Some("ns".into()), ..Scope::default() });
    let _ = bench.table.upserted(other, draft("a", "u", 5).content(), bench.now);
    assert!(bench.list(9, &[]).changes.is_empty());
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"));
    assert_eq!(bench.table.names(other).count(), 1);
    assert_eq!(bench.table.names(bench.watch).count(), 0);
}

#[test]
fn children_that_a_relist_lacks_are_asked_for_once_each() {
    let mut bench = Bench::selecting();
    let _ = bench.upserted(&draft("a", "u", 5));
    let effects = bench.list(9, &[]);
    assert!(effects.changes.is_empty());
    assert_eq!(effects.vanished.len(), 1);
    assert_eq!(bench.shows("a").as_deref(), Some("u@5"));
}

#[test]
fn a_server_that_went_back_in_time_starts_a_new_epoch() {
    let mut bench = Bench::of_everything();
    let _ = bench.upserted(&draft("a", "u1", 500));
    let _ = bench.own_write(&draft("b", "u2", 600));
    let _ = bench.upserted(&draft("c", "u3", 700));
    let _ = bench.upserted(&draft("d", "u4", 420));
    let restored = [draft("a", "u1", 400), draft("b", "u2", 410), draft("d", "u4", 420)];
    assert!(bench.list(450, &restored).went_back);
    let effects = bench.list(451, &restored);
    assert!(!effects.went_back);
    assert_eq!(bench.shows("a").as_deref(), Some("u1@400"));
    assert_eq!(bench.shows("b").as_deref(), Some("u2@410"), "the fence outlived its epoch");
    assert_eq!(bench.shows("c"), None);
    let is_told = |name: &str| effects.changes.iter().any(|change| *change.name.name == *name);
    assert!(is_told("d"), "version 420 need not be the 420 of before");
    let _ = bench.upserted(&draft("a", "u1", 451));
    assert_eq!(bench.shows("a").as_deref(), Some("u1@451"), "the table froze");
}

#[test]
fn a_new_epoch_holds_for_the_other_watches_too() {
    let mut bench = Bench::of_everything();
    let (single, _) = bench.table.join_watch(&Scope::single(&name("a")));
    bench.table.list_started(single, true);
    let _ = bench.table.list_completed(single, &version(900), bench.now);
    // The first list after the restore is that of everything; what the single watch once told must not stand against
    // it.
    assert!(bench.list(450, &[draft("a", "u1", 400)]).went_back);
    assert!(!bench.list(450, &[draft("a", "u1", 400)]).went_back);
    assert_eq!(bench.shows("a").as_deref(), Some("u1@400"));
    // The single watch lists: not again a new epoch, and nothing of the new one is lost.
    bench.table.list_started(single, true);
    let _ = bench.table.upserted(single, draft("a", "u1", 400).content(), bench.now);
    assert!(!bench.table.list_completed(single, &version(451), bench.now).went_back);
    assert_eq!(bench.shows("a").as_deref(), Some("u1@400"));
}

#[test]
fn a_server_that_has_come_past_our_version_since_it_went_back_is_noticed_by_what_it_lists() {
    let mut bench = Bench::of_everything();
    let _ = bench.upserted(&draft("a", "u1", 90));
    let _ = bench.own_write(&draft("b", "u2", 95));
    assert!(bench.list(400, &[draft("a", "u1", 40), draft("b", "u2", 95)]).went_back);
    let _ = bench.list(401, &[draft("a", "u1", 40)]);
    assert_eq!(bench.shows("a").as_deref(), Some("u1@40"));
    assert_eq!(bench.shows("b"), None);
}

#[test]
fn a_streamed_list_may_begin_with_an_older_state() {
    let mut bench = Bench::of_everything();
    let _ = bench.upserted(&draft("a", "u", 80));
    let _ = bench.own_write(&draft("a", "u", 95));
    assert!(!bench.list(96, &[draft("a", "u", 80), draft("a", "u", 95)]).went_back);
    // And one that is older than our write as a whole shows an older state until its end.
    let _ = bench.own_write(&draft("a", "u", 99));
    bench.table.list_started(bench.watch, false);
    let _ = bench.upserted(&draft("a", "u", 95));
    assert!(!bench.table.list_completed(bench.watch, &version(97), bench.now).went_back);
    assert_eq!(bench.shows("a").as_deref(), Some("u@99"));
}

#[test]
fn an_epoch_that_another_type_discovered_replaces_everything_and_is_discovered_once() {
    let mut bench = Bench::of_everything();
    let _ = bench.upserted(&draft("a", "u1", 90));
    let _ = bench.upserted(&draft("b", "u2", 95));
    let _ = bench.table.own_delete(&name("b"), &"u2".into());
    bench.table.list_started(bench.watch, true);
    bench.table.start_epoch();
    for object in [draft("a", "u1", 40), draft("b", "u2", 41)] {
        let _ = bench.upserted(&object);
    }
    assert!(!bench.table.list_completed(bench.watch, &version(50), bench.now).went_back);
    assert_eq!(bench.shows("a").as_deref(), Some("u1@40"));
    assert_eq!(bench.shows("b").as_deref(), Some("u2@41"), "what was deleted is there again");
}

#[test]
fn answers_from_before_the_epoch_tell_nothing() {
    let mut bench = Bench::of_everything();
    for object in [draft("a", "u1", 80), draft("b", "u2", 81), draft("c", "u3", 82)] {
        let _ = bench.upserted(&object);
    }
    bench.table.write_started(&name("a"));
    bench.table.write_started(&name("b"));
    let known = bench.table.known(&name("c"));
    bench.table.start_epoch();
    let _ = bench.own_write(&draft("a", "u1", 90));
    let _ = bench.table.own_delete(&name("b"), &"u2".into());
    let _ = bench.table.observed_absent(&name("c"), known.as_ref());
    let restored = [draft("a", "u1", 40), draft("b", "u2", 41), draft("c", "u3", 42)];
    assert!(!bench.list(50, &restored).went_back);
    for (object, shown) in [("a", "u1@40"), ("b", "u2@41"), ("c", "u3@42")] {
        assert_eq!(bench.shows(object).as_deref(), Some(shown));
    }
    assert!(bench.table.is_doubtful(&name("a")) && bench.table.is_doubtful(&name("b")));
}

#[test]
fn a_list_from_a_lagging_cache_is_no_new_epoch() {
    let mut bench = Bench::of_everything();
    let _ = bench.own_write(&draft("a", "u", 9));
    bench.table.list_started(bench.watch, false);
    let effects = bench.table.list_completed(bench.watch, &version(5), bench.now);
    assert!(!effects.went_back && effects.changes.is_empty());
    assert_eq!(bench.shows("a").as_deref(), Some("u@9"));
}

#[test]
fn an_unreadable_object_is_there_and_becomes_readable_again() {
    let mut bench = Bench::of_everything();
    let unreadable = Unreadable {
        name: name("a"),
        uid: Some("u".into()),
        resource_version: Some(version(5)),
        message: "invalid labels".into(),
    };
    let effects = bench.table.upserted(bench.watch, Content::Unreadable(Arc::new(unreadable)), bench.now);
    assert_eq!(effects.changes.len(), 1);
    assert_eq!(bench.shows("a").as_deref(), Some("unreadable: invalid labels"));
    let _ = bench.upserted(&draft("a", "u", 6));
    assert_eq!(bench.shows("a").as_deref(), Some("u@6"));
}

#[test]
fn a_watch_is_shared_and_forgotten_with_its_last_user() {
    let mut bench = Bench::selecting();
    let scope = Scope::single(&name("a"));
    let (single, first) = bench.table.join_watch(&scope);
    let (again, second) = bench.table.join_watch(&scope);
    assert!(first && !second && single == again);
    let _ = bench.table.upserted(single, draft("a", "u", 5).unlabelled().content(), bench.now);
    let _ = bench.upserted(&draft("b", "v", 6));
    assert!(!bench.table.leave_watch(single));
    assert!(bench.table.leave_watch(single));
    assert_eq!(bench.shows("a"), None);
    assert_eq!(bench.shows("b").as_deref(), Some("v@6"));
}

#[test]
fn what_the_first_list_shows_is_told_from_what_happens_later() {
    let mut table = Table::new(INSTALLATION);
    let (watch, _) = table.join_watch(&Scope::default());
    let now = Instant::now();
    table.list_started(watch, true);
    let effects = table.upserted(watch, draft("a", "u", 5).content(), now);
    assert!(effects.changes.iter().all(|change| change.initial));
    let _ = table.list_completed(watch, &version(9), now);
    table.list_started(watch, false);
    let effects = table.upserted(watch, draft("b", "v", 10).content(), now);
    assert!(effects.changes.iter().all(|change| !change.initial), "a relist shows what happened meanwhile");
}

#[test]
fn a_name_is_free_once_a_watch_that_would_tell_of_it_has_listed_nothing() {
    let single = Scope::single(&name("a"));
    let mut bench = Bench::selecting();
    assert!(!bench.table.is_free(&name("a")), "what carries no label may stand there");
    let (watch, _) = bench.table.join_watch(&single);
    bench.watch = watch;
    assert!(!bench.table.is_free(&name("a")), "it has told nothing yet");
    let _ = bench.list(5, &[draft("a", "u", 4).unlabelled()]);
    assert!(!bench.table.is_free(&name("a")), "an object has it");
    let _ = bench.deleted(&draft("a", "u", 6).unlabelled());
    assert!(bench.table.is_free(&name("a")));
    assert!(!bench.table.is_free(&name("b")), "nobody watches that name");
    bench.table.start_epoch();
    assert!(!bench.table.is_free(&name("a")), "that was told before the server went back in time");
}
