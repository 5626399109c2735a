//! From tokens to the tree of [`crate::ast`]: a recursive descent, operators by their precedence.
//!
//! A function that finds an error reports it, exactly once and at its token, and returns `Told`. A
//! function that can continue from there catches it: a statement continues after its `;` or before
//! the `}` (`Parser::skip_statement`), the head of a loop after its `)`. A part that could not be
//! read stays in the tree as an `Error`, about which the checks report nothing more. The parser
//! does not skip the tokens after a missing `;` or `)`.
//!
//! Nesting is limited by [`limits::DEPTH`], the height of expressions by [`limits::HEIGHT`]; the
//! parser stops at either limit, with an error. So the parser and everything that walks its tree
//! need a bounded stack.

mod declaration;
mod expression;
mod service;
mod statement;
#[cfg(test)]
mod tests;
mod unit;

use crate::ast::{Expression, ExpressionKind, Item, Name, ServiceItem, Unit};
use crate::diagnostic::{Diagnostic, cut};
use crate::lexer::{self, Token, TokenKind};
use crate::limits;
use crate::source::{Source, Span};

/// Reads a text. If there are errors, the tree is complete but contains `Error`s.
pub fn parse(source: &Source) -> (Unit, Vec<Diagnostic>) {
    let (mut tokens, told) = lexer::lex(source);
    // A comment without an end hides the rest of the text, so nothing missing there is reported.
    let is_open_comment = |token: &mut Token| {
        token.kind == TokenKind::Bad && source.text_of(token.span).starts_with("/*")
    };
    let end = tokens.pop();
    let cut = tokens.pop_if(is_open_comment).is_some();
    tokens.extend(end);
    let mut parser = Parser {
        source,
        tokens,
        cut,
        at: 0,
        depth: 0,
        told,
        over: false,
    };
    let unit = parser.unit();
    let mut told = parser.told;
    told.sort_by_key(|diagnostic| diagnostic.span.start);
    (unit, told)
}

/// The error is among the diagnostics already.
#[derive(Clone, Copy, Debug)]
struct Told;

type Parsed<T> = Result<T, Told>;

/// The head of a service, if the text has one. Errors are not reported here.
pub fn service(source: &Source) -> Option<ServiceItem> {
    parse(source)
        .0
        .items
        .into_iter()
        .find_map(|item| match item {
            Item::Service(item) if item.head.is_some() => Some(item),
            _ => None,
        })
}

struct Parser<'a> {
    source: &'a Source,
    /// Ends with [`TokenKind::End`].
    tokens: Vec<Token>,
    /// The index of the next token, at most that of the last one.
    at: usize,
    /// The depth of nesting.
    depth: u32,
    told: Vec<Diagnostic>,
    /// The text ends too early, so nothing missing at its end is reported.
    cut: bool,
    /// A limit was exceeded: nothing more is read or reported.
    over: bool,
}

/// Looking at tokens and taking them.
impl<'a> Parser<'a> {
    fn token(&self, ahead: usize) -> &Token {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + ahead).min(last)]
    }

    fn kind(&self) -> &TokenKind {
        &self.token(0).kind
    }

    /// The span of the next token.
    fn span(&self) -> Span {
        self.token(0).span
    }

    /// The span of the token before.
    fn span_before(&self) -> Span {
        match self.at {
            0 => Span::default(),
            at => self.tokens[at - 1].span,
        }
    }

    /// The span from there to the token before.
    fn since(&self, start: Span) -> Span {
        start.to(self.span_before())
    }

    fn text(&self, ahead: usize) -> &'a str {
        self.source.text_of(self.token(ahead).span)
    }

    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn at_end(&self) -> bool {
        *self.kind() == TokenKind::End
    }

    /// Whether the token `ahead` tokens further on is this symbol or keyword.
    fn is_ahead(&self, ahead: usize, wanted: &str) -> bool {
        match self.token(ahead).kind {
            TokenKind::Symbol(text) | TokenKind::Word(text) => lexer::is_same(text, wanted),
            _ => false,
        }
    }

    fn is(&self, wanted: &str) -> bool {
        self.is_ahead(0, wanted)
    }

    /// Whether the next token is this name: a word that is a keyword only in some places.
    fn is_name(&self, wanted: &str) -> bool {
        *self.kind() == TokenKind::Name && self.text(0) == wanted
    }

    fn take(&mut self, wanted: &str) -> bool {
        let found = self.is(wanted);
        if found {
            self.advance();
        }
        found
    }

    /// Takes a symbol or keyword, or reports that it is missing.
    fn expect(&mut self, wanted: &str) -> Parsed<Span> {
        let span = self.span();
        match self.take(wanted) {
            true => Ok(span),
            false => Err(self.unexpected(&format!("'{wanted}'"), "")),
        }
    }

    /// Takes a closing symbol. If it is missing at the end of a line, this is reported there, and
    /// the next line is read as if it were present.
    fn expect_end(&mut self, wanted: &str, hint: &str) -> Parsed<()> {
        if self.take(wanted) {
            return Ok(());
        }
        if *self.kind() == TokenKind::Bad || !self.on_new_line() || self.cut && self.at_end() {
            return Err(self.unexpected(&format!("'{wanted}'"), hint));
        }
        let end = self.span_before().end;
        let behind = Span { start: end, end };
        let hint = match (hint, wanted) {
            ("", ";") => "a statement ends with ';'; only a body that is one expression has none",
            _ => hint,
        };
        self.tell(
            behind,
            format!("expected '{wanted}' at the end of the line"),
            hint,
        );
        Ok(())
    }

    /// Whether the next token is on another line than the one before.
    fn on_new_line(&self) -> bool {
        let between = Span {
            start: self.span_before().end,
            end: self.span().start,
        };
        self.at_end() || self.source.text_of(between).contains('\n')
    }

    /// A name, `what` for messages: "a name", "the function's name".
    fn name(&mut self, what: &str) -> Parsed<Name> {
        if *self.kind() != TokenKind::Name {
            let hint = match self.kind() {
                TokenKind::Word(word) => format!("'{word}' is a word of the language"),
                _ => String::new(),
            };
            return Err(self.unexpected(what, &hint));
        }
        let name = Name {
            text: self.text(0).to_owned(),
            span: self.span(),
        };
        self.advance();
        Ok(name)
    }
}

