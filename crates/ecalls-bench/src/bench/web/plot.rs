//! The four figures as one drawing in SVG, in the papers' shape: what is offered to the right, and
//! upwards what comes back of it, or how long it takes.

use super::super::chart::{self, class, nice_step, short};
use super::Line;

type Of = fn(&Line) -> Option<f64>;

fn replies(line: &Line) -> Option<f64> {
    Some(line.replies_per_s)
}

fn median(line: &Line) -> Option<f64> {
    line.p50_ms
}

/// The figures that these lines have.
pub(super) fn drawing(lines: &[Line]) -> String {
    let mut charts = Vec::new();
    let mut idle: Vec<u32> = lines.iter().map(|line| line.idle).collect();
    idle.sort_unstable();
    idle.dedup();
    for idle in idle {
        for (row, what, unit, of) in [
            (
                "fig6",
                "small page, replies",
                "replies per second",
                replies as Of,
            ),
            ("fig7", "small page, response time", "ms, median", median),
            (
                "fig9",
                "costly page, replies",
                "replies per second",
                replies,
            ),
            ("fig10", "costly page, response time", "ms, median", median),
        ] {
            let of_chart =
                |line: &&Line| (line.row, line.idle, line.clients) == (row, idle, "ours");
            let lines: Vec<&Line> = lines.iter().filter(of_chart).collect();
            if !lines.is_empty() {
                let beside = match idle {
                    0 => String::new(),
                    idle => format!(", beside {idle} idle connections"),
                };
                let title = format!("{row}: {what}{beside}");
                charts.push(chart(&title, unit, &lines, of));
            }
        }
    }
    chart::drawing(&charts)
}

/// One chart and its height.
fn chart(title: &str, unit: &str, lines: &[&Line], of: Of) -> (String, f64) {
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1e-3, f64::max);
    let right = most(&mut lines.iter().map(|line| line.offered_per_s));
    let up = most(&mut lines.iter().filter_map(|line| of(line)));
    let step = nice_step(up);
    let top = (up / step).ceil() * step;
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        let name = name(line);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let legend: Vec<_> = names.iter().cloned().enumerate().collect();
    chart::titled(title, &legend, |drawn| {
        for (limit, of_x) in [(top, false), (right, true)] {
            let step = nice_step(limit);
            let mut mark = 0.0;
            while mark <= limit * 1.0001 {
                match of_x {
                    true => drawn.mark_x(mark / limit, &short(mark)),
                    false => drawn.mark_y(mark / limit, &short(mark)),
                }
                mark += step;
            }
        }
        drawn.names("requests offered per second", unit);
        for (number, one) in names.iter().enumerate() {
            let points = lines.iter().filter(|line| name(line) == *one);
            let points =
                points.filter_map(|line| Some((line.offered_per_s / right, of(line)? / top)));
            drawn.line(&class(number), one, points);
        }
    })
}

fn name(line: &Line) -> String {
    let server = match line.server {
        "web" => line.mode.to_owned(),
        other => other.to_owned(),
    };
    match line.guard {
        "none" => server,
        guard => format!("guard, {guard}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_chart_and_each_series_a_line() {
        let line = |row, mode, guard, offered_per_s| Line {
            row,
            server: "web",
            mode,
            offered_per_s,
            idle: 0,
            guard,
            clients: "ours",
            replies_per_s: 10.0,
            refused_per_s: 0.0,
            p50_ms: Some(3.0),
            p99_ms: None,
            cpu_us_per_request: None,
            calls_per_request: None,
            under_way: None,
            kept_from: 0.0,
        };
        let mut lines = Vec::new();
        for row in ["fig6", "fig7", "fig9", "fig10"] {
            for (mode, guard) in [("epoll", "none"), ("epoll", "drop"), ("select", "none")] {
                lines.extend([100.0, 300.0].map(|per_s| line(row, mode, guard, per_s)));
            }
        }
        let text = drawing(&lines);
        assert_eq!(text.matches("class=\"title\"").count(), 4);
        assert_eq!(text.matches("class=\"line").count(), 12);
        assert!(text.contains("guard, drop") && text.starts_with("<svg xmlns="));
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
        assert!(!drawing(&[]).contains("NaN"));
    }
}
