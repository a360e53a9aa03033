//! What a module can learn of the world, which is nothing that differs from call to call.

use std::process::Command;
use std::thread;

use operator_host::module::{Limits, Runtime};
use serde_json::json;

use crate::support::{behave, fixture, key, learned, limited, options, outcome, probe};

#[test]
fn the_same_snapshot_gives_the_same_outcome_on_every_thread_and_in_every_process_of_the_same_file() {
    for name in ["probe", "probe-wasi"] {
        let (one, other) = (limited(name, Limits::default()), limited(name, Limits::default()));
        let snapshot = probe(json!({"behaviour": "ok", "data": {"a": "1", "b": "2"}}));
        let expected = outcome(one.reconcile(&key(), &snapshot, 1));
        thread::scope(|scope| {
            for module in [&one, &other, &one] {
                scope.spawn(|| {
                    for now in 0..50 {
                        assert_eq!(outcome(module.reconcile(&key(), &snapshot, now)), expected);
                    }
                });
            }
        });
    }
}

#[test]
fn every_call_has_an_instance_of_its_own() {
    let module = limited("probe", Limits::default());
    for _ in 0..3 {
        assert_eq!(learned(behave(&module, "memory")), json!(1));
    }
}

#[test]
fn the_contracts_clock_is_frozen_and_asking_is_seen() {
    let module = limited("probe", Limits::default());
    assert!(!behave(&module, "ok").asked_clock);
    let report = behave(&module, "clock");
    assert!(report.asked_clock);
    assert_eq!(learned(report), json!({"first": 1_000, "second": 1_000}));
}

#[test]
fn wasis_wall_clock_is_frozen_and_sleeping_moves_only_the_monotonic_one() {
    let module = limited("probe-wasi", Limits::default());
    let report = behave(&module, "wasi-clock");
    assert!(report.asked_clock, "reading WASI's wall clock counts too");
    assert_eq!(learned(report), json!({"before": 1_000, "after": 1_000, "slept": 600_000}));
}

#[test]
fn random_numbers_are_a_constant_of_the_module() {
    let module = limited("probe-wasi", Limits::default());
    let first = learned(behave(&module, "random"));
    assert_eq!(first, learned(behave(&module, "random")));
}

#[test]
fn there_is_no_environment_no_file_and_no_network() {
    let module = limited("probe-wasi", Limits::default());
    assert_eq!(learned(behave(&module, "environment")), json!({"variables": 0, "arguments": 0}));
    assert_eq!(learned(behave(&module, "files")), json!({"read": "refused", "write": "refused", "list": "refused"}));
    assert_eq!(learned(behave(&module, "network")), json!({"connect": "refused", "listen": "refused"}));
}

#[test]
fn calls_wait_for_a_slot_when_the_pool_is_full() {
    let runtime = Runtime::new(operator_host::module::RuntimeOptions { callers: 1, ..options() }).unwrap();
    let module = runtime.load(&[fixture("probe")]).remove(0).unwrap();
    assert!(module.is_pooled());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| drop(outcome(behave(&module, "ok")))));
        }
    });
}

#[test]
fn a_module_that_does_not_fit_the_pool_runs_all_the_same() {
    let runtime = Runtime::new(options()).unwrap();
    // The pool is sized by the first load: nothing, so that there is room for less than any real module.
    runtime.load(&[]);
    let later = runtime.load(&[fixture("probe")]).remove(0).unwrap();
    assert!(!later.is_pooled());
    outcome(behave(&later, "ok"));
}

/// Under a limit on addresses there is no pool: see the test below, which runs this one.
#[test]
#[ignore = "run by a_limited_address_space_is_no_reason_not_to_run"]
fn under_a_limit_on_addresses() {
    let module = limited("probe", Limits::default());
    assert!(!module.is_pooled());
    outcome(behave(&module, "ok"));
    assert_eq!(behave(&module, "eat-memory").result.unwrap_err().reason(), "ModuleOutOfMemory");
}

#[test]
fn a_limited_address_space_is_no_reason_not_to_run() {
    fixture("probe");
    let test = std::env::current_exe().unwrap();
    let script = "ulimit -v 3000000 && exec \"$0\" --exact sandbox::under_a_limit_on_addresses --ignored";
    let ran = Command::new("sh").args(["-c", script]).arg(test).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&ran.stderr));
}
