//! The formatter: what it writes for some texts, that it changes no meaning, keeps every comment,
//! and leaves alone what it wrote.

use ecode::format::format;
use ecode::lexer::{Token, TokenKind, lex_all};
use ecode::source::Source;

fn formatted(text: &str) -> String {
    let source = Source::new("t", text);
    match format(&source) {
        Ok(text) => text,
        Err(told) => panic!("{}", told.render(&source)),
    }
}

/// The text's tokens as they are written, and its comments without their blanks.
fn content(text: &str) -> (Vec<String>, Vec<String>) {
    let source = Source::new("t", text);
    let (tokens, _) = lex_all(&source);
    let (comments, tokens): (Vec<Token>, Vec<Token>) = tokens
        .into_iter()
        .partition(|token| token.kind == TokenKind::Comment);
    let words = |token: &Token| {
        source
            .text_of(token.span)
            .split_whitespace()
            .collect::<String>()
    };
    let texts = tokens
        .iter()
        .map(|token| source.text_of(token.span).to_owned())
        .collect();
    (texts, comments.iter().map(words).collect())
}

fn check(text: &str) -> String {
    let once = formatted(text);
    assert_eq!(content(&once), content(text), "{text}\n->\n{once}");
    let twice = formatted(&once);
    assert_eq!(twice, once, "{text}");
    let blank = once.lines().find(|line| line.ends_with(' '));
    assert_eq!(blank, None, "{text}");
    once
}

#[test]
fn samples_look_as_they_should() {
    let samples = include_str!("format.txt");
    for sample in samples.split("=======\n") {
        let (text, wanted) = sample.split_once("-------\n").unwrap();
        let written = check(text);
        assert_eq!(written, wanted, "{text}\n{written}");
    }
}
