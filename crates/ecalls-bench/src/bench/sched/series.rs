//! The course of a run over time, and the lateness of its timers, as data for drawings.

use serde::{Deserialize, Serialize};

use super::stage::Seen;
use super::track::{INTERVAL_NS, Track};

/// Points of a distribution at equal distances; the last ones are closer together, because the
/// great delays are there.
const POINTS: u32 = 100;
const LAST: [f64; 4] = [0.995, 0.999, 0.9995, 1.0];

/// A run under one scheduler: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Series {
    /// The first row of the run.
    pub(super) series: String,
    pub(super) scheduler: String,
    /// A description of the workload.
    pub(super) what: String,
    pub(super) interval_ms: u64,
    /// The cumulative distribution of the timers' lateness: fraction of the timers, and us.
    pub(super) late_us: Vec<(f64, f64)>,
    pub(super) threads: Vec<Thread>,
}

/// One thread, with a value per interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Thread {
    pub(super) name: String,
    pub(super) is_hog: bool,
    /// Its share of the CPU.
    pub(super) share: Vec<f64>,
    /// Decoded frames per second; empty for a hog.
    pub(super) fps: Vec<f64>,
}

impl Series {
    /// The series of a run.
    pub(super) fn of(series: &str, scheduler: &str, what: &str, seen: &Seen) -> Series {
        let mut late = super::histogram();
        for player in &seen.players {
            // Both histograms have the same bounds.
            let _ = late.add(&player.late);
        }
        let parts = (0..POINTS).map(|point| f64::from(point) / f64::from(POINTS));
        let late_us = parts.chain(LAST).map(|part| {
            let ns = late.value_at_quantile(part);
            (part, ns as f64 / 1000.0)
        });
        let players =
            seen.players.iter().zip(1..).map(|(player, number)| {
                Thread::of(format!("player {number}"), false, &player.track)
            });
        let hogs = seen.hogs.iter().zip(1..);
        let hogs = hogs.map(|(hog, number)| Thread::of(format!("hog {number}"), true, &hog.track));
        Series {
            series: series.to_owned(),
            scheduler: scheduler.to_owned(),
            what: what.to_owned(),
            interval_ms: INTERVAL_NS / 1_000_000,
            late_us: late_us.collect(),
            threads: players.chain(hogs).collect(),
        }
    }
}

impl Thread {
    fn of(name: String, is_hog: bool, track: &Track) -> Thread {
        let interval = INTERVAL_NS as f64;
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        let steps = track.steps().iter();
        let share = steps
            .clone()
            .map(|step| rounded(step.cpu_ns as f64 / interval));
        let fps = steps.map(|step| rounded(step.frames as f64 * 1e9 / interval));
        Thread {
            name,
            is_hog,
            share: share.collect(),
            fps: if is_hog { Vec::new() } else { fps.collect() },
        }
    }
}