/// Reports of errors.
impl Parser<'_> {
    fn tell(&mut self, at: Span, message: impl Into<String>, hint: impl Into<String>) -> Told {
        if !self.over {
            self.told.push(Diagnostic::error(at, message).hint(hint));
        }
        Told
    }

    fn warn(&mut self, at: Span, message: impl Into<String>, hint: impl Into<String>) {
        if !self.over {
            self.told.push(Diagnostic::warning(at, message).hint(hint));
        }
    }

    /// Whether further errors are only counted, so that they need no hints.
    fn tells_no_more(&self) -> bool {
        self.told.len() >= limits::DIAGNOSTICS
    }

    /// Reports that the next token does not belong here, unless the lexer has reported it.
    fn unexpected(&mut self, expected: &str, hint: &str) -> Told {
        if *self.kind() == TokenKind::Bad || self.cut && self.at_end() {
            return Told;
        }
        let found = self.describe_next();
        let message = format!("expected {expected}, found {found}");
        let hint = match (hint, self.text(0)) {
            ("", "and") => "write '&&'",
            ("", "or") => "write '||'",
            ("", "not") => "write '!'",
            _ => hint,
        };
        self.tell(self.span(), message, hint)
    }

    /// The next token, for messages.
    fn describe_next(&self) -> String {
        match self.kind() {
            TokenKind::End => "the end of the text".into(),
            TokenKind::Text(_) => "a string".into(),
            _ => format!("'{}'", cut(self.text(0))),
        }
    }

    /// Reports that a limit is exceeded: this is the last error, and the parser stops here.
    fn end_of_patience(&mut self, at: Span, message: String, hint: &str) -> Told {
        self.tell(at, message, hint);
        self.over = true;
        self.at = self.tokens.len() - 1;
        Told
    }

    /// Reads something nested.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == limits::DEPTH {
            let message = format!("nested deeper than {} levels", limits::DEPTH);
            let hint = "use variables or functions for the parts";
            return Err(self.end_of_patience(self.span(), message, hint));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// An `Error` for an expression that began there and could not be read.
    fn lost(&self, start: Span) -> Expression {
        Expression {
            kind: ExpressionKind::Error,
            span: self.since(start),
        }
    }
}

/// Recovery after an error.
impl Parser<'_> {
    /// Skips to after the `;` of this statement, to the `}` of its block, or to a line that begins
    /// like a statement.
    fn skip_statement(&mut self) {
        let mut braces = 0u32;
        let mut first = true;
        while !self.at_end() {
            if !first && braces == 0 && self.on_new_line() && self.begins_statement() {
                return;
            }
            first = false;
            match *self.kind() {
                TokenKind::Symbol("{") => braces += 1,
                TokenKind::Symbol("}") if braces == 0 => return,
                TokenKind::Symbol("}") => {
                    braces -= 1;
                    if braces == 0 {
                        self.advance();
                        self.take(";");
                        return;
                    }
                }
                TokenKind::Symbol(";") if braces == 0 => {
                    self.advance();
                    return;
                }
                _ => {}
            }
            self.advance();
        }
    }

    /// Skips to after the `)` of an open parenthesis, if it comes before `{`, `}` or a new
    /// statement.
    fn skip_parenthesis(&mut self) {
        let mut open = 1u32;
        while !self.at_end() {
            match *self.kind() {
                TokenKind::Symbol("(") => open += 1,
                TokenKind::Symbol(")") => open -= 1,
                TokenKind::Symbol("{" | "}") => return,
                _ if self.on_new_line() && self.begins_statement() => return,
                _ => {}
            }
            self.advance();
            if open == 0 {
                return;
            }
        }
    }

    /// Skips to the `,` or `;` that ends a part of a declaration, or to the `}` of its block.
    fn skip_part(&mut self) {
        let mut open = 0u32;
        while !self.at_end() {
            match *self.kind() {
                TokenKind::Symbol("(" | "[" | "{") => open += 1,
                TokenKind::Symbol("}") if open == 0 => return,
                TokenKind::Symbol(")" | "]" | "}") => open = open.saturating_sub(1),
                TokenKind::Symbol(";") => return,
                TokenKind::Symbol(",") if open == 0 => return,
                _ if self.on_new_line() && self.begins_statement() => return,
                _ => {}
            }
            self.advance();
        }
    }

    /// Skips to the `}` of an open list, or to the `;` of the declaration.
    fn skip_list(&mut self) {
        let mut open = 0u32;
        while !self.at_end() {
            match *self.kind() {
                TokenKind::Symbol("{") => open += 1,
                TokenKind::Symbol("}") if open == 0 => return,
                TokenKind::Symbol("}") => open -= 1,
                TokenKind::Symbol(";") => return,
                _ => {}
            }
            self.advance();
        }
    }

    fn begins_statement(&self) -> bool {
        match *self.kind() {
            TokenKind::Word(word) => !matches!(word, "true" | "false" | "sizeof"),
            TokenKind::Name => {
                matches!(self.token(1).kind, TokenKind::Text(_)) && self.is_name("test")
            }
            _ => false,
        }
    }
}
