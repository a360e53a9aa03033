//! What a process has used until now, from /proc.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// CPU time and memory of one process, without those that it started.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// CPU time, in user and system mode.
    pub cpu: Duration,
    /// Resident memory in bytes, shared pages counted whole.
    pub resident: u64,
    /// Resident memory in bytes, shared pages counted by share.
    pub proportional: u64,
    /// The most that was ever resident, in bytes.
    pub peak: u64,
}

impl Usage {
    /// Of the process with this id.
    ///
    /// # Errors
    /// When it has ended.
    pub fn of(pid: u32) -> crate::Result<Self> {
        let file = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}: has the process ended?"))
        };
        let status = file("status")?;
        Ok(Self {
            cpu: cpu(&file("stat")?)?,
            resident: bytes(&status, "VmRSS:")?,
            proportional: bytes(&file("smaps_rollup")?, "Pss:")?,
            peak: bytes(&status, "VmHWM:")?,
        })
    }
}

fn cpu(stat: &str) -> crate::Result<Duration> {
    // The name in parentheses may hold anything; the fields are counted after it, from state = 3.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let field = |number: usize| fields.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let ticks = field(14).zip(field(15)).map(|(user, system)| user + system);
    let millis = ticks.context("/proc shows no CPU time")? * 1000;
    Ok(Duration::from_millis(millis / rustix::param::clock_ticks_per_second().max(1)))
}

fn bytes(text: &str, field: &str) -> crate::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("/proc shows no {field}"))? * 1024)
}
