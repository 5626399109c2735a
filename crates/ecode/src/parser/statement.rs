//! Statements and blocks.

use super::{Parsed, Parser, Told};
use crate::ast::{Block, Expression, Statement, StatementKind, SwitchGroup};
use crate::lexer::TokenKind;
use crate::source::Span;

/// The parts in the parentheses of `for`.
#[derive(Default)]
struct ForHead {
    first: Option<StatementKind>,
    condition: Option<Expression>,
    next: Option<Expression>,
}

/// Blocks, and what any statement begins with.
impl Parser<'_> {
    /// `{ ... }`. Errors inside are reported there; the result is a block in any case.
    pub(super) fn block(&mut self) -> Parsed<Block> {
        let open = self.expect("{")?;
        let mut statements = Vec::new();
        while !self.is("}") {
            if self.at_end() {
                self.not_closed(open);
                break;
            }
            statements.push(self.statement());
        }
        self.take("}");
        let span = self.since(open);
        Ok(Block { statements, span })
    }

    /// Whether the block before was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.at > 0 && matches!(self.tokens[self.at - 1].kind, TokenKind::Symbol("}"))
    }

    /// Reports that the text ends before this brace is closed.
    pub(super) fn not_closed(&mut self, open: Span) {
        let line = self.source.position(open.start).line;
        let hint = format!("it closes the '{{' in line {line}");
        self.unexpected("'}'", &hint);
    }

    /// A statement; one that cannot be read becomes an `Error`, and is skipped.
    pub(super) fn statement(&mut self) -> Statement {
        let start = self.span();
        let before = self.at;
        let kind = self.deeper(Self::statement_kind).unwrap_or_else(|Told| {
            if self.at == before {
                self.advance_over_stray();
            }
            self.skip_statement();
            StatementKind::Expression(self.lost(start))
        });
        let span = self.since(start);
        Statement { kind, span }
    }

    /// Skips a token with which no statement begins, so that the parser proceeds.
    fn advance_over_stray(&mut self) {
        if matches!(*self.kind(), TokenKind::Symbol(")" | "]" | ",")) || self.begins_statement() {
            self.advance();
        }
    }

    fn statement_kind(&mut self) -> Parsed<StatementKind> {
        match *self.kind() {
            TokenKind::Symbol(";") => {
                self.advance();
                Ok(StatementKind::Empty)
            }
            TokenKind::Symbol("{") => self.block().map(StatementKind::Block),
            TokenKind::Word(word) => self.statement_of_word(word),
            TokenKind::Name if self.begins_foreign() => Err(self.foreign()),
            TokenKind::Name if self.begins_declaration() => self.local(),
            TokenKind::Name if self.is_ahead(1, ":") && !self.is_ahead(2, ":") => {
                let hint = "there is no 'goto'; a label of a switch is 'case VALUE:'";
                Err(self.tell(self.span(), "labels have no meaning", hint))
            }
            _ => self.expression_statement(),
        }
    }

    fn statement_of_word(&mut self, word: &str) -> Parsed<StatementKind> {
        match word {
            "if" => self.if_statement(),
            "while" => {
                self.advance();
                let condition = self.head("while");
                let body = Box::new(self.statement());
                Ok(StatementKind::While { condition, body })
            }
            "do" => self.do_statement(),
            "for" => self.for_statement(),
            "switch" => self.switch_statement(),
            "return" => self.return_statement(),
            "break" | "continue" => {
                self.advance();
                self.end_of_statement();
                Ok(match word {
                    "break" => StatementKind::Break,
                    _ => StatementKind::Continue,
                })
            }
            "else" => Err(self.tell(
                self.span(),
                "'else' without 'if'",
                "between 'if (...)' and 'else' stands one statement; more need braces",
            )),
            "case" | "default" => Err(self.tell(
                self.span(),
                format!("'{word}' outside of a switch"),
                "labels stand in 'switch (VALUE) { case 1: ... default: ... }'",
            )),
            _ if self.begins_type(0) => self.local(),
            _ => self.expression_statement(),
        }
    }

    /// A declaration within a function.
    fn local(&mut self) -> Parsed<StatementKind> {
        let start = self.span();
        let specifiers = self.specifiers()?;
        self.declaration(specifiers, start)
            .map(StatementKind::Declaration)
    }

    fn expression_statement(&mut self) -> Parsed<StatementKind> {
        let expression = self.expression()?;
        if self.take(";") {
            return Ok(StatementKind::Expression(expression));
        }
        let misspelled = self.misspelled(&expression);
        let hint = match &misspelled {
            Some(hint) => hint,
            None if self.at_end() && self.depth == 1 => {
                "is it the result? Then write 'return' before it, and ';' behind it"
            }
            None => "",
        };
        if self.expect_end(";", hint).is_ok() {
            return Ok(StatementKind::Expression(expression));
        }
        self.skip_statement();
        Ok(StatementKind::Expression(match misspelled {
            Some(_) => self.lost(expression.span), // not as a name that is unknown, too
            None => expression,
        }))
    }

    /// The `;` of a complete statement; if it is missing, this is reported, and the rest is
    /// skipped.
    fn end_of_statement(&mut self) {
        if self.expect_end(";", "").is_err() {
            self.skip_statement();
        }
    }
}

