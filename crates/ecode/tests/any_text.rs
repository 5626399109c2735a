//! Whatever the text: the lexer, the parser and the formatter end, soon, without a panic; spans lie
//! in the text; and a text that is accepted is formatted without a change to its tokens.

use std::time::{Duration, Instant};

use ecode::diagnostic::{Diagnostics, Severity};
use ecode::format::format;
use ecode::lexer::{KEYWORDS, SYMBOLS, TokenKind, lex_all};
use ecode::limits::{TEXT_BYTES, TOKENS};
use ecode::parser::parse;
use ecode::source::Source;
use proptest::prelude::*;

/// The tokens as they are written, and the comments without their blanks.
fn content(source: &Source) -> (Vec<&str>, Vec<String>) {
    let (tokens, _) = lex_all(source);
    let is_comment = |kind: &TokenKind| *kind == TokenKind::Comment;
    let code = tokens.iter().filter(|token| !is_comment(&token.kind));
    let comments = tokens.iter().filter(|token| is_comment(&token.kind));
    let words = |text: &str| text.split_whitespace().collect::<String>();
    (
        code.map(|token| source.text_of(token.span)).collect(),
        comments
            .map(|token| words(source.text_of(token.span)))
            .collect(),
    )
}

/// All that is true of every text. Says whether it was accepted.
fn check(text: &str) -> bool {
    let source = Source::new("t", text);
    let (tokens, _) = lex_all(&source);
    let mut end = 0;
    for token in &tokens {
        assert!(
            token.span.start >= end && token.span.end >= token.span.start,
            "{text:?}"
        );
        assert!(text.is_char_boundary(token.span.start as usize), "{text:?}");
        end = token.span.end;
    }
    assert!(end as usize <= text.len());
    let (_, told) = parse(&source);
    for one in &told {
        assert!(
            one.span.start <= one.span.end && one.span.end as usize <= text.len(),
            "{one:?}"
        );
        assert!(
            !one.message.is_empty() && !one.message.ends_with('.'),
            "{one:?}"
        );
    }
    let accepted = told.iter().all(|one| one.severity == Severity::Warning);
    assert!(!Diagnostics::new(told).render(&source).contains('\0'));
    let formatted = format(&source);
    let longer = |told: &Diagnostics| !accepted || told.to_string().contains("would be longer");
    assert!(
        formatted.as_ref().map_or_else(longer, |_| accepted),
        "{text:?}"
    );
    if let Ok(once) = formatted {
        let once = Source::new("t", once);
        assert_eq!(
            content(&once),
            content(&source),
            "{text}\n->\n{}",
            once.text
        );
        let twice = format(&once).unwrap_or_else(|told| panic!("{}", told.render(&once)));
        let differ = twice
            .lines()
            .zip(once.text.lines())
            .find(|(twice, once)| twice != once);
        assert!(twice == once.text, "{differ:?}\n{text}");
    }
    accepted
}

/// Runs it and says how long that took.
fn timed(text: &str) -> Duration {
    let begin = Instant::now();
    check(text);
    begin.elapsed()
}

