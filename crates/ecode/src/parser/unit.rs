//! The text as a whole: declarations, the body in its three forms, tests.

use super::{Parsed, Parser, Told};
use crate::ast::{
    Block, Declaration, EnumItem, Expression, FunctionItem, Item, Name, Statement, StatementKind,
    StructItem, TestItem, TestStep, Unit,
};
use crate::lexer::TokenKind;
use crate::source::Span;

/// The parts of a text at its outermost level.
enum Outer {
    Item(Item),
    /// A statement of the body.
    Statement(Statement),
    /// The body is this expression.
    Value(Expression),
}

impl Parser<'_> {
    pub(super) fn unit(&mut self) -> Unit {
        let mut items = Vec::new();
        let mut statements: Vec<Statement> = Vec::new();
        while !self.at_end() {
            match self.outer(statements.is_empty()) {
                Outer::Item(item) => {
                    if matches!(item, Item::Function(_)) {
                        move_declarations(&mut statements, &mut items);
                    }
                    items.push(item);
                }
                Outer::Statement(statement) => statements.push(statement),
                Outer::Value(value) => {
                    let span = value.span;
                    let kind = StatementKind::Return(Some(value));
                    statements.push(Statement { kind, span });
                }
            }
        }
        // A variable before a body in braces belongs to the whole text, as one before a function
        // does.
        if let Some((last, before)) = statements.split_last()
            && matches!(last.kind, StatementKind::Block(_))
            && before.iter().all(is_declaration)
        {
            let body = statements.split_off(statements.len() - 1);
            move_declarations(&mut statements, &mut items);
            statements = body;
        }
        let body = body_of(statements);
        Unit { items, body }
    }

    fn outer(&mut self, nothing_before: bool) -> Outer {
        let start = self.span();
        if self.is("}") {
            self.tell(
                start,
                "'}' without '{'",
                "remove it, or look for a '{' that is missing",
            );
            self.advance();
            let kind = StatementKind::Empty;
            return Outer::Statement(Statement { kind, span: start });
        }
        match self.item(nothing_before) {
            None => self.outer_statement(nothing_before),
            Some(Ok(outer)) => outer,
            Some(Err(Told)) => {
                if self.span() == start {
                    self.advance();
                }
                self.skip_statement();
                let kind = StatementKind::Expression(self.lost(start));
                let span = self.since(start);
                Outer::Statement(Statement { kind, span })
            }
        }
    }

    /// A statement of the body, or the one expression that it is.
    fn outer_statement(&mut self, nothing_before: bool) -> Outer {
        let begins_word = matches!(self.kind(), TokenKind::Word(word)
            if !matches!(*word, "true" | "false" | "sizeof"));
        let symbol = self.is("{") || self.is(";");
        let before = self.at;
        if begins_word || symbol || self.begins_declaration() || !nothing_before {
            return Outer::Statement(self.statement());
        }
        let told = self.told.len();
        match self.expression() {
            Ok(value) if self.at_end() || self.begins_test() => Outer::Value(value),
            // It is a statement, as which it is read again.
            _ => {
                if !self.over {
                    self.told.truncate(told);
                    self.at = before;
                }
                Outer::Statement(self.statement())
            }
        }
    }

    fn begins_test(&self) -> bool {
        let named = match self.token(1).kind {
            TokenKind::Text(_) => true,
            TokenKind::Name => self.is_ahead(2, "{"),
            _ => self.is_ahead(1, "{"),
        };
        self.is_name("test") && named
    }

    /// A declaration for the whole text, or what begins like one. `None`: a statement begins here.
    fn item(&mut self, nothing_before: bool) -> Option<Parsed<Outer>> {
        let start = self.span();
        let is_fuel = matches!(self.token(1).kind, TokenKind::Integer(_) | TokenKind::Name);
        if self.begins_test() {
            return Some(self.test(start).map(Item::Test).map(Outer::Item));
        }
        if self.begins_service() {
            return Some(Ok(Outer::Item(Item::Service(self.service(start)))));
        }
        if self.is_name("fuel") && is_fuel {
            return Some(self.fuel().map(Item::Fuel).map(Outer::Item));
        }
        let is_named = self.token(1).kind == TokenKind::Name;
        if self.is("struct") && is_named && self.is_ahead(2, "{") {
            return Some(self.struct_item(start).map(Item::Struct).map(Outer::Item));
        }
        if self.is("enum") && (self.is_ahead(1, "{") || is_named && self.is_ahead(2, "{")) {
            return Some(self.enum_item(start).map(Item::Enum).map(Outer::Item));
        }
        self.begins_declaration()
            .then(|| self.variable_or_function(start, nothing_before))
    }

    fn variable_or_function(&mut self, start: Span, nothing_before: bool) -> Parsed<Outer> {
        let specifiers = self.specifiers()?;
        if *self.kind() == TokenKind::Name && self.is_ahead(1, "(") {
            if specifiers.is_static || specifiers.is_const {
                let hint = "remove it: every function is known in this text only";
                self.tell(start, "'static' and 'const' are for variables", hint);
            }
            let name = self.name("the function's name")?;
            let parameters = self.parameters()?;
            if !self.is("{") {
                let hint = match self.is(";") {
                    true => "functions need no declaration before they are used",
                    false => "",
                };
                return Err(self.unexpected("'{' and what the function does", hint));
            }
            let mut body = self.block()?;
            if !self.is_closed() {
                // It contains the rest of the text, so further errors would not help.
                let kind = StatementKind::Return(Some(self.lost(body.span)));
                let span = body.span;
                body.statements = vec![Statement { kind, span }];
            }
            let ty = specifiers.ty;
            let span = self.since(start);
            return Ok(Outer::Item(Item::Function(FunctionItem {
                ty,
                name,
                parameters,
                body,
                span,
            })));
        }
        let declaration = self.declaration(specifiers, start)?;
        // After statements, a `const` may be computed from their variables.
        if declaration.is_static || declaration.is_const && nothing_before {
            return Ok(Outer::Item(Item::Variable(declaration)));
        }
        let span = declaration.span;
        let kind = StatementKind::Declaration(declaration);
        Ok(Outer::Statement(Statement { kind, span }))
    }

    /// `(int a, char b)`, `(void)`, `()`
    fn parameters(&mut self) -> Parsed<Vec<Declaration>> {
        self.expect("(")?;
        let mut parameters = Vec::new();
        if self.take(")") {
            return Ok(parameters);
        }
        if self.is("void") && self.is_ahead(1, ")") {
            self.advance();
            self.advance();
            return Ok(parameters);
        }
        loop {
            let start = self.span();
            let of = self.specifiers()?;
            if self.is(",") || self.is(")") {
                let hint = "a function needs no declaration before its use: only define it";
                return Err(self.unexpected("the parameter's name", hint));
            }
            let name = self.name("the parameter's name")?;
            let mut variable = self.declarator(name);
            if variable.initialiser.take().is_some() {
                self.tell(
                    self.since(start),
                    "a parameter has no first value",
                    "remove it",
                );
            }
            parameters.push(Declaration {
                is_static: of.is_static,
                is_const: of.is_const,
                ty: of.ty,
                variables: vec![variable],
                span: self.since(start),
            });
            if self.take(")") {
                return Ok(parameters);
            }
            if !self.take(",") {
                return Err(self.unexpected("',' or ')' behind a parameter", ""));
            }
        }
    }
}