/// Statements that begin with a word.
impl Parser<'_> {
    /// `(CONDITION)`; an `Error` if it cannot be read, after which the parser continues.
    fn head(&mut self, of: &str) -> Expression {
        let start = self.span();
        let read = if self.take("(") {
            let read = self
                .expression()
                .and_then(|condition| self.close_head().map(|()| condition));
            if read.is_err() {
                self.skip_parenthesis();
            }
            read
        } else {
            let hint = format!("the condition of '{of}' stands in parentheses");
            self.unexpected("'('", &hint);
            // Even without parentheses it may be a condition.
            self.expression()
        };
        read.unwrap_or_else(|Told| self.lost(start))
    }

    fn close_head(&mut self) -> Parsed<()> {
        if self.is("{") && !self.on_new_line() || self.on_new_line() && !self.is(")") {
            // Most probably only the ')' is missing.
            let end = self.span_before().end;
            let hint = "what stands in parentheses ends here";
            self.tell(Span { start: end, end }, "expected ')'", hint);
            return Ok(());
        }
        match self.take(")") {
            true => Ok(()),
            false => Err(self.unexpected("an operator or ')'", "")),
        }
    }

    fn if_statement(&mut self) -> Parsed<StatementKind> {
        self.advance();
        let condition = self.head("if");
        let then = Box::new(self.statement());
        let otherwise = self.take("else").then(|| Box::new(self.statement()));
        Ok(StatementKind::If {
            condition,
            then,
            otherwise,
        })
    }

    fn do_statement(&mut self) -> Parsed<StatementKind> {
        self.advance();
        let body = Box::new(self.statement());
        if !self.take("while") {
            let hint = "a loop that begins with 'do' ends with 'while (CONDITION);'";
            return Err(self.unexpected("'while'", hint));
        }
        let condition = self.head("while");
        self.end_of_statement();
        Ok(StatementKind::Do { body, condition })
    }

    fn return_statement(&mut self) -> Parsed<StatementKind> {
        self.advance();
        if self.take(";") {
            return Ok(StatementKind::Return(None));
        }
        if self.is("}") || self.on_new_line() && self.begins_statement() {
            self.end_of_statement();
            return Ok(StatementKind::Return(None));
        }
        let value = self.expression()?;
        self.end_of_statement();
        Ok(StatementKind::Return(Some(value)))
    }

    /// `for (a; b; c)` and `for (s in sinks)`
    fn for_statement(&mut self) -> Parsed<StatementKind> {
        self.advance();
        let start = self.span();
        self.expect("(")?;
        let of_sinks = self.text(2) == "sinks" && self.token(1).kind == TokenKind::Name;
        if *self.kind() == TokenKind::Name && (self.is_next_name("in") || of_sinks) {
            return self.for_sink();
        }
        let mut head = ForHead::default();
        if self.for_head(&mut head).is_err() {
            self.skip_parenthesis();
            head.condition = Some(self.lost(start));
        }
        let span = self.since(start);
        let kind = head.first.unwrap_or(StatementKind::Empty);
        let body = Box::new(self.statement());
        Ok(StatementKind::For {
            first: Box::new(Statement { kind, span }),
            condition: head.condition,
            next: head.next,
            body,
        })
    }

    fn is_next_name(&self, wanted: &str) -> bool {
        self.token(1).kind == TokenKind::Name && self.text(1) == wanted
    }

    fn for_sink(&mut self) -> Parsed<StatementKind> {
        let name = self.name("the sink's name")?;
        if !self.is_name("in") {
            self.unexpected("'in'", "for (s in sinks)");
        }
        self.advance();
        if !self.is_name("sinks") {
            self.unexpected(
                "'sinks'",
                "'for (s in sinks)' goes through the sinks of the channel",
            );
            self.skip_parenthesis();
        } else {
            self.advance();
            if !self.take(")") {
                self.unexpected("')'", "");
                self.skip_parenthesis();
            }
        }
        let body = Box::new(self.statement());
        Ok(StatementKind::ForSink { name, body })
    }

    /// The three parts of `for`, with the `)`. A part that was read stays even if the rest is
    /// wrong.
    fn for_head(&mut self, head: &mut ForHead) -> Parsed<()> {
        let hint = "for (FIRST; CONDITION; NEXT)";
        if self.begins_declaration() {
            let told = self.told.len();
            head.first = Some(self.local()?);
            if self.told.len() > told {
                return Err(Told);
            }
        } else {
            if !self.is(";") {
                head.first = Some(StatementKind::Expression(self.expression()?));
            }
            self.for_semicolon(hint)?;
        }
        if !self.is(";") {
            head.condition = Some(self.expression()?);
        }
        self.for_semicolon(hint)?;
        if !self.is(")") {
            head.next = Some(self.expression()?);
        }
        self.close_head()
    }

    fn for_semicolon(&mut self, hint: &str) -> Parsed<()> {
        match self.take(";") {
            true => Ok(()),
            false => Err(self.unexpected("';'", hint)),
        }
    }
}

