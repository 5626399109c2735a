//! One way to write E-code: K&R, 4 blanks, lines of at most 100 columns where a text allows it.
//!
//! The formatter walks the tokens of a text that the parser has accepted, and changes nothing but
//! the blanks and line ends between them. So the formatted text has the same meaning and all
//! comments, each on its own line or after the same token. Formatting a formatted text changes
//! nothing.
//!
//! A statement is a run of tokens; the module `line` decides where they are separated and broken.
//! This file begins lines: for statements, blocks, labels, and the comments between them.

mod line;

use std::ops::Range;

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::lexer::{self, Token, TokenKind};
use crate::limits::TEXT_BYTES;
use crate::parser;
use crate::source::{Source, Span};

/// Columns of a line, where that is possible.
pub const COLUMNS: usize = 100;
/// Blanks of one level.
const INDENT: usize = 4;

/// The text as it should be written. It must be one that the parser accepts.
pub fn format(source: &Source) -> Result<String, Diagnostics> {
    let (_, told) = parser::parse(source);
    if told.iter().any(|one| one.severity == Severity::Error) {
        return Err(Diagnostics::new(told));
    }
    let (tokens, _) = lexer::lex_all(source);
    let mut formatter = Formatter {
        source,
        tokens,
        at: 0,
        out: String::with_capacity(source.text.len() * 5 / 4),
        indent: 0,
        fresh: true,
        closed: false,
    };
    formatter.statements();
    let mut out = formatter.out;
    if !out.is_empty() {
        out.push('\n');
    }
    if out.len() > TEXT_BYTES {
        let message = format!("the text would be longer than {TEXT_BYTES} bytes when formatted");
        return Err(Diagnostics::new(vec![Diagnostic::error(
            Span::default(),
            message,
        )]));
    }
    Ok(out)
}

struct Formatter<'a> {
    source: &'a Source,
    /// Comments included.
    tokens: Vec<Token>,
    /// The next one.
    at: usize,
    /// The output; its last line is open.
    out: String,
    /// The level of indentation.
    indent: usize,
    /// Whether no line was begun yet in this block or text.
    fresh: bool,
    /// Whether a comment ends the last line, so that nothing can follow on it.
    closed: bool,
}

/// Looking at tokens.
impl<'a> Formatter<'a> {
    fn kind(&self, at: usize) -> &TokenKind {
        &self.tokens[at.min(self.tokens.len() - 1)].kind
    }

    fn text(&self, at: usize) -> &'a str {
        let span = self.tokens[at.min(self.tokens.len() - 1)].span;
        self.source.text_of(span)
    }

    /// The first token from there on that is no comment.
    fn code(&self, mut at: usize) -> usize {
        while *self.kind(at) == TokenKind::Comment {
            at += 1;
        }
        at
    }

    fn is(&self, at: usize, wanted: &str) -> bool {
        match *self.kind(at) {
            TokenKind::Symbol(text) | TokenKind::Word(text) => text == wanted,
            _ => false,
        }
    }

    /// Line ends between a token and the one before it.
    fn line_ends_before(&self, at: usize) -> usize {
        let between = Span {
            start: at
                .checked_sub(1)
                .map_or(0, |before| self.tokens[before].span.end),
            end: self.tokens[at.min(self.tokens.len() - 1)].span.start,
        };
        self.source.text_of(between).matches('\n').count()
    }

    fn begins_test(&self, at: usize) -> bool {
        let named = *self.kind(at) == TokenKind::Name && self.text(at) == "test";
        named && matches!(self.kind(self.code(at + 1)), TokenKind::Text(_))
    }
}

