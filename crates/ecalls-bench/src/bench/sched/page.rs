//! `report.html`: the results as a page. It is one self-contained file, with every drawing as
//! inline SVG.
//!
//! For each run: the distribution of the timers' lateness (logarithmic); CPU shares and frame rates
//! over time, with a drawing per scheduler side by side on the same axes; and the tables of figures
//! as the command prints them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::chart::{Chart, escaped, nice_step, short};
use super::measured::{Measured, by_row};
use super::series::{Series, Thread};

/// The lateness axis: from 1 us to a second.
const DECADES: f64 = 6.0;

const STYLE: &str = include_str!("page.css");

/// The page.
pub(super) fn page(measured: &[Measured], series: &[Series]) -> String {
    let mut html =
        String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html += "<meta name=\"viewport\" content=\"width=device-width\">\n";
    let _ = write!(
        html,
        "<title>Schedulers, side by side</title>\n<style>\n{STYLE}</style>\n"
    );
    html += "</head>\n<body>\n<h1>Schedulers, side by side</h1>\n";
    html += INTRODUCTION;
    for name in names(series.iter().map(|one| one.series.as_str())) {
        let of_run: Vec<&Series> = series.iter().filter(|one| one.series == name).collect();
        run(&mut html, &of_run);
    }
    tables(&mut html, measured);
    html += "</body>\n</html>\n";
    html
}

const INTRODUCTION: &str = "<p>The workloads of <i>Adaptive Multimedia on Cooperative Polling</i> \
(Krasic et al., EuroSys 2009, section 5), all on one CPU: <b>players</b> show a frame at a time \
and decode as many as they get CPU for; <b>hogs</b> take what they can get. <b>ecalls</b> is this \
project's scheduler, <b>eevdf</b> the kernel's own, <b>rr</b> the kernel's with the players in \
SCHED_RR.</p>\n";

/// The distinct names, in order of appearance.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    all.filter(|name| seen.insert(*name)).collect()
}

/// The charts of one workload.
fn run(html: &mut String, of_run: &[&Series]) {
    let Some(first) = of_run.first() else { return };
    let _ = writeln!(html, "<h2>{}</h2>", escaped(&first.what));
    *html += "<h3>How late timers were</h3>\n<div class=\"row\"><figure>\n";
    lateness(html, of_run);
    *html += "</figure></div>\n";
    let share =
        |thread: &Thread| -> Vec<f64> { thread.share.iter().map(|share| share * 100.0).collect() };
    let most_share = most(of_run, share);
    let unit = "share of the CPU, %";
    chart_of_each(html, "Who had the CPU", unit, of_run, share, most_share);
    // The rates of single intervals would jump by whole frames.
    let fps = |thread: &Thread| over_a_second(&thread.fps, first.interval_ms);
    let most_fps = most(of_run, fps);
    if most_fps > 0.0 {
        let unit = "per second, over the last second";
        chart_of_each(html, "Frames decoded", unit, of_run, fps, most_fps);
    }
}

/// The mean of each value and those of the second before it.
fn over_a_second(values: &[f64], interval_ms: u64) -> Vec<f64> {
    let most = usize::try_from(1000 / interval_ms.max(1))
        .unwrap_or(1)
        .max(1);
    let mean = |end: usize| {
        let part = &values[end.saturating_sub(most)..end];
        part.iter().sum::<f64>() / part.len() as f64
    };
    (1..=values.len()).map(mean).collect()
}

fn most(of_run: &[&Series], values: impl Fn(&Thread) -> Vec<f64>) -> f64 {
    let threads = of_run.iter().flat_map(|series| &series.threads);
    threads.flat_map(values).fold(0.0, f64::max)
}

