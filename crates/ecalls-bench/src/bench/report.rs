//! The output: each value with its baseline and goal, as a table or as objects.
//!
//! A row may precede its baseline, so values are collected and printed at the end.

use serde::Serialize;

use super::goals::{self, Goal, Verdict};
use super::timing::{OpenLoop, RequestCpu, Value};
use crate::exit::Outcome;
use crate::output::{Output, Table};

/// Collects values and prints them.
#[derive(Debug)]
pub(crate) struct Report {
    out: Output,
    wanted: Vec<&'static str>,
    values: Vec<Value>,
}

/// One line of JSON.
#[derive(Debug, Serialize)]
struct Object {
    row: &'static str,
    /// `None`: it could not be measured, for the reason in `what`.
    value: Option<f64>,
    unit: &'static str,
    statistic: &'static str,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_us: Option<f64>,
    #[serde(flatten)]
    cpu: Option<RequestCpu>,
    #[serde(flatten)]
    open: Option<OpenLoop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<f64>,
    /// The goal is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
    /// The goal is met, or missed within the margin.
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
}

impl Report {
    /// A report that prints the rows in `wanted`.
    pub(crate) fn new(out: Output, wanted: Vec<&'static str>) -> Report {
        Report {
            out,
            wanted,
            values: Vec::new(),
        }
    }

    /// Adds the values of a section. If a row has a value already, the better one is kept.
    pub(crate) fn add(&mut self, values: Vec<Value>) {
        for value in values {
            match self.values.iter_mut().find(|kept| kept.row == value.row) {
                Some(kept) if value.is_better_than(kept) => *kept = value,
                Some(_) => {}
                None => self.values.push(value),
            }
        }
    }

    /// The value of a row.
    pub(crate) fn value(&self, row: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.row == row)
    }

    /// Ratio of a value to its baseline.
    fn ratio(&self, value: &Value) -> Option<f64> {
        let baseline = self.value(goals::baseline_of(value.row)?)?;
        Some(value.value / baseline.value).filter(|ratio| !ratio.is_nan())
    }

    fn wanted_values(&self) -> impl Iterator<Item = &Value> {
        self.values
            .iter()
            .filter(|value| self.wanted.contains(&value.row))
    }

    /// The rows that are beyond their gates, with their ratios.
    fn beyond(&self) -> impl Iterator<Item = (&'static Goal, f64)> {
        self.wanted_values()
            .filter_map(|value| Some((goals::goal_of(value.row)?, self.ratio(value)?)))
            .filter(|(goal, ratio)| goal.verdict(*ratio) == Verdict::Missed)
    }

    /// The rows that are beyond their gates.
    pub(crate) fn missed_rows(&self) -> Vec<&'static str> {
        self.beyond().map(|(goal, _)| goal.row).collect()
    }

    /// The rows that are beyond their gates, as a message names them.
    pub(crate) fn missed(&self) -> Vec<String> {
        self.beyond()
            .map(|(goal, ratio)| format!("{} ({ratio:.4} > {:.4})", goal.row, goal.gate()))
            .collect()
    }

    /// Prints all values.
    pub(crate) fn print(&mut self) -> Outcome {
        if self.out.is_json() {
            let objects: Vec<Object> = self.wanted_values().map(|v| self.object(v)).collect();
            for object in objects {
                self.out.object(&object)?;
            }
        } else {
            let table = self.table();
            self.out.table(&table)?;
        }
        self.out.flush()
    }

    fn object(&self, value: &Value) -> Object {
        let goal = goals::goal_of(value.row);
        let ratio = self.ratio(value);
        let verdict = goal.zip(ratio).map(|(goal, ratio)| goal.verdict(ratio));
        Object {
            row: value.row,
            value: Some(value.value).filter(|value| !value.is_nan()),
            unit: value.unit,
            statistic: value.statistic,
            what: value.what,
            p50_us: value.percentiles_us.map(|[p50, _]| p50),
            p99_us: value.percentiles_us.map(|[_, p99]| p99),
            cpu: value.cpu,
            open: value.open,
            calls: value.calls,
            refused: value.refused,
            p99_ms: value.p99_ms,
            baseline: goals::baseline_of(value.row),
            ratio,
            goal: goal.map(|goal| goal.goal),
            gate: goal.map(Goal::gate),
            met: verdict.map(|verdict| verdict == Verdict::Met),
            ok: verdict.map(|verdict| verdict != Verdict::Missed),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "ROW",
            ">OURS",
            ">BASELINE",
            "OF",
            ">RATIO",
            ">GOAL",
            "OK",
            "WHAT",
        ]);
        for value in self.wanted_values() {
            let goal = goals::goal_of(value.row);
            let ratio = self.ratio(value);
            let baseline = goals::baseline_of(value.row).and_then(|row| self.value(row));
            let verdict = goal
                .zip(ratio)
                .map_or("", |(goal, ratio)| word(goal.verdict(ratio)));
            table.row([
                value.row.to_owned(),
                show(value),
                baseline.map_or_else(String::new, show),
                baseline.map_or("", |value| value.row).to_owned(),
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.4}")),
                goal.map_or_else(String::new, |goal| format!("<= {}", goal.goal)),
                verdict.to_owned(),
                value.what.to_owned(),
            ]);
        }
        table
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "yes",
        Verdict::Near => "no, within the margin",
        Verdict::Missed => "NO",
    }
}

