//! Printing, shared by all subcommands: tables for people, one JSON object per line for programs.
//!
//! All output goes through one buffer, because a system call per line would be slower than the
//! events. A subcommand that prints as events happen calls [`Output::flush`] when it has nothing
//! left to print; dropping the output flushes too, but cannot report an error, so `run` ends with
//! [`Output::flush`].

use std::fmt;
use std::io::{BufWriter, Stdout, Write};

use ecalls::DropReason;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::exit::Outcome;

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 64 * 1024;

/// Moves the cursor to the upper left corner and clears the screen: for tables that follow each
/// other.
pub const CLEAR: &str = "\x1b[H\x1b[J";

/// Spaces between two columns.
const GAP: &str = "  ";

/// Standard output, buffered.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<Stdout>,
    json: bool,
}

impl Output {
    /// Standard output, for JSON lines or for people.
    pub fn new(json: bool) -> Output {
        Output {
            out: BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout()),
            json,
        }
    }

    /// Whether the user asked for JSON lines.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one object as one line of JSON.
    pub fn object(&mut self, object: &impl Serialize) -> Outcome {
        serde_json::to_writer(&mut self.out, object)?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// Prints a line of text.
    pub fn line(&mut self, text: impl fmt::Display) -> Outcome {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Prints a table.
    pub fn table(&mut self, table: &Table) -> Outcome {
        Ok(write!(self.out, "{table}")?)
    }

    /// Writes everything that is buffered.
    pub fn flush(&mut self) -> Outcome {
        Ok(self.out.flush()?)
    }
}

/// Writes bytes to standard output.
pub fn write_all(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// A program chooses its name, so control characters are escaped to protect the terminal.
pub fn safe(name: &str) -> String {
    let letters = name.chars();
    letters
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Prints a line that is not data on standard error. A failure to write there is ignored.
pub fn note(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of text, in columns as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Row>,
}

#[derive(Debug)]
enum Row {
    Cells(Vec<String>),
    /// A line of its own under a row.
    Note(String),
}

impl Table {
    /// An empty table. A column whose name begins with `>` is aligned to the right, as numbers are.
    pub fn new(columns: &[&'static str]) -> Table {
        let column = |name: &'static str| match name.strip_prefix('>') {
            Some(name) => (name, Align::Right),
            None => (name, Align::Left),
        };
        Table {
            columns: columns.iter().map(|name| column(name)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, one text per column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(Row::Cells(cells));
    }

    /// Adds a line under the last row, indented.
    pub fn note(&mut self, text: impl Into<String>) {
        self.rows.push(Row::Note(text.into()));
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.len()).collect();
        for row in &self.rows {
            if let Row::Cells(cells) = row {
                for (width, cell) in widths.iter_mut().zip(cells) {
                    *width = (*width).max(cell.chars().count());
                }
            }
        }
        widths
    }

    fn write_row(
        &self,
        f: &mut fmt::Formatter<'_>,
        widths: &[usize],
        cells: &[impl AsRef<str>],
    ) -> fmt::Result {
        let mut line = String::new();
        for (((_, align), width), cell) in self.columns.iter().zip(widths).zip(cells) {
            let cell = cell.as_ref();
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            match align {
                Align::Left => line.extend([cell, &gap]),
                Align::Right => line.extend([&gap, cell]),
            }
        }
        writeln!(f, "{}", line.trim_end())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        self.write_row(f, &widths, &names)?;
        for row in &self.rows {
            match row {
                Row::Cells(cells) => self.write_row(f, &widths, cells)?,
                Row::Note(text) => writeln!(f, "    {text}")?,
            }
        }
        Ok(())
    }
}

/// A text behind a label, in lines of at most `width` columns; further lines are indented to its
/// start.
pub fn wrap(label: &str, text: &str, width: usize) -> Vec<String> {
    let indent = label.chars().count();
    let mut lines = vec![label.to_owned()];
    let (mut column, mut at_start) = (indent, true);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !at_start && column + 1 + length > width {
            lines.push(" ".repeat(indent));
            (column, at_start) = (indent, true);
        }
        let line = lines.last_mut().expect("there is a first line");
        if !at_start {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        (column, at_start) = (column + length, false);
    }
    lines
}

/// Counts of dropped events by reason. As text: the ones that are not 0; as JSON: an object with
/// all reasons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dropped(pub [u64; ecalls_abi::channel::DROP_REASONS]);

impl Dropped {
    /// Their sum.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.total() == 0 {
            return write!(f, "0");
        }
        write!(f, "{}", self.total())?;
        let mut separator = " (";
        for reason in DropReason::ALL {
            let count = self.0[reason.index()];
            if count != 0 {
                write!(f, "{separator}{} {count}", reason.name())?;
                separator = ", ";
            }
        }
        write!(f, ")")
    }
}

impl Serialize for Dropped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(DropReason::ALL.len()))?;
        for reason in DropReason::ALL {
            map.serialize_entry(reason.name(), &self.0[reason.index()])?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let mut table = Table::new(&["NAME", ">COUNT", "LAST"]);
        table.row(["a", "12345678", "x"].map(str::to_owned));
        table.row(["longer", "1", ""].map(str::to_owned));
        table.note("under it");
        let text = "NAME       COUNT  LAST\n\
                    a       12345678  x\n\
                    longer         1\n    under it\n";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn a_long_text_stands_behind_its_label() {
        assert_eq!(
            wrap("a: ", "bb cc dddddddddd e", 8),
            ["a: bb cc", "   dddddddddd", "   e"]
        );
        assert_eq!(wrap("a: ", "", 8), ["a: "]);
    }

    #[test]
    fn dropped_events_are_told_by_reason() {
        let mut dropped = Dropped::default();
        assert_eq!(dropped.to_string(), "0");
        dropped.0[DropReason::RingFull.index()] = 5;
        dropped.0[DropReason::Nested.index()] = 2;
        assert_eq!(dropped.to_string(), "7 (ring_full 5, nested 2)");
        let json = serde_json::to_value(dropped).expect("an object");
        assert_eq!(json["ring_full"], 5);
        assert_eq!(json["queue_full"], 0);
    }
}
