//! The text of an E-code program, which anybody may send: lexer, parser and formatter.
//!
//! Always: spans lie in the text, one behind the other; what is told has a place and words; the
//! formatter takes exactly the texts that the parser accepts, changes none of their tokens and
//! comments, and leaves alone what it wrote.

use ecode::diagnostic::{Diagnostics, Severity};
use ecode::format::format;
use ecode::lexer::{TokenKind, lex_all};
use ecode::parser::parse;
use ecode::source::Source;

pub(crate) fn run(bytes: &[u8]) {
    let text = crate::text(bytes);
    let source = Source::new("fuzz", text);
    let (tokens, _) = lex_all(&source);
    let mut end = 0;
    for token in &tokens {
        assert!(token.span.start >= end && token.span.end >= token.span.start);
        end = token.span.end;
    }
    assert!(end as usize <= text.len());
    let (_, told) = parse(&source);
    let accepted = told.iter().all(|one| one.severity == Severity::Warning);
    for one in &told {
        assert!(one.span.start <= one.span.end && one.span.end as usize <= text.len());
        assert!(!one.message.is_empty());
    }
    let _ = Diagnostics::new(told).render(&source);
    match format(&source) {
        Ok(written) => {
            assert!(accepted);
            let written = Source::new("fuzz", written);
            assert_eq!(content(&written), content(&source));
            let again = format(&written).expect("what was formatted is a program");
            assert_eq!(again, written.text);
        }
        Err(told) => assert!(!accepted || told.to_string().contains("would be longer")),
    }
}

/// The tokens as they are written, and the comments without their blanks.
fn content(source: &Source) -> (Vec<&str>, Vec<String>) {
    let (tokens, _) = lex_all(source);
    let (comments, code): (Vec<_>, Vec<_>) = tokens
        .iter()
        .partition(|token| token.kind == TokenKind::Comment);
    let words = |text: &str| text.split_whitespace().collect::<String>();
    (
        code.iter()
            .map(|token| source.text_of(token.span))
            .collect(),
        comments
            .iter()
            .map(|token| words(source.text_of(token.span)))
            .collect(),
    )
}
