//! What the page holds before anything has happened, and that it follows what happens.

use super::*;
use crate::module::{CallError, CallReport, GuestLog};
use crate::watch::{Kept, TypeState};
use http::Method;
use operator_core::contract::TypeRef;
use operator_core::lead::ModuleVersion;
use operator_core::queue::Traffic;
use operator_e2e::metrics::Page;
use std::time::Duration;

/// Every family, sorted.
const TYPES: [&str; 36] = [
    "controller_runtime_active_workers gauge",
    "controller_runtime_max_concurrent_reconciles gauge",
    "controller_runtime_reconcile_errors_total counter",
    "controller_runtime_reconcile_panics_total counter",
    "controller_runtime_reconcile_time_seconds histogram",
    "controller_runtime_reconcile_total counter",
    "controller_runtime_terminal_reconcile_errors_total counter",
    "leader_election_master_status gauge",
    "leader_election_slowpath_total counter",
    "operator_breaker_open gauge",
    "operator_children_total counter",
    "operator_events_total counter",
    "operator_module_call_seconds histogram",
    "operator_module_calls_skipped_total counter",
    "operator_module_calls_total counter",
    "operator_module_info gauge",
    "operator_module_instances gauge",
    "operator_module_memory_peak_bytes gauge",
    "operator_module_swaps_total counter",
    "operator_store_bytes gauge",
    "operator_store_objects gauge",
    "operator_watch_restarts_total counter",
    "operator_watch_silence_seconds gauge",
    "operator_watch_synced gauge",
    "process_cpu_seconds_total counter",
    "process_open_fds gauge",
    "process_resident_memory_bytes gauge",
    "process_start_time_seconds gauge",
    "rest_client_requests_total counter",
    "workqueue_adds_total counter",
    "workqueue_depth gauge",
    "workqueue_longest_running_processor_seconds gauge",
    "workqueue_queue_duration_seconds histogram",
    "workqueue_retries_total counter",
    "workqueue_unfinished_work_seconds gauge",
    "workqueue_work_duration_seconds histogram",
];

/// As a host has them that runs two modules.
fn all() -> (Metrics, Vec<ModuleMetrics>, Requests) {
    let mut metrics = Metrics::new();
    let modules = metrics.count_modules(&["shop", "till"]);
    let requests = Requests::new(Some(&"10.0.0.1:6443".parse().expect("a host")));
    metrics.show_requests(&requests, || false);
    metrics.show_lanes(|| ["shop", "till"].map(|name| (name.to_owned(), Traffic::default())).into());
    metrics.show_modules(|| {
        ["shop", "till"].map(|name| ModuleVersion { name: name.into(), version: "1".into(), digest: "d".into() }).into()
    });
    metrics.show_types(|| {
        let type_ref = TypeRef::new("apps/v1", "Deployment");
        vec![Kept { type_ref, objects: 3, bytes: 4096, restarts: 1, silence: Duration::ZERO, state: TypeState::Synced }]
    });
    metrics.count_events();
    metrics.show_leader("operator-host-default".into(), || true, || 0);
    (metrics, modules, requests)
}

fn page(metrics: &Metrics) -> Page {
    let text = metrics.text().expect("a page");
    Page::parse(&text).unwrap_or_else(|error| panic!("{error:#}:\n{text}"))
}

#[test]
fn every_name_is_there_from_the_start_and_every_count_at_zero() {
    let (metrics, ..) = all();
    let page = page(&metrics);
    assert_eq!(page.types(), TYPES);
    let mut counted = page.counted();
    counted.retain(|name, _| !name.starts_with("process_") && !name.starts_with("operator_watch_restarts"));
    assert!(counted.is_empty(), "{counted:?}");

    let words = |name, label, expected: &[&str]| {
        assert_eq!(page.values(name, label), expected.iter().map(|&word| word.to_owned()).collect(), "{name}");
    };
    words("controller_runtime_reconcile_total", "controller", &["shop", "till"]);
    words("controller_runtime_reconcile_total", "result", &["success", "error", "requeue", "requeue_after"]);
    words("workqueue_depth", "priority", &["change", "retry", "resync", "backlog"]);
    words("workqueue_adds_total", "name", &["shop", "till"]);
    words("rest_client_requests_total", "host", &["10.0.0.1:6443"]);
    words("rest_client_requests_total", "method", &["GET", "POST", "PUT", "PATCH", "DELETE"]);
    words(
        "operator_module_calls_total",
        "outcome",
        &["ok", "failure", "trapped", "timeout", "out_of_memory", "limit_exceeded", "invalid_outcome"],
    );
    words("operator_module_swaps_total", "result", &["swapped", "refused"]);
    let actions = ["create", "change", "delete", "orphan", "recreate", "refuse"];
    words("operator_children_total", "action", &actions);
}

