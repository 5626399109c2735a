//! Places in a text: every token, tree node and instruction keeps its span, so that every later
//! error, even of the kernel's verifier, can be reported with its line.

/// A range of bytes of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

impl Span {
    /// From the beginning of this span to the end of that one.
    pub fn to(self, last: Span) -> Span {
        Span {
            start: self.start,
            end: last.end.max(self.start),
        }
    }
}

/// A text with its name in messages: that of its file, or an option (`--where`).
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in messages.
    pub name: String,
    pub text: String,
    /// Byte at which each line begins.
    lines: Vec<u32>,
}

/// Line and column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl Source {
    /// Takes a text of at most [`crate::limits::TEXT_BYTES`] bytes (the lexer refuses longer ones).
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        let text = text.into();
        let starts = text.bytes().zip(1u32..).filter(|(byte, _)| *byte == b'\n');
        let lines = std::iter::once(0)
            .chain(starts.map(|(_, next)| next))
            .collect();
        Source {
            name: name.into(),
            text,
            lines,
        }
    }

    /// The line and column of a byte.
    pub fn position(&self, byte: u32) -> Position {
        let line = self.lines.partition_point(|start| *start <= byte).max(1);
        let start = self.lines[line - 1] as usize;
        let end = (byte as usize).min(self.text.len());
        let before = self.text.get(start..end).unwrap_or_default();
        Position {
            line: line as u32,
            column: before.chars().count() as u32 + 1,
        }
    }

    /// Where a byte is: `filter.ec:3:12`.
    pub fn at(&self, byte: u32) -> String {
        let Position { line, column } = self.position(byte);
        format!("{}:{line}:{column}", self.name)
    }

    /// The text of a line (from 1), without its end.
    pub fn line(&self, line: u32) -> &str {
        let at = line.saturating_sub(1) as usize;
        let start = self
            .lines
            .get(at)
            .map_or(self.text.len(), |start| *start as usize);
        self.text[start..].lines().next().unwrap_or_default()
    }

    /// The text of a span; empty if it lies outside.
    pub fn text_of(&self, span: Span) -> &str {
        self.text
            .get(span.start as usize..span.end as usize)
            .unwrap_or_default()
    }
}