/// Declarations that begin with a word of their own.
impl Parser<'_> {
    /// `fuel 10000;`
    fn fuel(&mut self) -> Parsed<Expression> {
        self.advance();
        let value = self.conditional_expression()?;
        self.expect_end(";", "fuel ITERATIONS;")?;
        Ok(value)
    }

    /// `struct NAME { fields };`
    fn struct_item(&mut self, start: Span) -> Parsed<StructItem> {
        self.advance();
        let name = self.name("the name of the struct")?;
        let open = self.expect("{")?;
        let mut fields = Vec::new();
        while !self.is("}") {
            if self.at_end() {
                self.not_closed(open);
                break;
            }
            let (begin, at) = (self.span(), self.at);
            let field = self.specifiers().and_then(|of| self.declaration(of, begin));
            match field {
                Ok(mut field) => {
                    self.refuse_field_values(&mut field);
                    fields.push(field);
                }
                Err(Told) => {
                    if self.at == at {
                        self.advance();
                    }
                    self.skip_statement();
                }
            }
        }
        self.take("}");
        self.end_of_type("struct", &name.text)?;
        let span = self.since(start);
        Ok(StructItem { name, fields, span })
    }

    /// Reports a property that a field of a struct cannot have.
    fn refuse_field_values(&mut self, field: &mut Declaration) {
        if field.is_static || field.is_const {
            let message = "a field is neither 'static' nor 'const'";
            self.tell(field.span, message, "that is said of the variable");
            (field.is_static, field.is_const) = (false, false);
        }
        for variable in &mut field.variables {
            if variable.initialiser.take().is_some() {
                let message = "a field has no first value";
                self.tell(variable.name.span, message, "give it to the variable");
            }
        }
    }

    /// `enum NAME { A, B = 3 };`
    fn enum_item(&mut self, start: Span) -> Parsed<EnumItem> {
        self.advance();
        let name = match self.is("{") {
            true => None,
            false => Some(self.name("the name of the enum")?),
        };
        self.expect("{")?;
        let mut values = Vec::new();
        while !self.take("}") {
            if self.enum_value(&mut values).is_err() {
                self.skip_list();
                if !self.is("}") {
                    return Err(Told); // the list has no end; that is told
                }
            }
        }
        let shown = name.as_ref().map_or("", |name| &name.text).to_owned();
        self.end_of_type("enum", &shown)?;
        let span = self.since(start);
        Ok(EnumItem { name, values, span })
    }

    fn enum_value(&mut self, values: &mut Vec<(Name, Option<Expression>)>) -> Parsed<()> {
        let value = self.name("a name for the value")?;
        let number = match self.take("=") {
            true => Some(self.conditional_expression()?),
            false => None,
        };
        values.push((value, number));
        match self.take(",") || self.is("}") {
            true => Ok(()),
            false => Err(self.unexpected(
                "',' or '}' behind a value",
                "the values of an enum are separated by ','",
            )),
        }
    }

    /// The `;` behind a struct or an enum.
    fn end_of_type(&mut self, word: &str, name: &str) -> Parsed<()> {
        let hint = match self.kind() {
            TokenKind::Name => format!("declare variables apart: '{word} {name} NAME;'"),
            _ => format!("a {word} ends with '}};'"),
        };
        self.expect_end(";", &hint)
    }

    /// `test "name" { ... }`
    fn test(&mut self, start: Span) -> Parsed<TestItem> {
        self.advance();
        let mut name = String::new();
        if let TokenKind::Text(bytes) = self.kind() {
            name = String::from_utf8_lossy(bytes).into_owned();
            self.advance();
        } else {
            self.unexpected(
                "the test's name in quotes",
                "test \"what it shows\" { ... }",
            );
            if *self.kind() == TokenKind::Name {
                self.advance();
            }
        }
        let open = self.expect("{")?;
        let mut steps = Vec::new();
        while !self.is("}") {
            if self.at_end() {
                self.not_closed(open);
                break;
            }
            match self.step() {
                Ok(step) => steps.push(step),
                Err(Told) => {
                    if self.is("}") {
                        continue;
                    }
                    self.skip_statement();
                }
            }
        }
        self.take("}");
        let span = self.since(start);
        Ok(TestItem { name, steps, span })
    }

    fn step(&mut self) -> Parsed<TestStep> {
        let start = self.span();
        if self.is_name("run") && (self.is_ahead(1, ";") || self.token(1).kind == TokenKind::Name) {
            self.advance();
            self.expect_end(";", "")?;
            return Ok(TestStep::Run(start));
        }
        let assigns = ["=", ".", "[", ";"]
            .iter()
            .any(|symbol| self.is_ahead(1, symbol));
        if self.is_name("expect") && !assigns {
            self.advance();
            let condition = self.expression()?;
            self.expect_end(";", "expect CONDITION;")?;
            return Ok(TestStep::Expect(condition));
        }
        let hint = "a test has 'PLACE = VALUE;', 'run;' and 'expect CONDITION;'";
        if matches!(
            self.kind(),
            TokenKind::Word(_) | TokenKind::Symbol("{" | ";")
        ) {
            let told = self.unexpected("a step of the test", hint);
            self.advance();
            return Err(told);
        }
        let place = self.conditional_expression()?;
        if !self.take("=") {
            return Err(self.unexpected("'='", hint));
        }
        let value = self.initialiser()?;
        self.expect_end(";", "")?;
        Ok(TestStep::Set { place, value })
    }
}

fn is_declaration(statement: &Statement) -> bool {
    matches!(statement.kind, StatementKind::Declaration(_))
}

/// Variables declared before a function or a body in braces belong to the whole text; the checks
/// report that they need `static` or `const`.
fn move_declarations(statements: &mut Vec<Statement>, items: &mut Vec<Item>) {
    if !statements.iter().all(is_declaration) {
        return;
    }
    items.extend(
        statements
            .drain(..)
            .filter_map(|statement| match statement.kind {
                StatementKind::Declaration(declaration) => Some(Item::Variable(declaration)),
                _ => None,
            }),
    );
}

fn body_of(mut statements: Vec<Statement>) -> Option<Block> {
    let (first, last) = (statements.first()?.span, statements.last()?.span);
    if statements.len() == 1
        && let Some(Statement {
            kind: StatementKind::Block(block),
            ..
        }) = statements.pop_if(|only| matches!(only.kind, StatementKind::Block(_)))
    {
        return Some(block);
    }
    Some(Block {
        span: first.to(last),
        statements,
    })
}
