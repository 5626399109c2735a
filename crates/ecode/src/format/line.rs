//! One statement of the formatter: which tokens are separated by a blank, and where it is broken if
//! it is longer than a line.
//!
//! A break goes where it separates least: behind a comma or the weakest operator outside of all
//! parentheses, if such a one fits on the line; else further inside. What follows is indented by
//! two levels. A list in braces that does not fit, or whose last value has a comma behind it, is
//! written in lines of its own.

use std::ops::Range;

use super::{COLUMNS, INDENT};
use crate::lexer::{SYMBOLS, Token, TokenKind};
use crate::source::{Source, Span};

/// A token or a comment, as it is to be written.
#[derive(Debug)]
pub(super) struct Piece {
    text: String,
    /// Whether a blank stands before it.
    space: bool,
    /// The cost of a break before it; `None`: there can be none.
    cost: Option<u32>,
    /// Parentheses and brackets around it, `{` of lists included.
    depth: u32,
    comment: Comment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comment {
    /// It is a token.
    None,
    /// `//`, or `/* */` among tokens, and how it stood on its line.
    Line(Lines),
    Block(Lines),
}

/// Whether a comment is the first, and the last, on its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines {
    first: bool,
    last: bool,
}

/// Each level of parentheses around a break makes it cost more than any operator does.
const COST_OF_DEPTH: u32 = 20;
/// A break behind `=`, and behind `(`.
const COST_OF_ASSIGNMENT: u32 = 15;
const COST_OF_OPENING: u32 = 19;

/// A comment's text: without blanks at the ends of its lines; of a longer one, the lines that begin
/// with a star are aligned.
pub(super) fn comment(text: &str, indent: usize) -> String {
    let mut lines = text.lines();
    let mut out = lines.next().unwrap_or_default().trim_end().to_owned();
    for line in lines {
        out.push('\n');
        let bare = line.trim();
        if bare.starts_with('*') {
            out.extend(std::iter::repeat_n(' ', indent + 1));
            out.push_str(bare);
        } else {
            out.push_str(line.trim_end());
        }
    }
    out
}

/// The pieces that these tokens are, of a statement that begins at that column.
pub(super) fn pieces(
    source: &Source,
    tokens: &[Token],
    all: Range<usize>,
    indent: usize,
) -> Vec<Piece> {
    let mut maker = Maker {
        source,
        tokens,
        all: all.clone(),
        indent,
        open: Vec::new(),
        before: None,
        operand: false,
        glued: false,
        choices: 0,
    };
    all.map(|at| maker.piece(at)).collect()
}

/// An open `(`, `[` or `{`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Of a call, a head, an expression.
    Parenthesis,
    /// Around the type of a cast.
    Cast,
    Bracket,
    List,
}

struct Maker<'a> {
    source: &'a Source,
    tokens: &'a [Token],
    all: Range<usize>,
    indent: usize,
    open: Vec<Open>,
    /// The token before this one, no comment.
    before: Option<usize>,
    /// Whether the token before ends an operand, so that `-` is a subtraction.
    operand: bool,
    /// Whether no blank follows the token before: it is an operator of one operand, or a cast.
    glued: bool,
    /// `?` whose `:` is still to come.
    choices: u32,
}