/// A value with its unit, in at least three digits.
fn show(value: &Value) -> String {
    if let Some([p50, p99]) = value.percentiles_us {
        return format!("{p50:.0} us (p99 {p99:.0})");
    }
    if let Some(calls) = value.calls {
        let bare = Value {
            calls: None,
            ..value.clone()
        };
        return format!("{} [{calls}]", show(&bare));
    }
    match (value.unit, value.value) {
        (_, number) if number.is_nan() => "-".to_owned(),
        ("instructions", number) => format!("{number:.0}"),
        ("ns", ns) if ns >= 10_000_000.0 => format!("{:.1} ms", ns / 1e6),
        ("ns", ns) if ns >= 10_000.0 => format!("{:.1} us", ns / 1e3),
        ("ns", ns) if ns < 100.0 => format!("{ns:.2} ns"),
        (unit, number) => format!("{number:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::timing::MEAN;

    fn report(values: &[(&'static str, f64)], wanted: &[&'static str]) -> Report {
        let mut report = Report::new(Output::new(true), wanted.to_vec());
        let ns = |(row, value): &(&'static str, f64)| Value::ns(row, *value, MEAN, "");
        report.add(values.iter().map(ns).collect());
        report
    }

    #[test]
    fn a_ratio_is_formed_even_if_its_baseline_comes_later_or_is_not_shown() {
        let report = report(
            &[
                ("signal", 300.0),
                ("kernel_handler", 50.0),
                ("rt_signal", 100.0),
            ],
            &["kernel_handler"],
        );
        assert_eq!(report.ratio(&report.values[1]), Some(0.5));
        assert_eq!(report.wanted_values().count(), 1);
        assert_eq!(report.ratio(&report.values[2]), None);
    }

    #[test]
    fn of_several_passes_the_best_value_is_kept() {
        let rate = |value| Value {
            unit: "events/s",
            ..Value::ns("ring_events_per_s", value, MEAN, "")
        };
        let mut report = report(&[("pipe", 5.0), ("pipe", 3.0), ("pipe", 4.0)], &[]);
        report.add(vec![rate(5.0), rate(7.0), rate(6.0)]);
        let kept: Vec<f64> = report.values.iter().map(|value| value.value).collect();
        assert_eq!(kept, [3.0, 7.0]);
    }

    #[test]
    fn only_wanted_rows_beyond_their_gate_are_missed() {
        let goal = goals::goal_of("queue_insert").expect("a goal");
        let beyond = goal.gate() * 100.0 + 1.0;
        let values = [("getppid", 100.0), ("queue_insert", beyond)];
        assert_eq!(report(&values, &["queue_insert"]).missed().len(), 1);
        assert!(report(&values, &["getppid"]).missed().is_empty());
        let near = [
            ("getppid", 100.0),
            ("queue_insert", goal.gate() * 100.0 - 1.0),
        ];
        assert!(report(&near, &["queue_insert"]).missed().is_empty());
    }
}
