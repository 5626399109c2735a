//! From text to tokens: names, words, numbers, characters, strings and symbols, each with its span.
//!
//! A token that is wrong is told here and stays in the row as [`TokenKind::Bad`], so that the
//! parser knows that something stood there and says nothing more about it. A text beyond a limit
//! gives no tokens at all, only that error: nothing after it would make sense. The row always ends
//! with [`TokenKind::End`].

use std::net::Ipv4Addr;

use crate::diagnostic::{Diagnostic, cut};
use crate::limits::{TEXT_BYTES, TOKENS};
use crate::source::{Source, Span};
use crate::types::{FIXED_ONE, Int};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A name; its text is the source's.
    Name,
    /// One of [`KEYWORDS`] or [`TYPES`].
    Word(&'static str),
    /// `42`, `0x2au`
    Integer(Integer),
    /// `1.25`, in millionths.
    Fixed(i64),
    /// `'a'`
    Character(u8),
    /// `"text"`
    Text(Vec<u8>),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    /// A comment, of either form; only [`lex_all`] gives them.
    Comment,
    /// No token; the error has been reported.
    Bad,
    /// Behind the last one.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    pub value: u64,
    /// `u`
    pub unsigned: bool,
    /// `l`, `ll`
    pub long: bool,
    /// Not hexadecimal, octal or binary.
    pub decimal: bool,
}

/// The words of the language that cannot be names.
pub const KEYWORDS: [&str; 28] = [
    "bool", "break", "case", "char", "const", "continue", "default", "do", "else", "enum", "false",
    "fixed", "for", "if", "int", "long", "return", "short", "signed", "sizeof", "static", "struct",
    "switch", "true", "unsigned", "void", "while", "_Bool",
];

/// The integer types that are one word besides C's own; no names either.
pub const TYPES: [(&str, Int); 21] = [
    ("u8", Int::new(8, false)),
    ("u16", Int::new(16, false)),
    ("u32", Int::new(32, false)),
    ("u64", Int::new(64, false)),
    ("s8", Int::new(8, true)),
    ("s16", Int::new(16, true)),
    ("s32", Int::new(32, true)),
    ("s64", Int::new(64, true)),
    ("i8", Int::new(8, true)),
    ("i16", Int::new(16, true)),
    ("i32", Int::new(32, true)),
    ("i64", Int::new(64, true)),
    ("uint8_t", Int::new(8, false)),
    ("uint16_t", Int::new(16, false)),
    ("uint32_t", Int::new(32, false)),
    ("uint64_t", Int::new(64, false)),
    ("int8_t", Int::new(8, true)),
    ("int16_t", Int::new(16, true)),
    ("int32_t", Int::new(32, true)),
    ("int64_t", Int::new(64, true)),
    ("size_t", Int::new(64, false)),
];

/// Names that mean something in their place only, and can be names elsewhere.
pub const WORDS_IN_PLACE: [&str; 11] = [
    "deadline",
    "expect",
    "fuel",
    "in",
    "kind",
    "on",
    "run",
    "service",
    "sinks",
    "test",
    "tracepoint",
];

/// Operators and punctuation, longer ones before those that they begin with.
pub const SYMBOLS: [&str; 47] = [
    "<<=", ">>=", "...", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "+=", "-=",
    "*=", "/=", "%=", "&=", "|=", "^=", "->", "::", "(", ")", "[", "]", "{", "}", ";", ",", ".",
    "?", ":", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~",
];

/// The tokens of a text, without comments.
pub fn lex(source: &Source) -> (Vec<Token>, Vec<Diagnostic>) {
    let (mut tokens, told) = lex_all(source);
    tokens.retain(|token| token.kind != TokenKind::Comment);
    (tokens, told)
}

/// The tokens of a text, comments included.
pub fn lex_all(source: &Source) -> (Vec<Token>, Vec<Diagnostic>) {
    let mut lexer = Lexer {
        text: &source.text,
        at: 0,
        told: Vec::new(),
    };
    if source.text.len() > TEXT_BYTES {
        let bytes = source.text.len();
        let message = format!("a text of {bytes} bytes; at most {TEXT_BYTES} are allowed");
        return nothing_but(Span::default(), &message);
    }
    let mut tokens = Vec::with_capacity(source.text.len() / 4 + 1);
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let kind = lexer.token();
        let end = kind == TokenKind::End;
        let span = span(start, lexer.at);
        if tokens.len() == TOKENS && !end {
            let message = format!("more than {TOKENS} tokens; the text ends here at the latest");
            return nothing_but(span, &message);
        }
        tokens.push(Token { kind, span });
        if end {
            return (tokens, lexer.told);
        }
    }
}