impl Maker<'_> {
    fn text(&self, at: usize) -> &str {
        self.source.text_of(self.tokens[at].span)
    }

    fn piece(&mut self, at: usize) -> Piece {
        if self.tokens[at].kind == TokenKind::Comment {
            return self.comment(at);
        }
        let closes = matches!(self.tokens[at].kind, TokenKind::Symbol(")" | "]" | "}"));
        let space = at > self.all.start && self.space_before(at);
        let cost = self.cost_before(at);
        let closed = if closes { self.open.pop() } else { None };
        let depth = self.open.len() as u32;
        self.take(at, closed);
        self.before = Some(at);
        Piece {
            text: self.text(at).to_owned(),
            space,
            cost,
            depth,
            comment: Comment::None,
        }
    }

    fn line_end(&self, before: usize, behind: usize) -> bool {
        let between = Span {
            start: self.tokens[before].span.end,
            end: self.tokens[behind].span.start,
        };
        self.source.text_of(between).contains('\n')
    }

    fn comment(&self, at: usize) -> Piece {
        let text = comment(self.text(at), self.indent);
        let lines = Lines {
            first: at > 0 && self.line_end(at - 1, at),
            last: self.line_end(at, at + 1),
        };
        let kind = match text.starts_with("//") {
            true => Comment::Line(lines),
            false => Comment::Block(lines),
        };
        Piece {
            text,
            space: at > self.all.start,
            cost: None,
            depth: self.open.len() as u32,
            comment: kind,
        }
    }

    /// Whether a blank stands between the token before and this one.
    fn space_before(&self, at: usize) -> bool {
        let Some(before) = self.before else {
            return true; // behind a comment
        };
        let (first, second) = (&self.tokens[before].kind, &self.tokens[at].kind);
        let wanted = match (first, second) {
            _ if self.glued => false,
            (_, TokenKind::Symbol("," | ")" | "]")) => false,
            (TokenKind::Symbol("{"), TokenKind::Symbol("}")) => false,
            (_, TokenKind::Symbol(";")) => false,
            (TokenKind::Symbol("(" | "["), _) => false,
            (_, TokenKind::Symbol(".")) => !self.operand,
            (TokenKind::Symbol("."), _) => false,
            (_, TokenKind::Symbol(":")) => self.choices > 0,
            (_, TokenKind::Symbol("++" | "--")) => !self.operand,
            (TokenKind::Name, TokenKind::Symbol("(")) => self.begins_expect(before),
            (TokenKind::Word("sizeof"), TokenKind::Symbol("(")) => false,
            (_, TokenKind::Symbol("[")) => matches!(first, TokenKind::Symbol("{" | ",")),
            _ => true,
        };
        wanted || sticks(self.text(before), self.text(at))
    }

    /// Whether this name is the word of a test that begins a step.
    fn begins_expect(&self, at: usize) -> bool {
        let first = self.tokens[..at].last().is_none_or(|before| {
            matches!(
                before.kind,
                TokenKind::Symbol(";" | "{" | "}") | TokenKind::Comment
            )
        });
        first && self.text(at) == "expect"
    }

    /// The cost of a break before this token.
    fn cost_before(&self, at: usize) -> Option<u32> {
        let before = self.before?;
        let around = self.open.len() as u32 * COST_OF_DEPTH;
        let here = match (&self.tokens[before].kind, &self.tokens[at].kind) {
            (_, TokenKind::Symbol(")" | "]" | "}" | "," | ";")) => None,
            (_, TokenKind::Symbol("?" | ":")) if self.choices > 0 || self.text(at) == "?" => {
                Some(1)
            }
            (TokenKind::Symbol("," | ";"), _) => Some(0),
            (TokenKind::Symbol("("), _) => Some(COST_OF_OPENING),
            (TokenKind::Symbol("="), _) => Some(COST_OF_ASSIGNMENT),
            (TokenKind::Symbol(symbol), _) if !self.operand && !self.glued => strength(symbol),
            _ => None,
        };
        here.map(|cost| around + cost)
    }

    /// What follows from this token for the next.
    fn take(&mut self, at: usize, closed: Option<Open>) {
        let after_operand = self.operand;
        let expects = self.begins_expect(at) && self.expect_is_word(at);
        (self.operand, self.glued) = match self.tokens[at].kind {
            TokenKind::Symbol(")") => (closed != Some(Open::Cast), closed == Some(Open::Cast)),
            TokenKind::Symbol("]" | "}") => (true, false),
            TokenKind::Symbol("++" | "--") => (after_operand, !after_operand),
            TokenKind::Symbol("-" | "+" | "!" | "~") if !after_operand => (false, true),
            TokenKind::Symbol(symbol) => {
                match symbol {
                    "?" => self.choices += 1,
                    ":" => self.choices = self.choices.saturating_sub(1),
                    "(" => self.open.push(self.parenthesis(at)),
                    "[" => self.open.push(Open::Bracket),
                    "{" => self.open.push(Open::List),
                    _ => {}
                }
                (false, false)
            }
            TokenKind::Word("true" | "false") => (true, false),
            TokenKind::Word(_) => (false, false),
            _ => (!expects, false),
        };
    }

    /// `expect -1 == x`, and not a place that has this name.
    fn expect_is_word(&self, at: usize) -> bool {
        let next = self.tokens[at + 1..]
            .iter()
            .find(|token| token.kind != TokenKind::Comment);
        next.is_some_and(|next| !matches!(next.kind, TokenKind::Symbol("=" | "." | "[" | ";")))
    }

    fn parenthesis(&self, at: usize) -> Open {
        let after_name = self.before.is_some_and(|before| {
            let kind = &self.tokens[before].kind;
            matches!(kind, TokenKind::Name | TokenKind::Word("sizeof"))
        });
        let next = self.tokens[at + 1..]
            .iter()
            .find(|token| token.kind != TokenKind::Comment);
        let word = match next.map(|next| &next.kind) {
            Some(TokenKind::Word(word)) => *word,
            _ => "",
        };
        let is_type = !matches!(word, "" | "true" | "false" | "sizeof");
        let is_head = self.before.is_some_and(|before| {
            let kind = &self.tokens[before].kind;
            matches!(kind, TokenKind::Word("for" | "if" | "while" | "switch"))
        });
        match is_type && !after_name && !is_head {
            true => Open::Cast,
            false => Open::Parenthesis,
        }
    }
}

