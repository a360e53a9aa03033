//! One process at a time against a server that does what it is told, by a clock that the test moves.

mod model;
mod server;

use super::*;
use server::Server;
use std::collections::HashMap;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> BootTime {
    BootTime::new(Duration::from_secs(seconds))
}

fn wall() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().expect("a time")
}

fn options(identity: &str) -> Options {
    Options {
        namespace: "system".into(),
        name: "operator-host-default".into(),
        identity: identity.into(),
        timing: Timing::DEFAULT,
        allow_older_module: false,
        seed: 1,
    }
}

fn elector(identity: &str) -> Elector {
    Elector::new(options(identity))
}

fn running(identity: &str, version: &str) -> Elector {
    let mut elector = elector(identity);
    elector.runs(vec![ModuleVersion { name: "webapp".into(), version: version.into(), digest: "sha256:1".into() }]);
    elector
}

/// Sends what the elector wants sent, at once and without losses, until it waits; until when.
fn settle(elector: &mut Elector, server: &mut Server, now: BootTime) -> BootTime {
    for _ in 0..10 {
        match elector.next(now, wall() + now.since_boot()) {
            Step::Wait(until) => return until,
            Step::Send(request, _) => elector.answered(server.serve(&request), now),
            Step::End(end) => panic!("it ended: {end:?}"),
        }
    }
    panic!("it sends without end");
}

fn sends(elector: &mut Elector, now: BootTime) -> Request {
    match elector.next(now, wall() + now.since_boot()) {
        Step::Send(request, _) => request,
        other => panic!("expected a request, got {other:?}"),
    }
}

/// One request, answered at once.
fn exchange(elector: &mut Elector, server: &mut Server, now: BootTime) -> Request {
    let request = sends(elector, now);
    elector.answered(server.serve(&request), now);
    request
}

fn ends(elector: &mut Elector, now: BootTime) -> End {
    match elector.next(now, wall() + now.since_boot()) {
        Step::End(end) => end,
        other => panic!("expected the end, got {other:?}"),
    }
}

fn leads(elector: &Elector) -> bool {
    elector.permits_until().is_some()
}

/// A Lease that another holds since before time 0, as client-go writes it.
fn held(server: &mut Server, holder: &str, seconds: u64) {
    server.put(&format!(
        r#"{{"metadata":{{"name":"operator-host-default","labels":{{"team":"a"}}}},"spec":{{"holderIdentity":"{holder}",
        "leaseDurationSeconds":{seconds},"acquireTime":"2001-01-01T00:00:00.000000Z","renewTime":"2001-01-01T00:00:00.000000Z",
        "leaseTransitions":3}}}}"#
    ));
}

#[test]
fn what_the_lease_says_of_paused_modules_is_told_and_kept_with_all_else_in_it() {
    let (mut elector, mut server) = (running("a", "1.0.0"), Server::default());
    server.put(
        r#"{"metadata":{"name":"operator-host-default","annotations":{"operatorhost.dev/paused":"webapp, other"}},
        "spec":{"holderIdentity":"","preferredHolder":"b"}}"#,
    );
    settle(&mut elector, &mut server, at(1));
    assert!(leads(&elector));
    assert!(elector.paused().contains("webapp") && elector.paused().contains("other"));
    assert!(!elector.paused().contains("web"));
    let request = sends(&mut elector, at(4));
    let Request::Replace(body) = request else { panic!("a renewal: {request:?}") };
    let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["metadata"]["annotations"]["operatorhost.dev/paused"], "webapp, other");
    assert_eq!(body["spec"]["preferredHolder"], "b");
    assert!(
        Lease::parse(br#"{"metadata":{"resourceVersion":"1","annotations":{"operatorhost.dev/paused":"*"}}}"#)
            .expect("a Lease")
            .paused()
            .contains("anything")
    );
}

