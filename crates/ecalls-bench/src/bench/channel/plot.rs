//! KECho's Table 1 and Figures 6 to 9 as one drawing in SVG: what the paper says in words, beside
//! what a run has measured of ours and of peers.
//!
//! Where the paper's machines (200 and 800 MHz, 100 Mbit/s) would make all else invisible, the axis
//! is logarithmic. A figure of which a run has no row of ours is not drawn.

use self::Of::{Nothing, Ratio, Row, Told};
use self::Whose::{Ours, Paper, Peer};
use super::super::chart::{self, class, nice_step, short};

/// A value of a series.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// What the paper says, in the figure's unit.
    Told(f64),
    /// A row's time.
    Row(&'static str),
    /// A row's time, of that of another row.
    Ratio(&'static str, &'static str),
    Nothing,
}

/// Whose a series is: each has colours of its own, in all figures the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Paper,
    Peer,
    Ours,
}

/// Values at each of the positions of a figure.
struct Series(Whose, &'static str, &'static [Of]);

/// The class of each.
fn classes(all: &[Series]) -> impl Iterator<Item = usize> {
    let mut former = [0; 3];
    all.iter().map(move |Series(whose, ..)| {
        let classes = match whose {
            Paper => [0, 1, 9],
            Peer => [3, 7, 8],
            Ours => [2, 6, 4],
        };
        let number = &mut former[*whose as usize];
        *number += 1;
        classes[(*number - 1) % classes.len()]
    })
}

