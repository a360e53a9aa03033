//! The process, as every Prometheus client shows it. Where there is no `/proc`, what it tells is left out.

use super::{Metrics, labels, show};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::time::{ClockId, clock_gettime};
use std::fs;

impl Metrics {
    pub(super) fn show_process(&mut self) {
        let started = started();
        self.show(move |encoder| {
            let alone = || labels([]);
            let gauges = |value: Option<f64>| value.map(|value| (alone(), ConstGauge::new(value)));
            show(
                encoder,
                "process_cpu_seconds",
                "Total user and system CPU time spent in seconds",
                [(alone(), ConstCounter::new(cpu()))],
            )?;
            show(encoder, "process_resident_memory_bytes", "Resident memory size in bytes", gauges(resident()))?;
            show(encoder, "process_open_fds", "Number of open file descriptors", gauges(open_fds()))?;
            show(
                encoder,
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds",
                gauges(started),
            )
        });
    }
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident() -> Option<f64> {
    let pages: f64 = fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size() as f64)
}

fn open_fds() -> Option<f64> {
    // The one that reads the folder is among them.
    Some((fs::read_dir("/proc/self/fd").ok()?.count() - 1) as f64)
}

/// When the system started, and how many ticks later the process did.
fn started() -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let process = fs::read_to_string("/proc/self/stat").ok()?;
    // The name before may hold anything, blanks and brackets too; `starttime` is the 20th field after it.
    let (_, fields) = process.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    Some(booted + ticks / clock_ticks_per_second() as f64)
}
