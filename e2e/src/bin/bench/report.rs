//! Medians and ratios of what was measured, as Markdown.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::operator::Operator;
use crate::round::{Measured, Phase};

/// A line of the table: what was measured, in what, and its value in one measurement.
struct Row(&'static str, Unit, fn(&Measured) -> f64);

#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
    Megabytes,
    Number,
}

const ROWS: [Row; 16] = [
    Row("from nothing, until the last status", Unit::Seconds, |m| m.converge.took.as_secs_f64()),
    Row("– CPU time", Unit::Seconds, |m| m.converge.usage.cpu.as_secs_f64()),
    Row("– CPU time of the API server", Unit::Seconds, |m| m.server.as_secs_f64()),
    Row("– writes that were refused", Unit::Number, |m| refused(&m.converge)),
    Row("– resident, settled", Unit::Megabytes, |m| megabytes(m.converge.usage.resident)),
    Row("– proportional, settled", Unit::Megabytes, |m| megabytes(m.converge.usage.proportional)),
    Row("– resident, at most", Unit::Megabytes, |m| megabytes(m.converge.usage.peak)),
    Row("edit to the Deployment's event, p50", Unit::Milliseconds, |m| milliseconds(m.latency(50))),
    Row("– p90", Unit::Milliseconds, |m| milliseconds(m.latency(90))),
    Row("– p99", Unit::Milliseconds, |m| milliseconds(m.latency(99))),
    Row("restart, until it rests", Unit::Seconds, |m| m.restart.took.as_secs_f64()),
    Row("– CPU time", Unit::Seconds, |m| m.restart.usage.cpu.as_secs_f64()),
    Row("– writes", Unit::Number, |m| count(m.restart.requests.writes().len())),
    Row("– resident", Unit::Megabytes, |m| megabytes(m.restart.usage.resident)),
    Row("– proportional", Unit::Megabytes, |m| megabytes(m.restart.usage.proportional)),
    Row("– resident, at most", Unit::Megabytes, |m| megabytes(m.restart.usage.peak)),
];

/// What was measured of each operator.
#[derive(Debug)]
pub(crate) struct Report {
    objects: u32,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    measured: Vec<Measured>,
}

impl Report {
    /// Nothing measured yet; a column for each operator, in this order.
    pub(crate) fn new(objects: u32, operators: &[Operator]) -> Self {
        let columns = operators.iter().map(|operator| Column { name: operator.name(), measured: Vec::new() });
        Self { objects, columns: columns.collect() }
    }

    /// Adds a measurement of that operator.
    pub(crate) fn add(&mut self, operator: &Operator, measured: Measured) {
        if let Some(column) = self.columns.iter_mut().find(|column| column.name == operator.name()) {
            column.measured.push(measured);
        }
    }

    /// A line: the value of each operator, and of two their ratio.
    fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        unit: Unit,
        value: impl Fn(&Measured) -> f64,
    ) -> fmt::Result {
        let medians: Vec<f64> = self.columns.iter().map(|column| median(column.measured.iter().map(&value))).collect();
        write!(f, "| {name} |")?;
        for median in &medians {
            write!(f, " {} |", unit.show(*median))?;
        }
        match medians[..] {
            [ours, theirs] if theirs > 0.0 => writeln!(f, " {:.2} |", ours / theirs),
            [_, _] => writeln!(f, " – |"),
            _ => writeln!(f),
        }
    }

    fn head(&self, f: &mut fmt::Formatter<'_>, title: &str) -> fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let ratio = (names.len() == 2).then(|| names.join(" ÷ "));
        let cells: Vec<&str> = names.into_iter().chain(ratio.as_deref()).collect();
        writeln!(f, "| {title} | {} |\n|---|{}", cells.join(" | "), "---|".repeat(cells.len()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.columns.first().map_or(0, |column| column.measured.len());
        self.head(f, &format!("{} WebApps, median of {rounds}", self.objects))?;
        for Row(name, unit, value) in ROWS {
            self.line(f, name, unit, value)?;
        }
        writeln!(f)?;
        self.head(f, "requests from nothing")?;
        let all = self.columns.iter().flat_map(|column| &column.measured);
        let kinds: BTreeSet<_> = all.flat_map(|measured| measured.converge.requests.counts().into_keys()).collect();
        for kind in kinds {
            let (verb, resource) = &kind;
            let resource = if resource.is_empty() { "(no resource)" } else { resource };
            self.line(f, &format!("{verb} {resource}"), Unit::Number, |measured| {
                count(measured.converge.requests.counts().get(&kind).copied().unwrap_or_default())
            })?;
        }
        Ok(())
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.2} s"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Number => format!("{value:.0}"),
        }
    }
}

/// The lower of the two in the middle of an even number.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

fn refused(phase: &Phase) -> f64 {
    count(phase.requests.writes().matching(|record| record.code >= 400).len())
}

#[allow(clippy::cast_precision_loss, reason = "counts and bytes stay far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

#[allow(clippy::cast_precision_loss, reason = "counts and bytes stay far below 2^52")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
