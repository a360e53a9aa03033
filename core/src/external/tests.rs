use super::*;

const RESYNC: Option<Duration> = Some(Duration::from_secs(36_000));

fn subject(generation: i64) -> Subject {
    Subject { uid: "u".into(), generation: Some(generation), module: "m".into() }
}

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(1)
}

fn seen(observation: &str) -> Result<Observed, Failed> {
    Ok(Observed { observation: observation.into(), recheck_after: None })
}

fn failure(terminal: bool) -> Failed {
    Failed { problem: Problem::new(Reason::Module("Down".into()), "no answer"), terminal, retry_after: None }
}

fn ensured(outside: &mut Outside, generation: i64, answer: Result<Observed, Failed>, now: Instant) -> bool {
    outside.begins(Work::Ensure, subject(generation));
    outside.ensured(answer, now, RESYNC, &mut rng())
}

#[test]
fn nothing_is_looked_at_before_it_answered_and_then_only_a_change_asks_again() {
    let (mut outside, now) = (Outside::default(), Instant::now());
    assert_eq!(outside.ensure(&subject(1), now), Ensure::Call);
    outside.begins(Work::Ensure, subject(1));
    assert_eq!(outside.ensure(&subject(1), now), Ensure::Wait);
    assert!(outside.ensured(seen("1"), now, RESYNC, &mut rng()));
    assert_eq!(outside.observation("u").as_deref(), Some("1"));
    assert!(matches!(outside.ensure(&subject(1), now), Ensure::Go { problem: None, .. }));
    assert_eq!(outside.ensure(&subject(2), now), Ensure::Call, "another generation");
    let other_build = Subject { module: "n".into(), ..subject(1) };
    assert_eq!(outside.ensure(&other_build, now), Ensure::Call, "another build");
}

#[test]
fn a_recheck_runs_beside_and_wakes_the_module_only_with_news() {
    let (mut outside, now) = (Outside::default(), Instant::now());
    let recheck = |observation: &str| {
        Ok(Observed { observation: observation.into(), recheck_after: Some(Duration::from_secs(60)) })
    };
    assert!(ensured(&mut outside, 1, recheck("1"), now));
    let later = now + Duration::from_secs(60);
    assert_eq!(outside.ensure(&subject(1), later), Ensure::CallBeside);
    outside.begins(Work::Ensure, subject(1));
    assert!(matches!(outside.ensure(&subject(1), later), Ensure::Go { .. }), "the last observation serves meanwhile");
    assert!(!outside.ensured(recheck("1"), later, RESYNC, &mut rng()));
    assert!(ensured(&mut outside, 1, recheck("2"), later));
}

#[test]
fn a_failure_keeps_the_observation_and_backs_off() {
    let (mut outside, now) = (Outside::default(), Instant::now());
    ensured(&mut outside, 1, seen("1"), now);
    assert!(ensured(&mut outside, 1, Err(failure(false)), now));
    assert_eq!(outside.observation("u").as_deref(), Some("1"));
    let Ensure::Go { problem: Some(_), due: Some(first) } = outside.ensure(&subject(1), now) else {
        panic!("it waits")
    };
    assert!(!ensured(&mut outside, 1, Err(failure(false)), first), "the same failure is no news");
    let Ensure::Go { due: Some(second), .. } = outside.ensure(&subject(1), first) else { panic!("it waits") };
    assert!(second - first > first - now, "the wait grows");
    ensured(&mut outside, 1, Err(failure(true)), now);
    let Ensure::Go { due, .. } = outside.ensure(&subject(1), now) else { panic!("it waits") };
    assert_eq!(due, RESYNC.map(|resync| now + resync), "for good, until something changes");
}

#[test]
fn a_removal_waits_for_what_runs_and_is_done_once() {
    let (mut outside, now) = (Outside::default(), Instant::now());
    outside.begins(Work::Ensure, subject(1));
    assert_eq!(outside.remove(&subject(2), now), Remove::Wait);
    outside.ensured(seen("1"), now, RESYNC, &mut rng());
    assert_eq!(outside.remove(&subject(2), now), Remove::Call);
    outside.begins(Work::Remove, subject(2));
    outside.removed(Ok(Removal { done: false, message: "busy".into(), retry_after: None }), now, RESYNC, &mut rng());
    let Remove::Later(problem, Some(due)) = outside.remove(&subject(2), now) else { panic!("it waits") };
    assert_eq!((problem.reason, problem.message.as_str()), (Reason::Waiting, "busy"));
    assert_eq!(outside.remove(&subject(2), due), Remove::Call);
    assert_eq!(outside.remove(&subject(3), now), Remove::Call, "edited meanwhile");
    outside.begins(Work::Remove, subject(2));
    outside.removed(Ok(Removal { done: true, message: String::new(), retry_after: None }), now, RESYNC, &mut rng());
    assert_eq!(outside.remove(&subject(2), now), Remove::Done);
}

#[test]
fn another_object_of_the_name_knows_nothing_of_the_first() {
    let (mut outside, now) = (Outside::default(), Instant::now());
    ensured(&mut outside, 1, seen("1"), now);
    let other = Subject { uid: "v".into(), ..subject(1) };
    assert_eq!(outside.observation("v"), None);
    assert_eq!(outside.ensure(&other, now), Ensure::Call);
    outside.begins(Work::Remove, subject(1));
    assert_eq!(outside.ensure(&other, now), Ensure::Wait, "one call at a time for a name");
    outside.removed(Ok(Removal { done: true, message: String::new(), retry_after: None }), now, RESYNC, &mut rng());
    assert_eq!(outside.remove(&other, now), Remove::Call);
}

#[test]
fn what_was_made_is_left_until_it_was_taken_away() {
    let (mut outside, now) = (Outside::default(), Instant::now());
    assert!(!outside.is_left(), "nothing was made");
    ensured(&mut outside, 1, Err(failure(false)), now);
    assert!(outside.is_left(), "a call that failed may have made something");
    outside.begins(Work::Remove, subject(1));
    outside.removed(Err(failure(false)), now, RESYNC, &mut rng());
    assert!(outside.is_left());
    outside.begins(Work::Remove, subject(1));
    outside.removed(Ok(Removal { done: true, message: String::new(), retry_after: None }), now, RESYNC, &mut rng());
    assert!(!outside.is_left());
}
