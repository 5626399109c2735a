//! The figures of a run, by name.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::player::Played;
use super::stage::Seen;
use super::work::{Usage, jain};

/// The values that can be reported of a run. The names are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Lateness of the players' timers: mean, median, 99th percentile and maximum.
    Mean,
    P50,
    P99,
    Max,
    /// The same for the misbehaving player, which is then left out of the others' figures.
    BadP99,
    BadMax,
    /// Jain's index of CPU times: of the players, of the hogs.
    Jain,
    HogJain,
    /// CPU time of a hog as a part of its equal share among all threads.
    HogShare,
    /// Jain's index of frame rates, and their mean.
    FpsJain,
    Fps,
    /// Decoded frames per second of all players.
    Throughput,
    /// Context switches of the threads per second.
    Switches,
    /// How often players became fair threads because they broke a rule: they overran, slept
    /// elsewhere, or were ahead of their share. Only our scheduler counts these.
    Overran,
    Slept,
    Ahead,
    /// Time of a switch from one thread to the other with its system call, ns
    /// ([`super::switching`]).
    Yield,
    Wake,
    Poll,
    /// How often a timer woke the program, how late it says it was, CPU time of the hogs together
    /// as a part of the time, and CPU time of arming a timer, ns ([`super::coop`]).
    Wakes,
    OwnP50,
    OwnP99,
    HogCpu,
    Arm,
}

impl Figure {
    /// The figures, each with its column and the number of digits after the decimal point.
    pub(super) const ALL: [(Figure, &'static str, usize); 24] = [
        (Figure::Mean, ">mean_us", 0),
        (Figure::P50, ">p50_us", 0),
        (Figure::P99, ">p99_us", 0),
        (Figure::Max, ">max_us", 0),
        (Figure::BadP99, ">bad_p99_us", 0),
        (Figure::BadMax, ">bad_max_us", 0),
        (Figure::Jain, ">jain", 3),
        (Figure::HogJain, ">hog_jain", 3),
        (Figure::HogShare, ">hog_share", 3),
        (Figure::FpsJain, ">fps_jain", 3),
        (Figure::Fps, ">fps", 1),
        (Figure::Throughput, ">throughput", 1),
        (Figure::Switches, ">switches_per_s", 0),
        (Figure::Overran, ">overran", 0),
        (Figure::Slept, ">slept", 0),
        (Figure::Ahead, ">ahead", 0),
        (Figure::Yield, ">yield_ns", 0),
        (Figure::Wake, ">wake_ns", 0),
        (Figure::Poll, ">poll_ns", 0),
        (Figure::Wakes, ">wakes", 0),
        (Figure::OwnP50, ">own_p50_us", 0),
        (Figure::OwnP99, ">own_p99_us", 0),
        (Figure::HogCpu, ">hog_cpu", 3),
        (Figure::Arm, ">arm_ns", 0),
    ];
}

/// All figures of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures([f64; Figure::ALL.len()]);

impl Figure {
    /// Its column.
    pub(super) fn column(self) -> &'static str {
        let row = Figure::ALL.iter().find(|(one, ..)| *one == self);
        row.map_or("", |(_, name, _)| name)
    }

    /// Its key in JSON.
    pub(super) fn name(self) -> &'static str {
        self.column().trim_start_matches('>')
    }

    /// A value of it as text.
    pub(super) fn show(self, value: f64) -> String {
        let row = Figure::ALL.iter().find(|(one, ..)| *one == self);
        let digits = row.map_or(0, |(.., digits)| *digits);
        format!("{value:.digits$}")
    }
}

