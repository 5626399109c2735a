//! Errors and warnings for the author of a text: a place, the error, the expectation, and advice. A
//! compilation collects all of them, up to [`crate::limits::DIAGNOSTICS`], and shows each with its
//! line and carets under the exact token.
//!
//! ```text
//! filter.ec:3:12: error: 'input' has no field 'byte'
//!     if (input.byte > 1000)
//!               ^^^^
//!     hint: did you mean 'bytes'?
//! ```

use std::cmp::Reverse;
use std::fmt::{self, Write};

use crate::limits::DIAGNOSTICS;
use crate::source::{Source, Span};
use crate::tree::Fault;

/// Whether the text can still become a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program can run, but perhaps not as its author meant.
    Warning,
    /// The text cannot become a program.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the text can still become a program.
    pub severity: Severity,
    /// The token or expression concerned.
    pub span: Span,
    /// The message, without a full stop.
    pub message: String,
    /// Advice; empty if it is obvious.
    pub hint: String,
}

impl Diagnostic {
    /// An error.
    pub fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            span,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// A warning.
    pub fn warning(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(span, message)
        }
    }

    /// The same, with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = hint.into();
        self
    }
}

/// All findings of a compilation that failed, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// At least one of them is an error.
    pub all: Vec<Diagnostic>,
    /// The number of findings that were left out.
    pub left_out: u32,
}

impl Diagnostics {
    /// Sorts findings in the order of the text; if there are too many, keeps errors rather than
    /// warnings.
    pub fn new(mut all: Vec<Diagnostic>) -> Diagnostics {
        let left_out = all.len().saturating_sub(DIAGNOSTICS);
        if left_out > 0 {
            all.sort_by_key(|one| (Reverse(one.severity), one.span.start));
            all.truncate(DIAGNOSTICS);
        }
        all.sort_by_key(|one| one.span.start);
        Diagnostics {
            all,
            left_out: left_out as u32,
        }
    }

    /// As text for people, as at the head of this file.
    pub fn render(&self, source: &Source) -> String {
        let mut text = String::new();
        for diagnostic in &self.all {
            render(&mut text, source, diagnostic);
        }
        if self.left_out > 0 {
            let _ = writeln!(text, "{}: {} more", source.name, self.left_out);
        }
        text
    }
}

impl fmt::Display for Diagnostics {
    /// Without the text: the first error's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.all.iter().filter(|d| d.severity == Severity::Error);
        match errors.map(|d| &d.message).next() {
            Some(message) => f.write_str(message),
            None => f.write_str("no error"),
        }
    }
}

impl std::error::Error for Diagnostics {}

/// The message for a failed run: the cause, and the line, if the place is known.
pub fn render_fault(source: &Source, fault: Fault, byte: Option<u32>) -> String {
    let Some(start) = byte else {
        return format!("{}: a run failed: {}", source.name, fault.name());
    };
    let end = start + 1;
    let message = format!("a run failed here: {}", fault.name());
    let mut text = String::new();
    let told = Diagnostic::warning(Span { start, end }, message);
    render(&mut text, source, &told);
    text.trim_end().to_owned()
}

/// A word of the text for a message. Long ones are truncated, so that messages do not become longer
/// than the text.
pub(crate) fn cut(word: &str) -> String {
    const SHOWN: usize = 40;
    match word.char_indices().nth(SHOWN) {
        None => word.to_owned(),
        Some((end, _)) => format!("{}…", &word[..end]),
    }
}

/// Longer lines are shown in part, around the token.
const COLUMNS: usize = 100;

fn render(text: &mut String, source: &Source, diagnostic: &Diagnostic) {
    let place = source.position(diagnostic.span.start);
    let severity = match diagnostic.severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let (line, column) = (place.line, place.column);
    let message = &diagnostic.message;
    let _ = writeln!(
        text,
        "{}:{line}:{column}: {severity}: {message}",
        source.name
    );
    let whole: Vec<char> = source.line(line).chars().collect();
    let at = column as usize - 1;
    let from = if whole.len() > COLUMNS {
        at.saturating_sub(COLUMNS / 2)
    } else {
        0
    };
    let shown = whole.iter().skip(from).take(COLUMNS);
    // A tab is one column, as in `column`; other control characters are replaced.
    let shown: String = shown
        .map(|c| if c.is_control() { ' ' } else { *c })
        .collect();
    let marked = source
        .text_of(diagnostic.span)
        .lines()
        .next()
        .unwrap_or_default();
    let carets = marked
        .chars()
        .count()
        .clamp(1, COLUMNS - (at - from).min(COLUMNS - 1));
    let _ = writeln!(text, "    {}", shown.trim_end());
    let _ = writeln!(text, "    {}{}", " ".repeat(at - from), "^".repeat(carets));
    if !diagnostic.hint.is_empty() {
        let _ = writeln!(text, "    hint: {}", diagnostic.hint);
    }
}
