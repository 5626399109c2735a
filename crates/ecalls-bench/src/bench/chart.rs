//! A drawing of lines in SVG, for the pages and files that measurements write.

use std::fmt::Write as _;

/// The size of a chart's drawing area, and its margins, in SVG units.
pub(super) const WIDTH: f64 = 420.0;
pub(super) const HEIGHT: f64 = 200.0;
pub(super) const LEFT: f64 = 46.0;
pub(super) const TOP: f64 = 10.0;
pub(super) const BOTTOM: f64 = 34.0;
pub(super) const RIGHT: f64 = 12.0;

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