/// The cost of a break after this operator between two operands: the weaker it binds, the less.
fn strength(symbol: &str) -> Option<u32> {
    Some(match symbol {
        "||" => 2,
        "&&" => 3,
        "|" => 4,
        "^" => 5,
        "&" => 6,
        "==" | "!=" => 7,
        "<" | "<=" | ">" | ">=" => 8,
        "<<" | ">>" => 9,
        "+" | "-" => 10,
        "*" | "/" | "%" => 11,
        _ if symbol.ends_with('=') => COST_OF_ASSIGNMENT,
        _ => return None,
    })
}

/// Whether two tokens without a blank between them would be read as others.
fn sticks(first: &str, second: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let (last, next) = (first.as_bytes().last(), second.as_bytes().first());
    let number = first.as_bytes().first().is_some_and(u8::is_ascii_digit)
        || first.starts_with('.') && first.len() > 1;
    if is_part(last) && is_part(next) || number && next == Some(&b'.') {
        return true;
    }
    if first == "." && next.is_some_and(u8::is_ascii_digit) {
        return true;
    }
    let both = format!("{first}{second}");
    let longest = SYMBOLS.iter().find(|symbol| both.starts_with(**symbol));
    SYMBOLS.contains(&first) && longest.is_some_and(|longest| *longest != first)
}

/// Writes pieces where the line is, of a statement that begins at `indent`.
pub(super) fn write(out: &mut String, pieces: &[Piece], indent: usize) {
    let Some(open) = pieces.iter().position(|piece| piece.is("{")) else {
        return wrap(out, pieces, indent + 2 * INDENT);
    };
    let depth = pieces[open].depth;
    let closes = |piece: &Piece| piece.is("}") && piece.depth == depth;
    let length = pieces[open..].iter().position(closes).unwrap_or(0);
    let close = open + length;
    let list = &pieces[open + 1..close.max(open + 1)];
    let in_lines = must_be_in_lines(list) || column(out) + width(pieces) > COLUMNS;
    if !in_lines || list.is_empty() {
        wrap(out, &pieces[..=close], indent + 2 * INDENT);
    } else {
        wrap(out, &pieces[..=open], indent + 2 * INDENT);
        write_list(out, list, indent + INDENT);
        start_line(out, indent);
        out.push('}');
    }
    write(out, &pieces[close + 1..], indent);
}

/// Whether a list with these values in it cannot stand in one line: a comment ends a line in it, or
/// the last value of a list has a comma behind it, which asks for lines.
fn must_be_in_lines(list: &[Piece]) -> bool {
    let code: Vec<&Piece> = list
        .iter()
        .filter(|piece| piece.lines().is_none())
        .collect();
    list.iter().any(Piece::ends_line)
        || code.last().is_some_and(|last| last.is(","))
        || code
            .windows(2)
            .any(|pair| pair[0].is(",") && pair[1].is("}"))
}

/// The values of a list, in lines of their own: as many as fit in each, or, if they are lists, have
/// designators or comments, or the last one has a comma behind it, one in each.
fn write_list(out: &mut String, mut rest: &[Piece], indent: usize) {
    // The comment after the brace on its line.
    while let [first, after @ ..] = rest
        && first
            .lines()
            .is_some_and(|lines| !lines.first && lines.last)
    {
        out.push(' ');
        out.push_str(&first.text);
        rest = after;
    }
    if !is_one_per_line(rest) {
        start_line(out, indent);
        return wrap(out, rest, indent);
    }
    while !rest.is_empty() {
        let (value, after) = rest.split_at(length_of_value(rest));
        start_line(out, indent);
        write(out, value, indent);
        rest = after;
    }
}

