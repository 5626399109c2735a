//! A drawing of lines or bars in SVG, for the pages and files that measurements write; and a file
//! of several ([`drawing`]), each with a title and a legend.

use std::fmt::Write as _;

/// The size of a chart's drawing area, and its margins, in SVG units.
pub(super) const WIDTH: f64 = 420.0;
pub(super) const HEIGHT: f64 = 200.0;
pub(super) const LEFT: f64 = 46.0;
pub(super) const TOP: f64 = 10.0;
pub(super) const BOTTOM: f64 = 34.0;
pub(super) const RIGHT: f64 = 12.0;
/// Above and below a chart of several: its title, and lines of its legend.
const TITLE: f64 = 22.0;
const LEGEND_LINE: f64 = 15.0;
/// Characters of a legend's line.
const LEGEND_WIDTH: usize = 76;
const STYLE: &str = "svg { background: #fff; } text { font: 11px sans-serif; fill: #1c2430; } \
                     .title { font-weight: 600; font-size: 12px; } \
                     .grid { stroke: #d9dee6; fill: none; } \
                     .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }";
const COLOURS: [&str; 13] = [
    "#c2410c", "#a16207", "#2a6fdb", "#0b8f5a", "#7c3aed", "#db2777", "#0891b2", "#65a30d",
    "#475569", "#b91c1c", "#1d4ed8", "#0f766e", "#9333ea",
];

/// The class of the series with this number.
pub(super) fn class(number: usize) -> String {
    format!("c{}", number % COLOURS.len())
}

/// One of several charts: its text and its height. `names`: of its series, with the number of each
/// one's class.
pub(super) fn titled(
    title: &str,
    names: &[(usize, String)],
    draw: impl FnOnce(&mut Chart<'_>),
) -> (String, f64) {
    let title = escaped(title);
    let mut text = format!("<text class=\"title\" x=\"{LEFT}\" y=\"14\">{title}</text>\n");
    let _ = writeln!(text, "<g transform=\"translate(0 {TITLE})\">");
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    let mut drawn = Chart::begin_sized(&mut text, width, height);
    draw(&mut drawn);
    drawn.end();
    text += "</g>\n";
    let legend = legend(&mut text, names, TITLE + height + LEGEND_LINE);
    (text, TITLE + height + LEGEND_LINE * (legend as f64 + 1.0))
}

/// Writes it, and returns its lines.
fn legend(text: &mut String, names: &[(usize, String)], from: f64) -> usize {
    let (mut line, mut used) = (0, 0);
    let mut open = false;
    for (number, name) in names {
        if !open || used + name.len() > LEGEND_WIDTH {
            if open {
                *text += "</text>\n";
                line += 1;
            }
            let y = from + LEGEND_LINE * line as f64;
            let _ = write!(text, "<text x=\"{LEFT}\" y=\"{y}\">");
            (open, used) = (true, 0);
        }
        let colour = COLOURS[number % COLOURS.len()];
        let name = escaped(name);
        let _ = write!(
            text,
            "<tspan style=\"fill:{colour}\">\u{25a0} {name}</tspan>  "
        );
        used += name.len() + 4;
    }
    if open {
        *text += "</text>\n";
    }
    line + 1
}

/// A file with these charts, two beside each other.
pub(super) fn drawing(charts: &[(String, f64)]) -> String {
    let width = LEFT + WIDTH + RIGHT;
    let mut body = String::new();
    let mut y = 0.0;
    for row in charts.chunks(2) {
        for (number, (text, _)) in row.iter().enumerate() {
            let x = width * number as f64;
            let _ = writeln!(body, "<g transform=\"translate({x} {y})\">\n{text}</g>");
        }
        y += row.iter().map(|(_, height)| *height).fold(0.0, f64::max);
    }
    let of_colour = |(number, colour)| {
        format!(
            ".line.c{number} {{ stroke: {colour}; }} \
             tspan.c{number}, .bar.c{number} {{ fill: {colour}; }}\n"
        )
    };
    let colours: String = (0..).zip(COLOURS).map(of_colour).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {y}\">\n\
         <style>{STYLE}\n{colours}</style>\n{body}</svg>\n",
        width * 2.0
    )
}