fn nothing_but(at: Span, message: &str) -> (Vec<Token>, Vec<Diagnostic>) {
    let end = Token {
        kind: TokenKind::End,
        span: at,
    };
    let told = Diagnostic::error(at, message).hint("make it two programs, or use loops and tables");
    (vec![end], vec![told])
}

fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    told: Vec<Diagnostic>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn byte(&self, ahead: usize) -> u8 {
        let bytes = self.text.as_bytes();
        bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn tell(&mut self, at: Span, message: impl Into<String>, hint: &str) {
        self.told.push(Diagnostic::error(at, message).hint(hint));
    }

    fn skip_blanks(&mut self) {
        if self.at == 0 && self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
        }
        while matches!(self.byte(0), b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c) {
            self.at += 1;
        }
    }

    /// Moves behind one token.
    fn token(&mut self) -> TokenKind {
        match (self.byte(0), self.byte(1)) {
            _ if self.at == self.text.len() => TokenKind::End,
            (b'/', b'/') => {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                TokenKind::Comment
            }
            (b'/', b'*') => self.comment(),
            (b'0'..=b'9', _) | (b'.', b'0'..=b'9') => self.number(),
            (b'a'..=b'z' | b'A'..=b'Z' | b'_', _) => self.word(),
            (b'\'' | b'"', _) => self.quoted(),
            _ => self.symbol(),
        }
    }

    fn comment(&mut self) -> TokenKind {
        match self.rest()[2..].find("*/") {
            Some(length) => {
                self.at += length + 4;
                TokenKind::Comment
            }
            None => {
                let open = span(self.at, self.at + 2);
                self.tell(
                    open,
                    "this comment does not end",
                    "write '*/' where it ends",
                );
                self.at = self.text.len();
                TokenKind::Bad
            }
        }
    }

    fn word(&mut self) -> TokenKind {
        let rest = self.rest();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let end = rest.bytes().position(|byte| !is_part(byte));
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        let keyword = KEYWORDS.iter().find(|keyword| is_same(keyword, word));
        let ty = || {
            TYPES
                .iter()
                .map(|(name, _)| name)
                .find(|name| is_same(name, word))
        };
        match keyword.or_else(ty) {
            Some(word) => TokenKind::Word(word),
            None => TokenKind::Name,
        }
    }

    fn symbol(&mut self) -> TokenKind {
        let rest = self.rest();
        let is_here = |symbol: &&&str| begins_alike(symbol, rest) && rest.starts_with(**symbol);
        if let Some(symbol) = SYMBOLS.iter().find(is_here) {
            self.at += symbol.len();
            return TokenKind::Symbol(symbol);
        }
        // All that is foreign in a row is one mistake.
        let is_known = |c: char| {
            let begins_symbol = SYMBOLS.iter().any(|symbol| symbol.starts_with(c));
            begins_symbol || c.is_ascii_alphanumeric() || " \t\r\n_'\"".contains(c)
        };
        let length = rest.find(is_known).unwrap_or(rest.len());
        let place = span(self.at, self.at + length);
        self.at += length;
        let (message, hint) = foreign_characters(&rest[..length]);
        self.tell(place, message, hint);
        TokenKind::Bad
    }

    /// A number, with everything that is glued to it.
    fn number(&mut self) -> TokenKind {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let number = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        let place = span(self.at, self.at + number.len());
        self.at += number.len();
        number_of(number).unwrap_or_else(|(message, hint)| {
            self.tell(place, message, hint);
            TokenKind::Bad
        })
    }

    /// A string or a character.
    fn quoted(&mut self) -> TokenKind {
        let (start, quote) = (self.at, self.byte(0));
        let mut bytes = Vec::new();
        let told = self.told.len();
        self.at += 1;
        loop {
            match self.byte(0) {
                byte if byte == quote => break,
                b'\\' => bytes.extend(self.escape()),
                b'\n' => return self.no_end(start, quote),
                0 if self.at >= self.text.len() => return self.no_end(start, quote),
                byte => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        let place = span(start, self.at);
        if self.told.len() > told {
            return TokenKind::Bad;
        }
        match (quote, bytes.as_slice()) {
            (b'"', _) => TokenKind::Text(bytes),
            (_, [byte @ 0..=0x7f]) => TokenKind::Character(*byte),
            (_, [byte]) if self.text[start..].starts_with("'\\") => TokenKind::Character(*byte),
            (_, []) => {
                self.tell(place, "a character is missing between the quotes", "");
                TokenKind::Bad
            }
            _ if self.text[start + 1..self.at - 1].chars().count() == 1 => {
                let message = "this character is more than one byte";
                self.tell(place, message, "compare strings instead, in double quotes");
                TokenKind::Bad
            }
            _ => {
                let message = "more than one character between single quotes";
                self.tell(place, message, "a string stands in double quotes");
                TokenKind::Bad
            }
        }
    }

    /// Reports a string or character that does not end on its line.
    fn no_end(&mut self, start: usize, quote: u8) -> TokenKind {
        let (what, hint) = match quote {
            b'"' => ("string", "write '\"' where it ends"),
            _ => ("character", "write ' behind it"),
        };
        let message = format!("this {what} does not end on its line");
        self.tell(span(start, self.at), message, hint);
        TokenKind::Bad
    }

    /// `\n`, `\x41`, `\101`: its byte, unless it is wrong. Stands on the backslash.
    fn escape(&mut self) -> Option<u8> {
        let start = self.at;
        let escaped = self.text.as_bytes().get(start + 1).copied();
        let Some(escaped) = escaped.filter(|byte| *byte != b'\n') else {
            self.at += 1; // that the string has no end is told there
            return None;
        };
        self.at += 2;
        match escaped {
            b'n' => Some(b'\n'),
            b't' => Some(b'\t'),
            b'r' => Some(b'\r'),
            b'a' => Some(0x07),
            b'b' => Some(0x08),
            b'v' => Some(0x0b),
            b'f' => Some(0x0c),
            b'\\' | b'\'' | b'"' | b'?' => Some(escaped),
            b'x' => self.escape_number(start, 16, 2),
            b'0'..=b'7' => {
                self.at = start + 1;
                self.escape_number(start, 8, 3)
            }
            _ => self.no_escape(start),
        }
    }

    /// The digits of `\x41` or `\101`. Stands on the first.
    fn escape_number(&mut self, start: usize, radix: u32, digits: usize) -> Option<u8> {
        let rest = self.rest();
        let is_digit = |c: &char| c.is_digit(radix);
        let length = rest.chars().take(digits).take_while(is_digit).count();
        self.at += length;
        let value = u8::from_str_radix(&rest[..length], radix).ok();
        let place = span(start, self.at);
        if value.is_none() {
            let hint = "two digits 0-9, a-f behind '\\x', or up to three digits 0-7, up to 377";
            self.tell(place, "this escape is no byte", hint);
        }
        value
    }

    /// Reports an unknown escape sequence.
    fn no_escape(&mut self, start: usize) -> Option<u8> {
        self.at = start + 1;
        self.at += self.rest().chars().next().map_or(0, char::len_utf8);
        let hint = "there are \\n \\t \\r \\a \\b \\f \\v \\0 \\\\ \\' \\\" \\x41 and \\101; a \
                    backslash itself is \\\\";
        self.tell(span(start, self.at), "unknown escape in a string", hint);
        None
    }
}

/// Whether two words are the same. Nearly all are not, which their first letter shows.
pub(crate) fn is_same(a: &str, b: &str) -> bool {
    begins_alike(a, b) && a == b
}

fn begins_alike(a: &str, b: &str) -> bool {
    a.as_bytes().first() == b.as_bytes().first()
}

/// The message about characters that begin no token.
fn foreign_characters(characters: &str) -> (String, &'static str) {
    let first = characters.chars().next().unwrap_or_default();
    let hint = match first {
        '“' | '”' | '„' | '‘' | '’' | '`' | '´' => {
            "quotes are \" for strings and ' for characters"
        }
        '#' => "there is no preprocessor: 'const int N = 3;' is a constant",
        '−' | '–' | '—' => "minus is '-'",
        '≤' | '≥' | '≠' => "write '<=', '>=', '!='",
        c if c.is_alphabetic() => "names are made of a-z, A-Z, 0-9 and _",
        _ => "remove it",
    };
    let shown = if first.is_control() || first.is_whitespace() || !first.is_ascii() {
        let code = u32::from(first);
        match first.is_alphanumeric() {
            true => format!("'{first}' (U+{code:04X})"),
            false => format!("the character U+{code:04X}"),
        }
    } else {
        format!("'{first}'")
    };
    (format!("{shown} has no meaning here"), hint)
}

type Wrong = (String, &'static str);

/// The value of a number as it was written.
fn number_of(number: &str) -> Result<TokenKind, Wrong> {
    let lower = number.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.contains('.') => return fixed_of(number),
        _ if lower.starts_with('0') => (8, lower.as_str()),
        _ => (10, lower.as_str()),
    };
    let end = digits.trim_end_matches(['u', 'l']).len();
    let (digits, suffix) = digits.split_at(end);
    let (unsigned, long) = match suffix {
        "" => (false, false),
        "u" => (true, false),
        "l" | "ll" => (false, true),
        "ul" | "lu" | "ull" | "llu" => (true, true),
        _ => {
            return Err((
                format!("'{}' is no number", cut(number)),
                "suffixes are u, l and ul",
            ));
        }
    };
    if let Some(wrong) = digits.chars().find(|c| !c.is_digit(radix)) {
        return Err(wrong_digit(number, wrong, radix));
    }
    if digits.is_empty() {
        return Err((format!("'{}' has no digits", cut(number)), ""));
    }
    let value = u64::from_str_radix(digits, radix).map_err(|_| {
        let message = format!("{} is too large", cut(number));
        (
            message,
            "the largest number is 18446744073709551615 (0xffffffffffffffff)",
        )
    })?;
    Ok(TokenKind::Integer(Integer {
        value,
        unsigned,
        long,
        decimal: radix == 10,
    }))
}

fn wrong_digit(number: &str, wrong: char, radix: u32) -> Wrong {
    let hint = match (radix, wrong) {
        (_, '_') => "digits are written without '_'",
        (_, '.') => "only decimal numbers have a fraction",
        (8, '8' | '9') => "a number that begins with 0 is octal, as in C",
        (10, 'e') => "there are no exponents: write the number out",
        (10, 'f') => "there is no 'float': 1.5 is of type 'fixed'",
        (10, _) => "a name does not begin with a digit",
        _ => "",
    };
    (format!("'{}' is no number", cut(number)), hint)
}

/// Decimals of a [`TokenKind::Fixed`].
const DECIMALS: usize = 6;

/// `1.25`, `.5`, `2.`: in millionths.
fn fixed_of(number: &str) -> Result<TokenKind, Wrong> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        let hint = match fraction.chars().find(|c| !c.is_ascii_digit()) {
            _ if number.parse::<Ipv4Addr>().is_ok() => {
                "an address is a number, its last byte first: 127.0.0.1 is 0x0100007f"
            }
            Some('e' | 'E') => "there are no exponents: write the number out",
            Some('f' | 'F' | 'l' | 'L') => "a number of type 'fixed' has no suffix",
            _ => "a number has one '.', and digits on both sides",
        };
        return Err((format!("'{}' is no number", cut(number)), hint));
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > DECIMALS {
        let hint = "'fixed' counts millionths: write at most six decimals";
        return Err((
            format!("{} has more than {DECIMALS} decimals", cut(number)),
            hint,
        ));
    }
    let millionths = format!("{fraction:0<DECIMALS$}").parse::<i64>();
    let whole = if whole.is_empty() { "0" } else { whole };
    let value = whole
        .parse::<i64>()
        .ok()
        .zip(millionths.ok())
        .and_then(|(whole, rest)| whole.checked_mul(FIXED_ONE)?.checked_add(rest));
    match value {
        Some(value) => Ok(TokenKind::Fixed(value)),
        None => Err((
            format!("{} is too large for 'fixed'", cut(number)),
            "the largest number of type 'fixed' is 9223372036854.775807",
        )),
    }
}