#[test]
fn an_absent_lease_is_made_and_held_from_before_the_request_was_sent() {
    let (mut elector, mut server) = (running("a", "1.0.0"), Server::default());
    assert!(matches!(sends(&mut elector, at(1)), Request::Get));
    elector.answered(Answer::Absent, at(1));
    let create = sends(&mut elector, at(2));
    let answer = server.serve(&create);
    elector.answered(answer, at(5));
    assert_eq!(elector.permits_until(), Some(at(2 + 10)), "counted from the answer");
    let lease = server.document();
    assert_eq!(lease["spec"]["holderIdentity"], "a");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    assert_eq!(lease["spec"]["acquireTime"], "2030-01-01T00:00:02.000000Z");
    assert_eq!(lease["spec"]["renewTime"], lease["spec"]["acquireTime"]);
    assert_eq!(
        lease["metadata"]["annotations"]["operatorhost.dev/modules"],
        r#"[{"name":"webapp","version":"1.0.0","digest":"sha256:1"}]"#
    );
}

#[test]
fn a_holder_renews_every_retry_period_and_keeps_what_others_wrote() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    held(&mut server, "", 1);
    assert_eq!(settle(&mut elector, &mut server, at(1)), at(3));
    assert_eq!(settle(&mut elector, &mut server, at(3)), at(5));
    assert_eq!(elector.permits_until(), Some(at(13)));
    let lease = server.document();
    assert_eq!(lease["spec"]["acquireTime"], "2030-01-01T00:00:01.000000Z");
    assert_eq!(lease["spec"]["renewTime"], "2030-01-01T00:00:03.000000Z");
    assert_eq!(lease["spec"]["leaseTransitions"], 4, "a renewal is no transition, taking over is one");
    assert_eq!(lease["metadata"]["labels"]["team"], "a");
}

#[test]
fn a_lease_that_has_changed_hands_too_often_to_count_is_taken_all_the_same() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    server.put(r#"{"metadata":{},"spec":{"holderIdentity":"","leaseTransitions":2147483647}}"#);
    settle(&mut elector, &mut server, at(1));
    assert!(leads(&elector));
    assert_eq!(server.document()["spec"]["leaseTransitions"], i32::MAX);
}

#[test]
fn another_holders_term_lasts_as_long_as_its_record_says_from_when_it_was_first_seen() {
    for skew in ["2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let (mut elector, mut server) = (elector("b"), Server::default());
        held(&mut server, "a", 20);
        server.edit(|lease| lease["spec"]["renewTime"] = skew.into());
        assert!(settle(&mut elector, &mut server, at(100)) < at(107), "it asks when it hears nothing");
        assert!(settle(&mut elector, &mut server, at(119)) <= at(120));
        assert!(!leads(&elector));
        settle(&mut elector, &mut server, at(120));
        assert!(leads(&elector), "whatever the other's clock says: {skew}");
        assert_eq!(server.document()["spec"]["leaseTransitions"], 4);
    }
}

#[test]
fn each_renewal_that_is_seen_begins_the_wait_anew_and_other_changes_do_not() {
    let (mut elector, mut server) = (elector("b"), Server::default());
    held(&mut server, "a", 15);
    settle(&mut elector, &mut server, at(0));
    server.edit(|lease| lease["spec"]["renewTime"] = "2001-01-01T00:00:02Z".into());
    elector.saw(server.lease(), at(10));
    server.edit(|lease| lease["metadata"]["labels"]["team"] = "b".into());
    elector.saw(server.lease(), at(20));
    settle(&mut elector, &mut server, at(24));
    assert!(!leads(&elector));
    settle(&mut elector, &mut server, at(25));
    assert!(leads(&elector));
    assert_eq!(server.document()["metadata"]["labels"]["team"], "b");
}

#[test]
fn a_standby_that_hears_of_each_renewal_sends_nothing_and_takes_over_by_a_single_write() {
    let (mut elector, mut server) = (elector("b"), Server::default());
    held(&mut server, "a", 15);
    settle(&mut elector, &mut server, at(0));
    server.requests.clear();
    for second in (2..60).step_by(2) {
        server.edit(|lease| lease["spec"]["renewTime"] = format!("2001-01-01T00:00:{second:02}Z").into());
        elector.saw(server.lease(), at(second));
        settle(&mut elector, &mut server, at(second + 1));
    }
    assert!(server.requests.is_empty(), "{:?}", server.requests);
    elector.saw(server.lease(), at(72));
    settle(&mut elector, &mut server, at(73));
    assert!(leads(&elector));
    assert!(matches!(server.requests[..], [.., Request::Replace(_)]), "{:?}", server.requests);
    assert!(!server.requests[..server.requests.len() - 1].iter().any(|request| *request != Request::Get));
}