/// A chart while it is being drawn. Positions are fractions of its area, from the left and from
/// below.
pub(super) struct Chart<'a>(&'a mut String);

impl Chart<'_> {
    pub(super) fn begin(html: &mut String) -> Chart<'_> {
        let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
        let _ = writeln!(html, "<svg viewBox=\"0 0 {width} {height}\" role=\"img\">");
        Chart(html)
    }

    /// In a drawing of several, which has no other measure.
    pub(super) fn begin_sized(html: &mut String, width: f64, height: f64) -> Chart<'_> {
        let _ = writeln!(html, "<svg width=\"{width}\" height=\"{height}\">");
        Chart(html)
    }

    fn x(part: f64) -> f64 {
        LEFT + part.clamp(0.0, 1.0) * WIDTH
    }

    fn y(part: f64) -> f64 {
        TOP + (1.0 - part.clamp(0.0, 1.0)) * HEIGHT
    }

    pub(super) fn mark_x(&mut self, part: f64, text: &str) {
        let (x, bottom) = (Self::x(part), TOP + HEIGHT);
        let _ = writeln!(
            self.0,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            bottom + 15.0
        );
    }

    pub(super) fn mark_y(&mut self, part: f64, text: &str) {
        let (y, right) = (Self::y(part), LEFT + WIDTH);
        let _ = writeln!(
            self.0,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 5.0,
            y + 4.0
        );
    }

    pub(super) fn names(&mut self, x: &str, y: &str) {
        let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT + 30.0);
        let middle = TOP + HEIGHT / 2.0;
        let _ = writeln!(
            self.0,
            "<text x=\"{right}\" y=\"{bottom}\" text-anchor=\"end\">{x}</text>\
             <text transform=\"translate(11 {middle}) rotate(-90)\" \
             text-anchor=\"middle\">{y}</text>"
        );
    }

    pub(super) fn line(
        &mut self,
        class: &str,
        title: &str,
        points: impl Iterator<Item = (f64, f64)>,
    ) {
        let mut path = String::new();
        for (x, y) in points {
            let verb = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{:.1} {:.1}", Self::x(x), Self::y(y));
        }
        if path.is_empty() {
            return; // no values, because hogs decode no frames
        }
        let title = escaped(title);
        let _ = writeln!(
            self.0,
            "<path class=\"line {class}\" d=\"{path}\"><title>{title}</title></path>"
        );
    }

    /// From one position to another, as high as that, with what it is.
    pub(super) fn bar(&mut self, class: &str, title: &str, from: f64, to: f64, high: f64) {
        let (x, y) = (Self::x(from), Self::y(high));
        let (width, height) = (Self::x(to) - x, TOP + HEIGHT - y);
        let title = escaped(title);
        let _ = writeln!(
            self.0,
            "<rect class=\"bar {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{title}</title></rect>"
        );
    }

    /// What is written below a position, without a line.
    pub(super) fn name_x(&mut self, part: f64, text: &str) {
        let (x, y, text) = (Self::x(part), TOP + HEIGHT + 15.0, escaped(text));
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>"
        );
    }

    pub(super) fn end(self) {
        *self.0 += "</svg>\n";
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives about six marks.
pub(super) fn nice_step(most: f64) -> f64 {
    let rough = (most / 5.0).max(1e-6);
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let found = steps.into_iter().find(|step| step * power >= rough);
    found.unwrap_or(10.0) * power
}

/// The text of a mark, without trailing zeros.
pub(super) fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (most, step) in [
            (1.0, 0.2),
            (9.3, 2.0),
            (34.0, 10.0),
            (100.0, 20.0),
            (26.0, 10.0),
        ] {
            assert!(
                (nice_step(most) - step).abs() < 1e-9,
                "{most}: {}",
                nice_step(most)
            );
        }
    }
}
