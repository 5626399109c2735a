//! A reported row, either read from JSON or just measured.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::figures::Figure;

/// One line of figures.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Measured {
    pub(super) row: String,
    pub(super) scheduler: String,
    pub(super) source: String,
    pub(super) what: String,
    /// Its other keys.
    #[serde(flatten)]
    figures: BTreeMap<String, serde_json::Value>,
}

/// The lines of each row, with the figures that at least one of them has, in order.
pub(super) fn by_row(measured: &[Measured]) -> Vec<(Vec<&Measured>, Vec<Figure>)> {
    let mut rows: Vec<Vec<&Measured>> = Vec::new();
    for line in measured {
        match rows.iter_mut().find(|lines| lines[0].row == line.row) {
            Some(lines) => lines.push(line),
            None => rows.push(vec![line]),
        }
    }
    rows.into_iter()
        .map(|lines| {
            let figures = figures_of(&lines);
            (lines, figures)
        })
        .collect()
}

fn figures_of(lines: &[&Measured]) -> Vec<Figure> {
    let all = Figure::ALL.iter().map(|(figure, ..)| *figure);
    let has = |figure: &Figure| lines.iter().any(|line| line.get(*figure).is_some());
    all.filter(has).collect()
}

impl Measured {
    /// The value of a figure as text.
    pub(super) fn show(&self, figure: Figure) -> String {
        match self.get(figure) {
            Some(value) => figure.show(value),
            None => "-".to_owned(),
        }
    }

    fn get(&self, figure: Figure) -> Option<f64> {
        self.figures.get(figure.name())?.as_f64()
    }
}