struct Figure {
    title: &'static str,
    unit: &'static str,
    /// Nanoseconds of it.
    unit_ns: f64,
    is_logarithmic: bool,
    /// What is to the right, and its values.
    positions: (&'static str, &'static [&'static str]),
    series: &'static [Series],
}

const US: f64 = 1e3;
const MS: f64 = 1e6;
const S: f64 = 1e9;

const FIGURES: &[Figure] = &[
    Figure {
        title: "Table 1: a call of each kind",
        unit: "us",
        unit_ns: US,
        is_logarithmic: true,
        positions: ("", &["create", "open", "submit", "poll"]),
        series: &[
            Series(
                Paper,
                "ECho",
                &[Told(850.0), Told(1.5e6), Told(100.0), Told(32.0)],
            ),
            Series(
                Paper,
                "KECho-UL",
                &[Told(182.0), Told(1.5e6), Told(95.0), Told(40.0)],
            ),
            Series(
                Paper,
                "KECho-KL",
                &[Told(170.0), Told(1.5e6), Told(85.0), Told(5.0)],
            ),
            Series(
                Peer,
                "plain Zenoh",
                &[
                    Row("zenoh_create"),
                    Row("zenoh_open"),
                    Row("zenoh_submit"),
                    Row("zenoh_poll"),
                ],
            ),
            Series(
                Ours,
                "ours",
                &[
                    Row("table1_create"),
                    Row("table1_open"),
                    Row("table1_submit"),
                    Row("table1_poll"),
                ],
            ),
        ],
    },
    Figure {
        title: "Figure 6: submitting an event, by its size",
        unit: "of ECho's time, of a socket's",
        unit_ns: 1.0,
        is_logarithmic: false,
        positions: ("bytes", &["100", "500", "1000", "2000"]),
        series: &[
            Series(
                Paper,
                "KECho-KL of ECho",
                &[Told(0.85), Nothing, Told(0.8), Nothing],
            ),
            Series(
                Ours,
                "ours of a send by a socket",
                &[
                    Ratio("fig6_100", "send_100"),
                    Ratio("fig6_500", "send_500"),
                    Ratio("fig6_1000", "send_1000"),
                    Ratio("fig6_2000", "send_2000"),
                ],
            ),
        ],
    },
    Figure {
        title: "Figure 7: a filter at the source (OUT), 8 sinks",
        unit: "us",
        unit_ns: US,
        is_logarithmic: true,
        positions: ("sinks that get the event", &["8", "1", "0"]),
        series: &[
            Series(Paper, "KECho", &[Told(430.0), Told(156.0), Told(56.0)]),
            Series(Peer, "sendmmsg", &[Row("sendmmsg_8"), Nothing, Nothing]),
            Series(
                Peer,
                "plain Zenoh",
                &[Row("fig7_zenoh_8"), Nothing, Nothing],
            ),
            Series(
                Peer,
                "MQTT, with its broker",
                &[Row("fig7_mqtt_8"), Nothing, Nothing],
            ),
            Series(
                Ours,
                "ours",
                &[Row("fig7_out_8"), Row("fig7_out_1"), Row("fig7_out_0")],
            ),
        ],
    },
    Figure {
        title: "Figure 7: a filter at the sink (IN), 8 subscriptions",
        unit: "us",
        unit_ns: US,
        is_logarithmic: true,
        positions: ("subscriptions that get the event", &["8", "1", "0"]),
        series: &[
            Series(Paper, "KECho", &[Told(950.0), Told(312.0), Told(200.0)]),
            Series(
                Peer,
                "8 sockets of a group",
                &[Row("group_recv_8"), Nothing, Nothing],
            ),
            Series(
                Ours,
                "ours, with the sending",
                &[Row("fig7_in_8"), Row("fig7_in_1"), Row("fig7_in_0")],
            ),
        ],
    },
    Figure {
        title: "Figure 8: response times of a host, with and without balancing",
        unit: "s",
        unit_ns: S,
        is_logarithmic: false,
        positions: ("requests per second", &["20", "33", "50"]),
        series: &[
            Series(Paper, "KECho, without", &[Nothing, Told(5.0), Told(5.0)]),
            Series(
                Paper,
                "KECho, with: local",
                &[Nothing, Told(2.5), Told(2.5)],
            ),
            Series(
                Ours,
                "without",
                &[
                    Row("fig8_alone_20"),
                    Row("fig8_alone_33"),
                    Row("fig8_alone_50"),
                ],
            ),
            Series(
                Ours,
                "with: local",
                &[
                    Row("fig8_local_20"),
                    Row("fig8_local_33"),
                    Row("fig8_local_50"),
                ],
            ),
            Series(
                Ours,
                "with: remote",
                &[Nothing, Row("fig8_remote_33"), Row("fig8_remote_50")],
            ),
        ],
    },
    Figure {
        title: "Figure 8 b: processor time of a host that balances",
        unit: "ms in a second",
        unit_ns: MS,
        is_logarithmic: true,
        positions: ("requests per second", &["0", "20", "33", "50"]),
        series: &[
            Series(
                Ours,
                "ours: manager",
                &[
                    Row("fig8_tell_0"),
                    Row("fig8_tell_20"),
                    Row("fig8_tell_33"),
                    Row("fig8_tell_50"),
                ],
            ),
            Series(
                Ours,
                "ours: receiving",
                &[
                    Row("fig8_hear_0"),
                    Row("fig8_hear_20"),
                    Row("fig8_hear_33"),
                    Row("fig8_hear_50"),
                ],
            ),
            Series(
                Ours,
                "ours: choosing",
                &[
                    Nothing,
                    Row("fig8_choose_20"),
                    Row("fig8_choose_33"),
                    Row("fig8_choose_50"),
                ],
            ),
        ],
    },
    Figure {
        title: "Figure 9: processor time of a host by how often loads are told",
        unit: "ms in a second",
        unit_ns: MS,
        is_logarithmic: true,
        positions: ("times in a second", &["1", "5"]),
        series: &[
            Series(Paper, "KECho, at least", &[Nothing, Told(8.0)]),
            Series(Ours, "ours", &[Row("fig9_told_1"), Row("fig9_told_5")]),
        ],
    },
    Figure {
        title: "Figure 9: a request to one host or to several; response times",
        unit: "ms, mean",
        unit_ns: MS,
        is_logarithmic: true,
        positions: ("", &["in turn", "best", "3 best", "5 best", "2 random"]),
        series: &[
            Series(
                Ours,
                "ours, cancelled where it has not begun",
                &[
                    Nothing,
                    Row("fig9_best_1"),
                    Row("fig9_best_3"),
                    Row("fig9_best_5"),
                    Row("fig9_random_2"),
                ],
            ),
            Series(
                Peer,
                "a simple balancer",
                &[Row("fig9_turn"), Nothing, Nothing, Nothing, Nothing],
            ),
        ],
    },
    Figure {
        title: "Figure 9: processor time of managers and clients for a request",
        unit: "ms",
        unit_ns: MS,
        is_logarithmic: false,
        positions: ("hosts that are asked", &["1", "3", "5"]),
        series: &[Series(
            Ours,
            "ours",
            &[
                Row("fig9_cost_best_1"),
                Row("fig9_cost_best_3"),
                Row("fig9_cost_best_5"),
            ],
        )],
    },
];

/// The figures that these rows have; `ns` tells a row's time.
pub(in crate::bench) fn drawing(ns: &dyn Fn(&str) -> Option<f64>) -> String {
    let of = |figure: &Figure, value: &Of| match *value {
        Told(value) => Some(value),
        Row(row) => Some(ns(row)? / figure.unit_ns),
        Ratio(row, base) => Some(ns(row)? / ns(base)?),
        Nothing => None,
    };
    let mut charts = Vec::new();
    for figure in FIGURES {
        let mut has_ours = false;
        let mut values = Vec::new();
        for (&Series(_, name, series), class) in figure.series.iter().zip(classes(figure.series)) {
            let found = series.iter().map(|value| of(figure, value));
            let found: Vec<_> = found.map(|one| one.filter(|one| one.is_finite())).collect();
            let mut both = series.iter().zip(&found);
            has_ours |= both.any(|(of, value)| !matches!(of, Told(_)) && value.is_some());
            values.push(Drawn {
                name,
                class,
                values: found,
            });
        }
        if has_ours {
            charts.push(chart(figure, &values));
        }
    }
    chart::drawing(&charts)
}

/// A series as it is drawn.
#[derive(Debug)]
struct Drawn {
    name: &'static str,
    class: usize,
    values: Vec<Option<f64>>,
}

/// The place of each value on an axis, and the axis' marks.
struct Axis {
    least: f64,
    most: f64,
    is_logarithmic: bool,
}

impl Axis {
    fn of(figure: &Figure, series: &[Drawn]) -> Axis {
        let all = || {
            let values = series.iter().flat_map(|one| &one.values);
            values.flatten().copied()
        };
        let (least, most) = (
            all().fold(f64::INFINITY, f64::min),
            all().fold(1e-9, f64::max),
        );
        let (least, most) = if figure.is_logarithmic {
            // The least one is to be seen, too.
            (
                10_f64.powf((least / 1.5).log10().floor()),
                10_f64.powf(most.log10().ceil()),
            )
        } else {
            let step = nice_step(most);
            (0.0, (most / step).ceil() * step)
        };
        Axis {
            least,
            most,
            is_logarithmic: figure.is_logarithmic,
        }
    }

    fn part(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            (value / self.least).log10() / (self.most / self.least).log10()
        } else {
            value / self.most
        }
    }

    fn marks(&self) -> Vec<f64> {
        let step = nice_step(self.most);
        let mut mark = self.least;
        let mut marks = Vec::new();
        while mark <= self.most * 1.0001 {
            marks.push(mark);
            mark = if self.is_logarithmic {
                mark * 10.0
            } else {
                mark + step
            };
        }
        marks
    }
}

/// One chart and its height.
fn chart(figure: &Figure, series: &[Drawn]) -> (String, f64) {
    let axis = Axis::of(figure, series);
    let names = series.iter().map(|one| (one.class, one.name.to_owned()));
    let names: Vec<_> = names.collect();
    let (name, positions) = figure.positions;
    chart::titled(figure.title, &names, |drawn| {
        for mark in axis.marks() {
            drawn.mark_y(axis.part(mark), &written(mark));
        }
        drawn.names(name, figure.unit);
        let width = 1.0 / positions.len() as f64;
        let bar = width * 0.8 / series.len() as f64;
        for (at, position) in positions.iter().enumerate() {
            let begin = width * at as f64;
            drawn.name_x(begin + width / 2.0, position);
            // Those that have a value there stand around its name.
            let there = series.iter().filter_map(|one| Some((one, one.values[at]?)));
            let there: Vec<_> = there.collect();
            let mut from = begin + (width - bar * there.len() as f64) / 2.0;
            for (one, value) in there {
                let (name, value_text) = (one.name, written(value));
                let title = format!("{name}, {position}: {value_text} {}", figure.unit);
                drawn.bar(
                    &class(one.class),
                    &title,
                    from,
                    from + bar * 0.9,
                    axis.part(value),
                );
                from += bar;
            }
        }
    })
}

/// With two digits, at least, but without zeros at the end.
fn written(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", short(value / 1e6)),
        value if value >= 1e4 => format!("{}k", short(value / 1e3)),
        value if value >= 1.0 || value == 0.0 => short(value),
        value => format!("{value:.2}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::SECTIONS;
    use super::*;

    #[test]
    fn each_row_that_is_drawn_is_measured_and_each_position_has_a_value() {
        let known = |row: &str| SECTIONS.iter().any(|section| section.rows.contains(&row));
        for figure in FIGURES {
            for Series(_, name, values) in figure.series {
                assert_eq!(
                    values.len(),
                    figure.positions.1.len(),
                    "{}: {name}",
                    figure.title
                );
                for value in *values {
                    match value {
                        Row(row) => assert!(known(row), "{row}"),
                        Ratio(row, base) => assert!(known(row) && known(base), "{row}"),
                        Told(_) | Nothing => {}
                    }
                }
            }
        }
    }

    #[test]
    fn figures_with_a_row_are_drawn_and_others_are_not() {
        let all = drawing(&|_| Some(3e6));
        assert_eq!(all.matches("class=\"title\"").count(), FIGURES.len());
        assert_eq!(all.matches("<g ").count(), all.matches("</g>").count());
        let none = drawing(&|_| None);
        assert!(
            !none.contains("class=\"bar") && !none.contains("NaN"),
            "{none}"
        );
        let one = drawing(&|row| (row == "fig7_out_1").then_some(4700.0));
        assert_eq!(one.matches("class=\"title\"").count(), 1);
        // KECho's three, and ours.
        assert_eq!(one.matches("class=\"bar").count(), 4);
        assert!(one.contains("ours, 1: 4.7 us"), "{one}");
        assert!(!drawing(&|_| Some(f64::NAN)).contains("NaN"));
    }

    #[test]
    fn ours_has_one_colour_in_all_figures_and_no_two_series_of_one_have_the_same() {
        for figure in FIGURES {
            let mut found: Vec<usize> = classes(figure.series).collect();
            for (class, Series(whose, name, values)) in found.iter().zip(figure.series) {
                let has_row = values.iter().any(|one| !matches!(one, Told(_) | Nothing));
                assert_eq!(*whose != Paper, has_row, "{name}");
                assert!(*class != 2 || *whose == Ours, "{name}");
                assert!(
                    *class == 2 || *whose != Ours || name.contains(": "),
                    "{name}"
                );
            }
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), figure.series.len(), "{}", figure.title);
        }
    }

    #[test]
    fn marks_are_short() {
        let marks = [0.01, 0.1, 0.5, 1.0, 1.5, 1000.0, 57e3, 1e5, 1.5e6];
        let marks = marks.map(written);
        let expected = [
            "0.01", "0.1", "0.5", "1", "1.5", "1000", "57k", "100k", "1.5M",
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn logarithmic_axis_has_a_mark_for_each_power_of_ten() {
        let values = [Drawn {
            name: "a",
            class: 0,
            values: vec![Some(0.05), None, Some(1.5e6), Some(30.0)],
        }];
        let axis = Axis::of(&FIGURES[0], &values);
        assert_eq!(axis.marks().len(), 10, "from 0.01 to 10 million");
        assert!((axis.part(0.05) - 0.699 / 9.0).abs() < 1e-3);
        let axis = Axis::of(&FIGURES[1], &values);
        assert_eq!((axis.least, axis.most), (0.0, 1.5e6));
    }
}