/// `switch`.
impl Parser<'_> {
    fn switch_statement(&mut self) -> Parsed<StatementKind> {
        self.advance();
        let value = self.head("switch");
        let open = self.span();
        if !self.take("{") {
            return Err(self.unexpected("'{'", "switch (VALUE) { case 1: ... }"));
        }
        let mut groups: Vec<SwitchGroup> = Vec::new();
        while !self.take("}") {
            if self.at_end() {
                self.not_closed(open);
                break;
            }
            let labels = self.labels();
            if labels.is_empty() && groups.is_empty() {
                self.unexpected(
                    "'case' or 'default'",
                    "every statement of a switch has a label",
                );
            }
            if !labels.is_empty() || groups.is_empty() {
                let statements = Vec::new();
                groups.push(SwitchGroup { labels, statements });
            }
            while !(self.is("}") || self.at_end() || self.is("case") || self.is("default")) {
                let statement = self.statement();
                if let Some(group) = groups.last_mut() {
                    group.statements.push(statement);
                }
            }
        }
        Ok(StatementKind::Switch { value, groups })
    }

    /// `case 1: case 2: default:`
    fn labels(&mut self) -> Vec<(Option<Expression>, Span)> {
        let mut labels = Vec::new();
        loop {
            let start = self.span();
            let label = if self.take("default") {
                None
            } else if self.take("case") {
                let value = self.conditional_expression();
                Some(value.unwrap_or_else(|Told| {
                    self.skip_label();
                    self.lost(start)
                }))
            } else {
                return labels;
            };
            if !self.take(":") {
                let hint = match self.is("...") {
                    true => "write a label for each value",
                    false => "a label is 'case VALUE:' or 'default:'",
                };
                self.unexpected("':'", hint);
                self.skip_label();
                self.take(":");
            }
            labels.push((label, self.since(start)));
        }
    }

    /// Skips to the `:` of a label, if it comes on this line.
    fn skip_label(&mut self) {
        while !(self.at_end() || self.is(":") || self.is("}") || self.is(";") || self.on_new_line())
        {
            self.advance();
        }
    }
}