/// Writing lines.
impl Formatter<'_> {
    fn start_line(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
            .extend(std::iter::repeat_n(' ', self.indent * INDENT));
        self.fresh = false;
        self.closed = false;
    }

    /// An empty line, if there was at least one before this token, and it begins no block.
    fn keep_empty_line(&mut self, before: usize) {
        if !self.fresh && self.line_ends_before(before) > 1 {
            self.out.push('\n');
        }
    }

    /// A comment on the current line.
    fn comment(&mut self, at: usize) {
        let text = line::comment(self.text(at), self.indent * INDENT);
        self.out.push_str(&text);
        self.closed = text.starts_with("//");
        self.at = at + 1;
    }

    /// The comments before the next piece of code, each on its own line; a short one that stands
    /// before code on its line stays for that line, if `inline`.
    fn comments(&mut self, inline: bool) {
        while *self.kind(self.at) == TokenKind::Comment {
            let code = self.code(self.at);
            let alone = (self.at..code).any(|at| self.line_ends_before(at + 1) > 0);
            if inline && !alone {
                return;
            }
            self.keep_empty_line(self.at);
            self.start_line();
            self.comment(self.at);
            self.trailing_comments();
        }
    }

    /// The comments on the line that was written last.
    fn trailing_comments(&mut self) {
        while !self.closed
            && *self.kind(self.at) == TokenKind::Comment
            && self.line_ends_before(self.at) == 0
        {
            self.out.push(' ');
            self.comment(self.at);
        }
    }

    /// Comments that were before a token which is written already: those on its line come after it,
    /// the others on lines of their own.
    fn moved_comments(&mut self, all: Range<usize>) {
        for at in all.clone() {
            if self.closed || (all.start..=at).any(|at| self.line_ends_before(at) > 0) {
                self.start_line();
            } else {
                self.out.push(' ');
            }
            self.comment(at);
        }
        let own_line = all.clone().any(|at| self.line_ends_before(at) > 0);
        self.closed |= own_line;
    }

    /// Writes the tokens before `end` on a new line, which may have to be broken.
    fn run(&mut self, end: usize) {
        self.start_line();
        self.run_here(end);
    }

    /// Writes the tokens before `end` on the current line.
    fn run_here(&mut self, end: usize) {
        let indent = self.indent * INDENT;
        let pieces = line::pieces(self.source, &self.tokens, self.at..end, indent);
        line::write(&mut self.out, &pieces, indent);
        self.at = end;
    }
}

