//! The E-code handlers of a watch: at its end their counters are printed.
//!
//! `count`, `histogram` and the kernel handlers of these names share the 64 counters of the
//! channel, so the meaning of a counter follows from which of these functions the texts use.

use ecode::lexer::{TokenKind, lex};
use ecode::source::Source;
use serde::Serialize;

use super::histogram;
use crate::exit::Outcome;
use crate::output::{Output, Table};

/// All texts of a watch, in the order of its chain.
#[derive(Debug)]
pub(super) struct Texts(pub(super) Vec<Source>);

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    counter: usize,
    count: u64,
}

impl Texts {
    /// Prints their counters.
    pub(super) fn print(&self, out: &mut Output, counts: &[u64; 64]) -> Outcome {
        if self.name("histogram") {
            histogram::print(out, "histogram of E-code", 0, counts)?;
        }
        if self.name("count") {
            print_counters(out, counts)?;
        }
        Ok(())
    }

    /// Whether a text uses this name.
    fn name(&self, name: &str) -> bool {
        self.0.iter().any(|source| {
            let (tokens, _) = lex(source);
            let names = tokens.iter().filter(|token| token.kind == TokenKind::Name);
            names
                .map(|token| source.text_of(token.span))
                .any(|said| said == name)
        })
    }
}

/// Prints the counters that are not 0.
fn print_counters(out: &mut Output, counts: &[u64; 64]) -> Outcome {
    let mut table = Table::new(&[">COUNTER", ">COUNT"]);
    let used = counts.iter().enumerate().filter(|(_, count)| **count != 0);
    for (counter, &count) in used {
        if out.is_json() {
            out.object(&Row {
                what: "counter",
                counter,
                count,
            })?;
        } else {
            table.row([counter.to_string(), count.to_string()]);
        }
    }
    if out.is_json() {
        return Ok(());
    }
    out.table(&table)
}
