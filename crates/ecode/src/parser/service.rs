//! The head of a service: its name, its tracepoint, and the properties of its events.

use super::{Parsed, Parser, Told};
use crate::ast::{Name, ServiceItem};
use crate::lexer::TokenKind;
use crate::source::Span;

const HEAD: &str = "service \"NAME\" on tracepoint \"CATEGORY:NAME\";";
const PARTS: &str = "a service has 'kind NAME;' and 'deadline US;'";

impl Parser<'_> {
    /// Whether a head begins here, or a wrong attempt at one.
    pub(super) fn begins_service(&self) -> bool {
        let named = match self.token(1).kind {
            TokenKind::Text(_) => true,
            TokenKind::Name => self.is_word(2, "on"),
            _ => false,
        };
        self.is_name("service") && named
    }

    fn is_word(&self, ahead: usize, wanted: &str) -> bool {
        self.token(ahead).kind == TokenKind::Name && self.text(ahead) == wanted
    }

    /// `service "name" on tracepoint "category:name";`, or with further parts in braces.
    pub(super) fn service(&mut self, start: Span) -> ServiceItem {
        self.advance();
        let mut item = ServiceItem {
            head: self.names().ok(),
            kinds: Vec::new(),
            deadlines: Vec::new(),
            span: start,
        };
        if item.head.is_none() {
            self.skip_statement();
        } else if self.is("{") {
            self.parts(&mut item);
        } else if self.expect_end(";", HEAD).is_err() {
            item.head = None;
            self.skip_statement();
        }
        item.span = self.since(start);
        item
    }

    /// `"name" on tracepoint "category:name"`
    fn names(&mut self) -> Parsed<(Name, Name)> {
        let name = self.quoted("the service's name in quotes")?;
        self.word("on")?;
        self.word("tracepoint")?;
        let tracepoint = self.quoted("the tracepoint's name in quotes")?;
        Ok((name, tracepoint))
    }

    /// Takes a word that is a keyword only here.
    fn word(&mut self, wanted: &str) -> Parsed<()> {
        if !self.is_name(wanted) {
            return Err(self.unexpected(&format!("'{wanted}'"), HEAD));
        }
        self.advance();
        Ok(())
    }

    /// A string literal, with its span.
    fn quoted(&mut self, what: &str) -> Parsed<Name> {
        let TokenKind::Text(bytes) = self.kind() else {
            return Err(self.unexpected(what, HEAD));
        };
        let name = Name {
            text: String::from_utf8_lossy(bytes).into_owned(),
            span: self.span(),
        };
        self.advance();
        Ok(name)
    }

    /// `{ kind NAME; deadline US; }`
    fn parts(&mut self, item: &mut ServiceItem) {
        let open = self.span();
        self.advance();
        while !self.is("}") {
            if self.at_end() {
                self.not_closed(open);
                break;
            }
            if self.part(item).is_err() && !self.is("}") {
                self.skip_statement();
            }
        }
        self.take("}");
    }

    fn part(&mut self, item: &mut ServiceItem) -> Parsed<()> {
        if self.is_name("kind") {
            self.advance();
            let name = self.name("the name of the kind")?;
            item.kinds.push(name);
        } else if self.is_name("deadline") {
            self.advance();
            let value = self.conditional_expression()?;
            item.deadlines.push(value);
        } else {
            let Told = self.unexpected("'kind' or 'deadline'", PARTS);
            self.advance();
            return Err(Told);
        }
        self.expect_end(";", PARTS)
    }
}