/// Statements.
impl Formatter<'_> {
    /// All statements up to the `}` of their block, or the end of the text.
    fn statements(&mut self) {
        loop {
            let next = self.code(self.at);
            let last = self.is(next, "}") || *self.kind(next) == TokenKind::End;
            self.comments(!last && self.begins_run(next));
            if last {
                return;
            }
            self.keep_empty_line(self.at);
            self.statement();
            self.trailing_comments();
        }
    }

    /// Whether the statement's first token is written by [`Self::run`], with comments before it.
    fn begins_run(&self, at: usize) -> bool {
        !(self.is(at, "{") || self.is(at, "do"))
    }

    fn statement(&mut self) {
        let next = self.code(self.at);
        match *self.kind(next) {
            TokenKind::Symbol("{") => {
                self.start_line();
                self.block();
            }
            TokenKind::Word("if") => self.if_statement(),
            TokenKind::Word("do") => self.do_statement(),
            TokenKind::Word("while" | "for") => {
                self.run(self.end_of_head());
                self.body();
            }
            TokenKind::Word("switch") => {
                self.run(self.end_of_head());
                self.switch_block();
            }
            _ => self.simple(),
        }
    }

    /// A statement without others in it, or a declaration with a block behind it.
    fn simple(&mut self) {
        let end = self.end_of_statement();
        if !self.is(end, "{") {
            self.run(end);
            return;
        }
        let is_struct = self.is(self.code(self.at), "struct");
        let mut head = end;
        while *self.kind(head - 1) == TokenKind::Comment {
            head -= 1;
        }
        self.run(head);
        self.out.push(' ');
        self.block();
        let semicolon = self.code(self.at);
        if is_struct && self.is(semicolon, ";") {
            self.out.push(';');
            self.moved_comments(self.at..semicolon);
            self.at = semicolon + 1;
        }
    }

    /// The end of a statement: after its `;`, at the `{` of a declaration with a block, or after
    /// the expression that is the body.
    fn end_of_statement(&self) -> usize {
        let first = self.code(self.at);
        let (mut at, mut open) = (first, 0usize);
        loop {
            let next = self.code(at);
            match *self.kind(next) {
                TokenKind::End => return at,
                TokenKind::Name if next > first && self.begins_test(next) => return at,
                TokenKind::Symbol("{") if open == 0 && self.is_block(first, next) => return next,
                TokenKind::Symbol("(" | "[" | "{") => open += 1,
                TokenKind::Symbol(")" | "]" | "}") => open = open.saturating_sub(1),
                TokenKind::Symbol(";") if open == 0 => return next + 1,
                _ => {}
            }
            at = next + 1;
        }
    }

    /// Whether this `{` begins a block and no list: of a function, a struct or a test.
    fn is_block(&self, first: usize, brace: usize) -> bool {
        let before = (first..brace)
            .rev()
            .find(|at| *self.kind(*at) != TokenKind::Comment);
        before.is_some_and(|before| match *self.kind(before) {
            TokenKind::Symbol(")") | TokenKind::Text(_) => true,
            TokenKind::Name => self.is(first, "struct"),
            _ => false,
        })
    }

    /// The end of a head: after the word and its parentheses, `if (...)`.
    fn end_of_head(&self) -> usize {
        let (mut at, mut open) = (self.code(self.at), 0usize);
        loop {
            let next = self.code(at);
            at = next + 1;
            match *self.kind(next) {
                TokenKind::Symbol("(") => open += 1,
                TokenKind::Symbol(")") if open <= 1 => return at,
                TokenKind::Symbol(")") => open -= 1,
                TokenKind::End => return next,
                _ => {}
            }
        }
    }

    /// The body after a head: a block on the same line, or one statement on the next. Returns
    /// whether it was a block.
    fn body(&mut self) -> bool {
        if self.is(self.code(self.at), "{") {
            self.out.push(' ');
            self.block();
            return true;
        }
        self.trailing_comments();
        self.indent += 1;
        self.fresh = true;
        self.comments(self.begins_run(self.code(self.at)));
        self.statement();
        self.indent -= 1;
        false
    }

    /// `{ ... }` where the line is. Comments before the brace go into it.
    fn block(&mut self) {
        self.indent += 1;
        let empty = self.open_brace();
        self.statements();
        self.close_brace(empty);
    }

    /// Writes `{` and the comments around it at their new level. Returns the length of the output
    /// up to the brace, by which the caller sees whether the block is empty.
    fn open_brace(&mut self) -> usize {
        let brace = self.code(self.at);
        self.out.push('{');
        let length = self.out.len();
        self.fresh = true;
        self.moved_comments(self.at..brace);
        self.at = brace + 1;
        self.trailing_comments();
        length
    }

    fn close_brace(&mut self, empty: usize) {
        self.indent -= 1;
        if self.out.len() > empty {
            self.start_line();
        }
        self.fresh = false;
        self.out.push('}');
        self.at += 1;
    }

    fn if_statement(&mut self) {
        self.run(self.end_of_head());
        let mut block = self.body();
        while self.is(self.code(self.at), "else") {
            if *self.kind(self.at) == TokenKind::Comment {
                self.trailing_comments();
                self.comments(false);
                block = false;
            }
            match block {
                true => self.out.push(' '),
                false => self.start_line(),
            }
            self.out.push_str("else");
            self.at += 1;
            if !self.is(self.at, "if") {
                self.body();
                return;
            }
            self.out.push(' ');
            self.run_here(self.end_of_head());
            block = self.body();
        }
    }

    fn do_statement(&mut self) {
        self.start_line();
        self.out.push_str("do");
        self.at += 1;
        let block = self.body();
        if block && *self.kind(self.at) != TokenKind::Comment {
            self.out.push(' ');
        } else {
            self.trailing_comments();
            self.comments(false);
            self.start_line();
        }
        self.run_here(self.end_of_statement());
    }

    /// The block of a switch: labels stand at its own level.
    fn switch_block(&mut self) {
        self.out.push(' ');
        let empty = self.open_brace();
        self.indent += 1;
        loop {
            let next = self.code(self.at);
            let last = self.is(next, "}") || *self.kind(next) == TokenKind::End;
            let label = self.is(next, "case") || self.is(next, "default");
            let outward = usize::from(label || last);
            self.indent -= outward;
            self.comments(!last && self.begins_run(next));
            if !last {
                self.keep_empty_line(self.at);
                match label {
                    true => self.label(),
                    false => self.statement(),
                }
                self.trailing_comments();
            }
            self.indent += outward;
            if last {
                return self.close_brace(empty);
            }
        }
    }

    /// `case 1:`, and a block that follows at once.
    fn label(&mut self) {
        let (mut at, mut choices) = (self.code(self.at), 0usize);
        loop {
            let next = self.code(at);
            at = next + 1;
            match *self.kind(next) {
                TokenKind::Symbol("?") => choices += 1,
                TokenKind::Symbol(":") if choices == 0 => break,
                TokenKind::Symbol(":") => choices -= 1,
                TokenKind::End => break,
                _ => {}
            }
        }
        self.run(at);
        if self.is(self.at, "{") {
            self.out.push(' ');
            self.block();
        }
    }
}