fn is_one_per_line(list: &[Piece]) -> bool {
    let code: Vec<&Piece> = list
        .iter()
        .filter(|piece| piece.lines().is_none())
        .collect();
    let Some(depth) = code.iter().map(|piece| piece.depth).min() else {
        return true;
    };
    let ends_value = |piece: &Piece| piece.depth == depth && piece.is(",");
    let is_large = |first: &Piece| first.is("{") || first.is(".") || first.is("[");
    let mut pairs = code.windows(2);
    is_large(code[0])
        || pairs.any(|pair| ends_value(pair[0]) && is_large(pair[1]))
        || code.last().is_some_and(|last| ends_value(last))
        || list.iter().any(Piece::ends_line)
}

/// How many pieces of a list belong in the next line: a value with its comma and the comments
/// behind it, or a comment that has a line of its own.
fn length_of_value(list: &[Piece]) -> usize {
    let depth = list.iter().map(|piece| piece.depth).min().unwrap_or(0);
    let last_code = list.iter().rposition(|piece| piece.lines().is_none());
    let behind_all = |at: usize| last_code.is_none_or(|last| at > last);
    if list[0]
        .lines()
        .is_some_and(|lines| lines.first && (lines.last || behind_all(0)))
    {
        return 1;
    }
    let comma = list
        .iter()
        .position(|piece| piece.depth == depth && piece.is(","));
    let mut end = comma.or(last_code).unwrap_or(0) + 1;
    let trails = |at: usize| {
        let lines = list.get(at).and_then(Piece::lines);
        lines.is_some_and(|lines| !lines.first && (lines.last || behind_all(at)))
    };
    while trails(end) {
        end += 1;
    }
    end
}

impl Piece {
    /// Whether it is this token.
    fn is(&self, token: &str) -> bool {
        self.comment == Comment::None && self.text == token
    }

    /// How it stood on its line, if it is a comment.
    fn lines(&self) -> Option<Lines> {
        match self.comment {
            Comment::None => None,
            Comment::Line(lines) | Comment::Block(lines) => Some(lines),
        }
    }

    /// Whether nothing can follow it on its line.
    fn ends_line(&self) -> bool {
        matches!(self.comment, Comment::Line(_))
    }
}

fn start_line(out: &mut String, indent: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
}

fn last_line(out: &str) -> &str {
    &out[out.rfind('\n').map_or(0, |end| end + 1)..]
}

/// Characters in the last line.
fn column(out: &str) -> usize {
    last_line(out).chars().count()
}

/// Columns of these pieces in one line.
fn width(pieces: &[Piece]) -> usize {
    let widths = pieces
        .iter()
        .map(|piece| piece.text.chars().count() + usize::from(piece.space));
    widths.sum()
}

/// Writes pieces, with breaks where they do not fit; what follows a break begins at `indent`.
fn wrap(out: &mut String, pieces: &[Piece], indent: usize) {
    let mut rest = pieces;
    while !rest.is_empty() {
        let mut bare = last_line(out).trim_start().is_empty();
        let count = fitting(rest, COLUMNS.saturating_sub(column(out)), bare);
        let (line, after) = rest.split_at(count);
        for piece in line {
            if piece.space && !bare {
                out.push(' ');
            }
            out.push_str(&piece.text);
            bare = false;
        }
        rest = after;
        if !rest.is_empty() {
            start_line(out, indent);
        }
    }
}

/// How many of the pieces go on a line that has that many columns left, and nothing in it yet if
/// `bare`: at least one.
fn fitting(pieces: &[Piece], columns: usize, bare: bool) -> usize {
    let mut column = 0;
    let mut best: Option<(u32, usize)> = None;
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 && matches!(piece.comment, Comment::Line(Lines { first: true, .. })) {
            return at;
        }
        if let Some(cost) = piece.cost
            && at > 0
        {
            if column > columns {
                return at;
            }
            if best.is_none_or(|(lowest, _)| cost <= lowest) {
                best = Some((cost, at));
            }
        }
        if piece.text.contains('\n') {
            column = 0;
        }
        let last = piece.text.rsplit('\n').next().unwrap_or_default();
        column += last.chars().count() + usize::from(piece.space && (at > 0 || !bare));
        if piece.ends_line() {
            return at + 1;
        }
        if column > columns
            && let Some((_, at)) = best
        {
            return at;
        }
    }
    pieces.len()
}
