//! Each limit against a guest that breaks it, beside healthy calls.

use std::time::Duration;

use operator_host::module::{CallError, Limits, TimeLimit};
use serde_json::json;

use crate::support::{behave, beside_healthy, key, limited, outcome, probe};

fn quick() -> Limits {
    Limits { cpu: Duration::from_millis(200), ..Limits::default() }
}

#[track_caller]
fn failure(fixture: &str, behaviour: &str) -> CallError {
    let module = limited(fixture, quick());
    let report = beside_healthy(&module, || behave(&module, behaviour));
    report.result.expect_err("the call fails")
}

#[test]
fn an_endless_loop_is_stopped_by_its_cpu_time() {
    let error = failure("probe", "loop");
    assert_eq!(error.reason(), "ModuleTimeout");
    assert_eq!(error.to_string(), "the call was stopped: it used more than 200ms of CPU time (--cpu-timeout)");
    assert!(error.backtrace().iter().any(|frame| frame.contains("endless_loop")), "{:?}", error.backtrace());
}

#[test]
fn a_call_that_gets_no_cpu_is_stopped_by_the_wall_clock() {
    let limits = Limits { cpu: Duration::from_secs(60), wall: Duration::from_millis(200), ..Limits::default() };
    let module = limited("probe", limits);
    let error = beside_healthy(&module, || behave(&module, "loop")).result.unwrap_err();
    assert!(matches!(error, CallError::Timeout { limit: TimeLimit::Wall(_), .. }), "{error:?}");
    assert_eq!(error.to_string(), "the call was stopped: it took longer than 200ms (--timeout)");
}

#[test]
fn sleeping_for_ever_blocks_no_thread() {
    let error = failure("probe-wasi", "sleep-loop");
    assert_eq!(error.reason(), "ModuleTimeout");
    assert!(error.to_string().contains("CPU time"), "virtual sleep uses CPU, not time: {error}");
}

#[test]
fn eating_memory_is_told_apart_from_other_traps() {
    let limits = Limits { memory: 16 << 20, ..quick() };
    let module = limited("probe", limits);
    let report = beside_healthy(&module, || behave(&module, "eat-memory"));
    assert!(report.memory_peak <= 16 << 20, "{} bytes", report.memory_peak);
    let error = report.result.unwrap_err();
    assert_eq!(error.reason(), "ModuleOutOfMemory");
    assert!(error.to_string().starts_with("the module ran out of memory: an instance is given 16 MiB"), "{error}");
    assert!(error.backtrace().iter().any(|frame| frame.contains("eat_memory")), "{:?}", error.backtrace());
}

#[test]
fn a_full_stack_is_called_one() {
    for fixture in ["probe", "probe-wasi"] {
        let error = failure(fixture, "overflow-stack");
        assert_eq!(error.reason(), "ModuleTrapped");
        assert!(error.to_string().contains("stack is full, as from endless recursion"), "{error}");
        assert!(error.backtrace()[0].contains("descend"), "{:?}", error.backtrace());
    }
}

#[test]
fn a_panic_is_told_with_its_message_and_place() {
    for fixture in ["probe", "probe-wasi"] {
        let error = failure(fixture, "panic");
        assert_eq!(error.reason(), "ModuleTrapped");
        let text = error.to_string();
        assert!(text.starts_with("the module panicked: panicked at "), "{text}");
        assert!(text.contains("misbehave.rs:") && text.contains("the probe shop panics on purpose"), "{text}");
        assert!(!text.contains('\n') && !text.contains("0x"), "{text}");
        assert_eq!(text, failure(fixture, "panic").to_string(), "the same text every time");
    }
}

#[test]
fn a_trap_without_words_names_its_kind_and_place() {
    let error = failure("probe", "trap");
    assert_eq!(error.reason(), "ModuleTrapped");
    assert!(error.to_string().starts_with("the module aborted (in "), "{error}");
    assert!(error.to_string().contains("trap"), "{error}");
}

#[test]
fn exit_ends_the_call_and_nothing_else() {
    let error = failure("probe-wasi", "exit");
    assert!(error.to_string().starts_with("the module exited instead of answering (in "), "{error}");
    assert_eq!(failure("probe", "exit").reason(), "ModuleTrapped");
}

#[test]
fn a_flood_of_log_lines_is_cut_and_counted() {
    let limits =
        Limits { cpu: Duration::from_secs(20), wall: Duration::from_secs(60), log_lines: 20, ..Limits::default() };
    let module = limited("probe", limits);
    let spec = json!({"behaviour": "log-flood", "amount": 5_000});
    let report = beside_healthy(&module, || module.reconcile(&key(), &probe(spec), 0));
    assert_eq!((report.log.lines.len(), report.log.dropped_lines), (20, 4_980));
    assert_eq!(report.log.dropped_bytes, 4_980 * 1_020);
    outcome(report);
}

#[test]
fn a_gigabyte_on_standard_output_is_bounded() {
    let module = limited("probe-wasi", quick());
    let report = beside_healthy(&module, || behave(&module, "stdout-flood"));
    let kept: usize = report.log.lines.iter().map(|line| line.message.len()).sum();
    assert!(kept <= Limits::default().log_bytes, "{kept} bytes kept");
    assert!(report.log.dropped_lines > 0);
    assert_eq!(report.result.unwrap_err().reason(), "ModuleTimeout");
}

#[test]
fn a_hundred_megabytes_of_outcome_are_not_taken() {
    let error = failure("probe", "big-output");
    assert_eq!(error.reason(), "LimitExceeded");
    assert_eq!(error.to_string(), "what the module hands over is larger than 8 MiB");
}

#[test]
fn a_snapshot_over_the_limit_is_not_handed_in() {
    let module = limited("probe", Limits { snapshot: 1 << 10, ..quick() });
    let report = module.reconcile(&key(), &probe(json!({"behaviour": "ok", "data": {"a": "x".repeat(1 << 10)}})), 0);
    let error = report.result.unwrap_err();
    assert_eq!(error.reason(), "LimitExceeded");
    assert_eq!(error.to_string(), "the object with its children is larger than 1 KiB");
}

#[test]
fn what_the_plan_judges_passes_the_border_as_it_is() {
    let module = limited("probe", quick());
    for behaviour in ["invalid-json", "duplicate-keys", "other-namespace", "undeclared-type", "nan"] {
        let children = outcome(behave(&module, behaviour)).children.expect("children");
        assert_eq!(children.len(), 2, "{behaviour}");
    }
}