#[test]
fn what_happens_to_one_module_is_counted_for_it_alone() {
    let (metrics, modules, _) = all();
    let shop = &modules[0];
    shop.reconciles.succeeded();
    shop.reconciles.requeued(Duration::ZERO);
    shop.reconciles.requeued(Duration::from_secs(1));
    shop.reconciles.failed();
    shop.reconciles.failed_for_good();
    shop.reconciles.panicked();
    shop.reconciles.took(Duration::from_millis(7));
    let page = page(&metrics);
    let ended = |result| page.sum("controller_runtime_reconcile_total", &[("controller", "shop"), ("result", result)]);
    for (result, count) in [("success", 1.0), ("requeue", 1.0), ("requeue_after", 1.0), ("error", 3.0)] {
        assert_eq!(ended(result).expect("there is one"), count, "{result}");
    }
    let of_shop = |name| page.sum(name, &[("controller", "shop")]).expect("there is one");
    assert_eq!(of_shop("controller_runtime_reconcile_errors_total"), 3.0);
    assert_eq!(of_shop("controller_runtime_terminal_reconcile_errors_total"), 1.0);
    assert_eq!(of_shop("controller_runtime_reconcile_panics_total"), 1.0);
    assert_eq!(of_shop("controller_runtime_reconcile_time_seconds_sum"), 0.007);
    assert_eq!(page.sum("controller_runtime_reconcile_total", &[("controller", "till")]).expect("there are"), 0.0);
}

#[test]
fn each_class_of_a_calls_end_has_its_own_count() {
    let (metrics, modules, _) = all();
    let errors = [
        ("trapped", CallError::Trapped { what: String::new(), backtrace: Vec::new() }),
        ("out_of_memory", CallError::OutOfMemory { limit: 1, backtrace: Vec::new() }),
        ("limit_exceeded", CallError::LimitExceeded { what: "it", limit: 1 }),
        ("invalid_outcome", CallError::InvalidOutcome(String::new())),
    ];
    for (outcome, error) in errors {
        modules[0].calls.ended(&CallReport::<operator_core::contract::Outcome> {
            result: Err(error),
            asked_clock: false,
            cpu: Duration::ZERO,
            wall: Duration::from_millis(1),
            memory_peak: 0,
            log: GuestLog::default(),
        });
        let outcomes = [("module", "shop"), ("outcome", outcome)];
        assert_eq!(
            page(&metrics).sum("operator_module_calls_total", &outcomes).expect("there is one"),
            1.0,
            "{outcome}"
        );
    }
    assert_eq!(page(&metrics).sum("operator_module_call_seconds_count", &[]).expect("there are"), 4.0);
}

#[test]
fn a_request_counts_once_by_its_answer_or_as_an_error() {
    let (metrics, _, requests) = all();
    requests.sent(&Method::PATCH).answered(StatusCode::CREATED);
    requests.sent(&Method::GET).answered(StatusCode::IM_A_TEAPOT);
    drop(requests.sent(&Method::GET));
    let page = page(&metrics);
    let sent = |labels: &[_]| page.sum("rest_client_requests_total", labels).expect("there are");
    assert_eq!(sent(&[("code", "201"), ("method", "PATCH")]), 1.0);
    assert_eq!(sent(&[("code", "other"), ("method", "GET")]), 1.0);
    assert_eq!(sent(&[("code", "<error>"), ("method", "GET")]), 1.0);
    assert_eq!(sent(&[]), 3.0);
}

#[test]
fn what_is_looked_at_is_shown_as_it_is() {
    let (metrics, ..) = all();
    let page = page(&metrics);
    let of_type = [("kind", "Deployment"), ("group", "apps"), ("version", "v1")];
    let found = |name, labels: &[_]| page.sum(name, labels).expect("there is one");
    assert_eq!(found("operator_store_objects", &of_type), 3.0);
    assert_eq!(found("operator_store_bytes", &of_type), 4096.0);
    assert_eq!(found("operator_watch_synced", &of_type), 1.0);
    assert_eq!(found("operator_watch_restarts_total", &of_type), 1.0);
    assert_eq!(found("leader_election_master_status", &[("name", "operator-host-default")]), 1.0);
    assert_eq!(found("operator_module_info", &[("module", "till"), ("version", "1"), ("digest", "d")]), 1.0);
    assert!(found("process_resident_memory_bytes", &[]) > 1e6);
    assert!(found("process_open_fds", &[]) >= 3.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let age = now - found("process_start_time_seconds", &[]);
    assert!((-2.0..86_400.0).contains(&age), "it started {age} s ago");
}