#[test]
fn a_release_is_taken_over_at_once() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    settle(&mut a, &mut server, at(0));
    settle(&mut b, &mut server, at(1));
    assert!(leads(&a) && !leads(&b));
    a.stop(at(2));
    assert!(!leads(&a), "permits end before the request is sent");
    exchange(&mut a, &mut server, at(2));
    assert_eq!(ends(&mut a, at(2)), End::Released);
    let lease = server.document();
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 1);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    b.saw(server.lease(), at(2));
    settle(&mut b, &mut server, at(2));
    assert!(leads(&b));
}

#[test]
fn a_standby_that_stops_sends_nothing() {
    let (mut elector, mut server) = (elector("b"), Server::default());
    held(&mut server, "a", 15);
    settle(&mut elector, &mut server, at(0));
    elector.stop(at(1));
    assert_eq!(ends(&mut elector, at(1)), End::Released);
}

#[test]
fn a_lost_answer_to_a_renewal_is_cleared_up_by_a_read_and_does_not_count() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    settle(&mut elector, &mut server, at(0));
    let renewal = sends(&mut elector, at(2));
    server.serve(&renewal);
    elector.answered(Answer::Failed("no answer".into()), at(7));
    assert_eq!(elector.permits_until(), Some(at(10)), "nobody said that it was renewed");
    assert_eq!(exchange(&mut elector, &mut server, at(7)), Request::Get);
    assert_eq!(settle(&mut elector, &mut server, at(8)), at(10));
    assert_eq!(elector.permits_until(), Some(at(18)));
}

#[test]
fn a_lost_answer_to_an_acquisition_is_cleared_up_by_a_read() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    held(&mut server, "", 1);
    elector.saw(server.lease(), at(0));
    elector.answered(Answer::Failed("ignored: nothing was asked".into()), at(0));
    assert_eq!(exchange(&mut elector, &mut server, at(0)), Request::Get);
    let acquisition = sends(&mut elector, at(0));
    server.serve(&acquisition);
    elector.answered(Answer::Failed("no answer".into()), at(5));
    assert!(!leads(&elector));
    settle(&mut elector, &mut server, at(10));
    assert_eq!(elector.permits_until(), Some(at(20)));
    assert_eq!(server.document()["spec"]["leaseTransitions"], 4, "it took over once");
}

#[test]
fn what_may_be_ours_is_given_back_by_a_standby_that_stops() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    exchange(&mut elector, &mut server, at(0));
    let create = sends(&mut elector, at(0));
    server.serve(&create);
    elector.answered(Answer::Failed("no answer".into()), at(5));
    elector.stop(at(5));
    assert_eq!(exchange(&mut elector, &mut server, at(5)), Request::Get);
    exchange(&mut elector, &mut server, at(5));
    assert_eq!(ends(&mut elector, at(5)), End::Released);
    assert_eq!(server.document()["spec"]["holderIdentity"], "");
}

#[test]
fn of_two_that_try_at_once_the_server_refuses_one() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    held(&mut server, "c", 15);
    settle(&mut a, &mut server, at(0));
    settle(&mut b, &mut server, at(0));
    let (from_a, from_b) = (sends(&mut a, at(15)), sends(&mut b, at(15)));
    a.answered(server.serve(&from_a), at(15));
    b.answered(server.serve(&from_b), at(15));
    assert!(leads(&a) && !leads(&b));
    assert!(settle(&mut b, &mut server, at(15)) > at(15));
    assert_eq!(b.standing(at(15), wall()), Standing::Standby { holder: "a".into(), problem: None });
}

#[test]
fn a_holder_that_can_not_renew_gives_up_before_others_may_follow() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    settle(&mut elector, &mut server, at(0));
    let mut now = at(2);
    while let Step::Send(_, limit) = elector.next(now, wall()) {
        assert!(now + limit <= at(10), "it waits for an answer beyond the term");
        now = now + limit;
        elector.answered(Answer::Failed("connection refused".into()), now);
        if let Step::Wait(until) = elector.next(now, wall()) {
            now = until;
        }
    }
    assert_eq!(now, at(10));
    let End::Lost(loss) = ends(&mut elector, now) else { panic!("it was not lost") };
    assert_eq!(loss.to_string(), "it could not be renewed within 10 s: connection refused");
    assert!(!leads(&elector));
}