impl Figures {
    /// The figures of a run; `is_bad` tells which players misbehave.
    pub(super) fn of(seen: &Seen, is_bad: &[bool]) -> Figures {
        let (mut late, mut bad) = (super::histogram(), super::histogram());
        for (player, is_bad) in seen.players.iter().zip(is_bad) {
            let kept = if *is_bad { &mut bad } else { &mut late };
            // Both histograms have the same bounds.
            let _ = kept.add(&player.late);
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        let cpu = |usage: &Usage| usage.cpu_ns as f64;
        let players: Vec<f64> = seen.players.iter().map(|one| cpu(&one.usage)).collect();
        let hogs: Vec<f64> = seen.hogs.iter().map(|one| cpu(&one.usage)).collect();
        let fps = |player: &Played| player.frames as f64 / seen.seconds;
        let rates: Vec<f64> = seen.players.iter().map(fps).collect();
        let usages = seen.players.iter().map(|one| &one.usage);
        let usages = usages.chain(seen.hogs.iter().map(|one| &one.usage));
        let switches: u64 = usages.map(|usage| usage.switches).sum();
        let all: f64 = players.iter().chain(&hogs).sum();
        let mean = all / (players.len() + hogs.len()) as f64;
        let mut figures = Figures::default();
        for (place, (figure, ..)) in figures.0.iter_mut().zip(Figure::ALL) {
            *place = match figure {
                Figure::Mean => late.mean() / 1000.0,
                Figure::P50 => us(late.value_at_quantile(0.5)),
                Figure::P99 => us(late.value_at_quantile(0.99)),
                Figure::Max => us(late.max()),
                Figure::BadP99 => us(bad.value_at_quantile(0.99)),
                Figure::BadMax => us(bad.max()),
                Figure::Jain => jain(&players),
                Figure::HogJain => jain(&hogs),
                Figure::HogShare => hogs.iter().sum::<f64>() / hogs.len() as f64 / mean,
                Figure::FpsJain => jain(&rates),
                Figure::Fps => rates.iter().sum::<f64>() / rates.len() as f64,
                Figure::Throughput => rates.iter().sum(),
                Figure::Switches => switches as f64 / seen.seconds,
                Figure::Overran => seen.demotions.map_or(f64::NAN, |[overran, ..]| overran),
                Figure::Slept => seen.demotions.map_or(f64::NAN, |[_, slept, _]| slept),
                Figure::Ahead => seen.demotions.map_or(f64::NAN, |[.., ahead]| ahead),
                // [`super::switching`] measures these.
                Figure::Yield | Figure::Wake | Figure::Poll => f64::NAN,
                // [`super::coop`] measures these.
                Figure::Wakes | Figure::OwnP50 | Figure::OwnP99 | Figure::HogCpu | Figure::Arm => {
                    f64::NAN
                }
            };
        }
        figures
    }

    /// Figures with these values only; all others are NaN.
    pub(super) fn only(some: &[(Figure, f64)]) -> Figures {
        Figures(Figure::ALL.map(|(figure, ..)| {
            let value = some.iter().find(|(one, _)| *one == figure);
            value.map_or(f64::NAN, |(_, value)| *value)
        }))
    }

    /// The value of one figure.
    pub(super) fn get(&self, figure: Figure) -> f64 {
        let at = Figure::ALL.iter().position(|(one, ..)| *one == figure);
        at.map_or(f64::NAN, |at| self.0[at])
    }
}

/// Some of the figures, as the keys of an object.
pub(super) struct Keys<'a>(pub(super) &'a Figures, pub(super) &'a [Figure]);

impl Serialize for Keys<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (figure, ..) in Figure::ALL {
            let value = self.0.get(figure);
            if self.1.contains(&figure) && value.is_finite() {
                map.serialize_entry(figure.name(), &((value * 1000.0).round() / 1000.0))?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sched::track::Track;
    use crate::bench::sched::work::{Burned, Span};

    fn played(late_us: u64, frames: u64, cpu_ns: u64) -> Played {
        let mut late = super::super::histogram();
        late.record(late_us * 1000).expect("within bounds");
        let usage = Usage {
            cpu_ns,
            switches: 5,
        };
        Played {
            late,
            frames,
            usage,
            track: Track::new(Span::default()),
            was_answered: true,
        }
    }

    #[test]
    fn figures_are_those_of_what_was_seen() {
        let seen = Seen {
            seconds: 2.0,
            players: vec![played(100, 40, 6), played(900, 20, 6)],
            hogs: vec![Burned {
                usage: Usage {
                    cpu_ns: 3,
                    switches: 2,
                },
                track: Track::new(Span::default()),
            }],
            demotions: Some([1.0, 0.0, 2.0]),
        };
        let figures = Figures::of(&seen, &[false, true]);
        let near = |figure, value: f64| {
            let got = figures.get(figure);
            assert!((got - value).abs() <= value / 100.0, "{figure:?}: {got}");
        };
        near(Figure::Max, 100.0);
        near(Figure::BadMax, 900.0);
        near(Figure::Jain, 1.0);
        near(Figure::HogShare, 0.6);
        near(Figure::FpsJain, 0.9);
        near(Figure::Throughput, 30.0);
        near(Figure::Switches, 6.0);
        near(Figure::Ahead, 2.0);
    }
}