/// A chart over time per scheduler, all on the same axes.
fn chart_of_each(
    html: &mut String,
    title: &str,
    unit: &str,
    of_run: &[&Series],
    values: impl Fn(&Thread) -> Vec<f64>,
    most: f64,
) {
    let _ = writeln!(html, "<h3>{title}</h3>\n<div class=\"row\">");
    let step = nice_step(most);
    let top = (most / step).ceil().max(1.0) * step;
    for series in of_run {
        let scheduler = escaped(&series.scheduler);
        let _ = writeln!(html, "<figure><figcaption>{scheduler}</figcaption>");
        let length = series
            .threads
            .iter()
            .map(|thread| values(thread).len())
            .max();
        let seconds = length.unwrap_or(0) as f64 * series.interval_ms as f64 / 1000.0;
        let seconds = seconds.max(1.0);
        let mut chart = Chart::begin(html);
        let mut mark = 0.0;
        while mark <= top + step / 2.0 {
            chart.mark_y(mark / top, &short(mark));
            mark += step;
        }
        for second in 0..=(seconds as u32) {
            chart.mark_x(f64::from(second) / seconds, &second.to_string());
        }
        chart.names("s", unit);
        for thread in &series.threads {
            let interval = series.interval_ms as f64 / 1000.0;
            let points = values(thread)
                .into_iter()
                .zip(1..)
                .map(|(value, at)| (f64::from(at) * interval / seconds, value / top));
            let class = if thread.is_hog { "hog" } else { "player" };
            chart.line(class, &thread.name, points);
        }
        chart.end();
        *html += "</figure>\n";
    }
    *html += "</div>\n";
}

/// The cumulative distribution of lateness under each scheduler.
fn lateness(html: &mut String, of_run: &[&Series]) {
    let at = |us: f64| us.max(1.0).log10() / DECADES;
    let mut chart = Chart::begin(html);
    for (exponent, text) in ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]
        .iter()
        .enumerate()
    {
        chart.mark_x(exponent as f64 / DECADES, text);
    }
    for percent in [0, 25, 50, 75, 100] {
        chart.mark_y(f64::from(percent) / 100.0, &percent.to_string());
    }
    chart.names("", "% of timers at most so late");
    for (series, number) in of_run.iter().zip(0..) {
        let points = series.late_us.iter().map(|(part, us)| (at(*us), *part));
        chart.line(&format!("s{number}"), &series.scheduler, points);
    }
    chart.end();
    *html += "<figcaption class=\"legend\">";
    for (series, number) in of_run.iter().zip(0..) {
        let scheduler = escaped(&series.scheduler);
        let _ = write!(*html, "<span class=\"s{number}\">{scheduler}</span> ");
    }
    *html += "</figcaption>\n";
}

fn tables(html: &mut String, measured: &[Measured]) {
    for (lines, figures) in by_row(measured) {
        let Some(first) = lines.first() else { continue };
        let _ = writeln!(
            html,
            "<h3>{} <small>{}: {}</small></h3>\n<table>\n<tr><th></th>",
            escaped(&first.row),
            escaped(&first.source),
            escaped(&first.what)
        );
        for figure in &figures {
            let _ = write!(html, "<th>{}</th>", figure.name());
        }
        *html += "</tr>\n";
        for line in lines {
            let _ = write!(html, "<tr><td>{}</td>", escaped(&line.scheduler));
            for figure in &figures {
                let _ = write!(html, "<td>{}</td>", line.show(*figure));
            }
            *html += "</tr>\n";
        }
        *html += "</table>\n";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_of_a_second() {
        let means = over_a_second(&[4.0, 8.0, 0.0, 0.0, 8.0], 250);
        assert_eq!(means, [4.0, 6.0, 4.0, 3.0, 4.0]);
        assert_eq!(over_a_second(&[4.0, 8.0], 2000), [4.0, 8.0]);
    }

    #[test]
    fn page_holds_every_run_and_nothing_that_is_not_escaped() {
        let thread = Thread {
            name: "player <1>".to_owned(),
            is_hog: false,
            share: vec![0.1, 0.2],
            fps: vec![20.0, 24.0],
        };
        let series = Series {
            series: "fig6_groups".to_owned(),
            scheduler: "a & b".to_owned(),
            what: "8 players".to_owned(),
            interval_ms: 250,
            late_us: vec![(0.0, 0.0), (0.5, 20.0), (1.0, 2_000_000.0)],
            threads: vec![thread],
        };
        let text = page(&[], &[series]);
        assert!(text.contains("a &amp; b") && text.contains("player &lt;1&gt;"));
        assert_eq!(text.matches("<svg").count(), 3, "lateness, shares, frames");
        assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
        assert!(!text.contains("NaN"));
    }
}