#[test]
fn a_holder_that_stood_still_beyond_its_term_has_lost_it() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    settle(&mut elector, &mut server, at(0));
    assert!(matches!(ends(&mut elector, at(60)), End::Lost(Loss::NotRenewed { .. })));
}

#[test]
fn a_term_does_not_begin_by_an_answer_that_came_too_late() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    exchange(&mut elector, &mut server, at(0));
    let create = sends(&mut elector, at(0));
    elector.answered(server.serve(&create), at(30));
    assert!(!leads(&elector));
    settle(&mut elector, &mut server, at(31));
    assert_eq!(elector.permits_until(), Some(at(41)), "it is still ours, and is renewed");
}

#[test]
fn another_name_in_the_lease_ends_the_term_at_once() {
    for (name, loss) in [("b", "b holds it now"), ("", "somebody else released it")] {
        let (mut elector, mut server) = (elector("a"), Server::default());
        settle(&mut elector, &mut server, at(0));
        server.edit(|lease| lease["spec"]["holderIdentity"] = name.into());
        elector.saw(server.lease(), at(1));
        assert!(matches!(exchange(&mut elector, &mut server, at(1)), Request::Replace(_)));
        assert_eq!(exchange(&mut elector, &mut server, at(1)), Request::Get);
        let End::Lost(why) = ends(&mut elector, at(1)) else { panic!("it was not lost") };
        assert_eq!(why.to_string(), loss);
    }
}

#[test]
fn a_holder_writes_over_a_change_that_leaves_its_name() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    settle(&mut elector, &mut server, at(0));
    server.edit(|lease| lease["metadata"]["labels"] = serde_json::json!({ "team": "a" }));
    assert_eq!(settle(&mut elector, &mut server, at(2)), at(4));
    assert!(leads(&elector));
    assert_eq!(server.document()["metadata"]["labels"]["team"], "a");
}

#[test]
fn a_deleted_lease_is_made_anew_by_its_holder_at_once_and_by_others_when_the_term_is_over() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    settle(&mut a, &mut server, at(0));
    settle(&mut b, &mut server, at(1));
    server.delete();
    b.saw(None, at(2));
    assert!(settle(&mut b, &mut server, at(2)) > at(2));
    assert!(server.lease().is_none(), "b took it during the term of a");
    a.saw(None, at(3));
    settle(&mut a, &mut server, at(3));
    assert_eq!(server.document()["spec"]["holderIdentity"], "a");
    server.delete();
    settle(&mut b, &mut server, at(16));
    assert!(leads(&b));
}

#[test]
fn old_news_change_nothing() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    settle(&mut a, &mut server, at(0));
    let old = server.lease();
    settle(&mut a, &mut server, at(2));
    settle(&mut b, &mut server, at(2));
    b.saw(old, at(9));
    settle(&mut b, &mut server, at(17));
    assert!(leads(&b), "old news counted as a renewal");
}

#[test]
fn what_stands_in_the_way_is_told_and_tried_again() {
    let mut elector = elector("a");
    let problem = "403 Forbidden: may not get leases".to_owned();
    let mut now = at(0);
    for _ in 0..5 {
        assert_eq!(sends(&mut elector, now), Request::Get);
        elector.answered(Answer::Failed(problem.clone()), now);
        assert_eq!(elector.standing(now, wall()), Standing::Unknown { problem: Some(problem.clone()) });
        let Step::Wait(until) = elector.next(now, wall()) else { panic!("it does not wait") };
        assert!((2..5).contains(&now.until(until).as_secs()), "{:?}", now.until(until));
        now = until;
    }
}

#[test]
fn a_lease_that_can_not_be_written_is_tried_at_intervals() {
    let (mut elector, mut server) = (elector("a"), Server::default());
    held(&mut server, "", 1);
    let mut now = at(0);
    for _ in 0..5 {
        exchange(&mut elector, &mut server, now);
        assert!(matches!(sends(&mut elector, now), Request::Replace(_)));
        elector.answered(Answer::Failed("403 Forbidden".into()), now);
        let Step::Wait(until) = elector.next(now, wall()) else { panic!("it does not wait") };
        now = until;
        let standing = elector.standing(now, wall()).to_string();
        assert_eq!(standing, "is free; the last attempt failed: 403 Forbidden");
    }
}