/// What a text of the largest size is filled with.
const PARTS: &str = r#"
( { [ " ' @ /* // \ ; } ) a 1 . - ! a? a?b: a, a= a+ a. a[ f( if(a) else~ for(;;) do~ switch(a){
case~1: struct~a{ enum{ int~a int~a; int~a={ {}, (int) sizeof~ test""{ fuel~1; /**/ "\ '\x 0x 1.
é static~ const~ int~ unknown~a; a~b ++a a++ return~ f(a, x= a;//b a/*b*/+ int~a[]={1,{2,{ @~ ~(
if(a)else~ for(s~in~sinks) (a+ a*b- !!a -1- x?y: {a; /**
"#;

#[test]
fn hostile_texts_take_bounded_time() {
    let parts = PARTS.split_whitespace().map(|part| part.replace('~', " "));
    let others = [
        "\0",
        "\n",
        "\r",
        " ",
        "\t",
        "{\n",
        "unknown a;\n",
        "a;//b\n",
        "\u{2028}",
    ];
    for part in parts.chain(others.map(str::to_owned)) {
        let took = timed(&part.repeat(TEXT_BYTES / part.len()));
        assert!(took < Duration::from_secs(20), "{part:?}: {took:?}");
    }
    // Accepted ones, nearly as large as a formatted text may be.
    for (before, part, behind) in [
        ("{", "a=b+c*d;", "}"),
        ("int a[]={", "1,", "};"),
        ("int a[]={", "{1},//x\n", "};"),
        ("f(", "a,", "b);"),
        ("", "/* x\n*/", ""),
        ("x;", "//y\n\n\n", ""),
        ("a(\"", "x", "\")"),
    ] {
        let tokens = lex_all(&Source::new("t", part)).0.len() - 1;
        let bytes = (TEXT_BYTES - before.len() - behind.len()) / part.len() / 3;
        let count = bytes.min((TOKENS - 8) / tokens.max(1));
        let begin = Instant::now();
        assert!(
            check(&format!("{before}{}{behind}", part.repeat(count))),
            "{part:?}"
        );
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(20), "{part:?}: {took:?}");
    }
}

/// Texts of the language, to begin with.
fn texts() -> impl Strategy<Value = String> {
    let samples = include_str!("format.txt").split("=======\n");
    let mut texts: Vec<String> = samples
        .filter_map(|sample| Some(sample.split_once("-------\n")?.0.to_owned()))
        .collect();
    texts.push("bytes > 1.5 && prefix(comm, \"ba\") ? a[1].b : -c".into());
    texts.push("for (s in sinks) { if (age(s) > 5u) reject(s); else best(2, sink.load); }".into());
    prop::sample::select(texts)
}

/// Tokens, blanks and comments of which soups are made.
fn word() -> impl Strategy<Value = String> {
    let names = [
        "a", "b", "input", "test", "run", "expect", "fuel", "sinks", "in", "s", "u8",
    ];
    let values = [
        "1", "0x1f", "1.5", "'c'", "\"text\"", "'", "\"", "\\", "é", "\0",
    ];
    let between = [
        " ",
        "\n",
        "\n\n",
        "\t",
        " // x\n",
        "/* y */",
        "/* y\n * z */",
        "//\n",
    ];
    let some = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        prop::sample::select(words)
    };
    prop_oneof![
        4 => some(&SYMBOLS),
        3 => some(&KEYWORDS),
        4 => some(&names),
        2 => some(&values),
        2 => some(&between),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_characters(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn any_words(words in prop::collection::vec(word(), 0..60), blank in any::<bool>()) {
        check(&words.join(if blank { " " } else { "" }));
    }

    /// Some pieces of a text are removed, repeated or replaced.
    #[test]
    fn texts_with_slips(
        text in texts(),
        slips in prop::collection::vec((any::<prop::sample::Index>(), 0..4, word()), 1..6),
    ) {
        let source = Source::new("t", text.clone());
        let (tokens, _) = lex_all(&source);
        let mut pieces: Vec<String> =
            tokens.iter().map(|token| source.text_of(token.span).to_owned()).collect();
        for (at, how, word) in slips {
            let at = at.index(pieces.len());
            match how {
                0 => pieces[at].clear(),
                1 => pieces[at] = pieces[at].repeat(2),
                2 => pieces[at] = word,
                _ => pieces[at].insert_str(0, &word),
            }
        }
        check(&pieces.join("\n"));
    }

    /// Comments and blanks anywhere between the tokens of a text change no token.
    #[test]
    fn texts_with_comments(
        text in texts(),
        between in prop::collection::vec(0..9usize, 200),
    ) {
        const BETWEEN: [&str; 9] = [
            " ", "", "\n", "\n\n\n", " /* c */ ", "/* c */\n", "\n/* c\n d */", " // c\n",
            "\n// c\n",
        ];
        let source = Source::new("t", text.clone());
        let (tokens, _) = lex_all(&source);
        let mut mixed = String::new();
        let code = tokens.iter().filter(|token| token.kind != TokenKind::Comment);
        for (token, between) in code.zip(between.iter().cycle()) {
            mixed += source.text_of(token.span);
            mixed += match BETWEEN[*between] {
                "" => " ",
                between => between,
            };
        }
        prop_assert!(check(&mixed), "{}", mixed);
    }
}