#[test]
fn an_older_module_holds_back_until_ten_minutes_after_the_last_renewal() {
    for released in [false, true] {
        let (mut newer, mut older, mut server) = (running("a", "1.10.0"), running("b", "1.9.0"), Server::default());
        settle(&mut newer, &mut server, at(0));
        if released {
            newer.stop(at(1));
            exchange(&mut newer, &mut server, at(1));
        }
        settle(&mut older, &mut server, at(1));
        for second in (1..600).step_by(5) {
            settle(&mut older, &mut server, at(second));
        }
        assert!(!leads(&older));
        let standing = older.standing(at(598), wall() + 598 * SECOND).to_string();
        assert!(standing.contains("module webapp is 1.9.0 here and 1.10.0 there"), "{standing}");
        settle(&mut older, &mut server, at(602));
        assert!(leads(&older), "for ever");
    }
}

#[test]
fn a_renewal_of_long_ago_holds_nobody_back() {
    let (mut newer, mut older, mut server) = (running("a", "2.0.0"), running("b", "1.0.0"), Server::default());
    settle(&mut newer, &mut server, at(0));
    // Here the machine booted anew, and only the calendar tells how long that took.
    exchange(&mut older, &mut server, at(5));
    let later = wall() + 3600 * SECOND;
    assert!(matches!(older.next(at(5), later), Step::Wait(_)), "the term may last, for all that it knows");
    assert!(matches!(older.next(at(20), later + 15 * SECOND), Step::Send(Request::Replace(_), _)));
}

#[test]
fn equal_newer_and_allowed_modules_do_not_hold_back() {
    for (ours, theirs, allowed) in [("1.0.0", "1.0.0", false), ("1.1.0", "1.0.0", false), ("1.0.0", "2.0.0", true)] {
        let (mut first, mut server) = (running("a", theirs), Server::default());
        let mut second = Elector::new(Options { allow_older_module: allowed, ..options("b") });
        second.runs(vec![ModuleVersion { name: "webapp".into(), version: ours.into(), digest: "sha256:2".into() }]);
        settle(&mut first, &mut server, at(0));
        settle(&mut second, &mut server, at(0));
        settle(&mut second, &mut server, at(15));
        assert!(leads(&second), "{ours} after {theirs}");
    }
}

#[test]
fn attempts_of_many_standbys_spread_out() {
    let mut waits = HashMap::new();
    for seed in 0..20 {
        let mut elector = Elector::new(Options { seed, ..options("a") });
        sends(&mut elector, at(0));
        elector.answered(Answer::Failed("no answer".into()), at(0));
        let Step::Wait(until) = elector.next(at(0), wall()) else { panic!("it does not wait") };
        waits.insert(until.since_boot().as_millis(), seed);
    }
    assert!(waits.len() > 15, "{waits:?}");
}

#[test]
fn numbers_that_keep_no_term_are_refused() {
    let timing = |lease, renew, retry| {
        Timing::new(Duration::from_millis(lease), Duration::from_millis(renew), Duration::from_millis(retry))
    };
    assert_eq!(timing(15_000, 10_000, 2_000), Ok(Timing::DEFAULT));
    assert_eq!(timing(10_000, 10_000, 2_000), Err(InvalidTiming::LeaseDuration));
    assert_eq!(timing(15_000, 2_400, 2_000), Err(InvalidTiming::RenewDeadline));
    assert_eq!(timing(15_500, 10_000, 2_000), Err(InvalidTiming::Fraction));
    assert_eq!(timing(0, 10_000, 2_000), Err(InvalidTiming::Fraction));
}

#[test]
fn a_foreign_or_bare_lease_is_read_as_far_as_it_goes() {
    let bare = Lease::parse(br#"{"metadata":{"resourceVersion":"1"}}"#).expect("a Lease");
    assert_eq!(*bare.record(), Record::default());
    let foreign = br#"{"metadata":{"resourceVersion":"1","annotations":{"operatorhost.dev/modules":"mine"}},"spec":{"strategy":"x"}}"#;
    assert_eq!(Lease::parse(foreign).expect("a Lease").modules(), []);
    assert!(Lease::parse(b"{}").is_err());
}
