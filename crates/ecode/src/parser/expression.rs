//! Expressions, with C's precedence. Chains of operators are read without recursion, with a stack
//! of the operators whose right operand is not complete; only nesting in the text makes the parser
//! recurse.

use super::{Parsed, Parser, Told};
use crate::ast::{BinaryOperator, Expression, ExpressionKind, Name, UnaryOperator};
use crate::lexer::{KEYWORDS, TokenKind};
use crate::limits;
use crate::source::Span;
use crate::suggest;

/// An expression and the height of its tree.
pub(super) struct Grown {
    pub(super) expression: Expression,
    height: u32,
}

impl Grown {
    fn leaf(kind: ExpressionKind, span: Span) -> Grown {
        Grown {
            expression: Expression { kind, span },
            height: 1,
        }
    }
}

/// An operator between two operands.
#[derive(Clone, Copy)]
enum Infix {
    Binary(BinaryOperator),
    And,
    Or,
}

/// The operators between two operands and their precedence (C11 6.5.5 to 6.5.14).
const INFIX: [(&str, u8, Infix); 18] = [
    ("||", 1, Infix::Or),
    ("&&", 2, Infix::And),
    ("|", 3, Infix::Binary(BinaryOperator::Or)),
    ("^", 4, Infix::Binary(BinaryOperator::Xor)),
    ("&", 5, Infix::Binary(BinaryOperator::And)),
    ("==", 6, Infix::Binary(BinaryOperator::Equal)),
    ("!=", 6, Infix::Binary(BinaryOperator::NotEqual)),
    ("<", 7, Infix::Binary(BinaryOperator::Less)),
    ("<=", 7, Infix::Binary(BinaryOperator::LessEqual)),
    (">", 7, Infix::Binary(BinaryOperator::Greater)),
    (">=", 7, Infix::Binary(BinaryOperator::GreaterEqual)),
    ("<<", 8, Infix::Binary(BinaryOperator::ShiftLeft)),
    (">>", 8, Infix::Binary(BinaryOperator::ShiftRight)),
    ("+", 9, Infix::Binary(BinaryOperator::Add)),
    ("-", 9, Infix::Binary(BinaryOperator::Subtract)),
    ("*", 10, Infix::Binary(BinaryOperator::Multiply)),
    ("/", 10, Infix::Binary(BinaryOperator::Divide)),
    ("%", 10, Infix::Binary(BinaryOperator::Remainder)),
];

/// `+=` and its like: the operator without the `=`.
fn assigning(symbol: &str) -> Option<BinaryOperator> {
    let operator = symbol.strip_suffix('=')?;
    if matches!(symbol, "==" | "<=" | ">=" | "!=") {
        return None;
    }
    INFIX.iter().find_map(|(text, _, infix)| match infix {
        Infix::Binary(binary) if *text == operator => Some(*binary),
        _ => None,
    })
}

/// From the outside in: comma, assignment, choice, chains of operators.
impl Parser<'_> {
    /// `a, b`
    pub(super) fn expression(&mut self) -> Parsed<Expression> {
        self.comma().map(|grown| grown.expression)
    }

    /// An argument or an initialiser: any expression but `a, b`.
    pub(super) fn assignment_expression(&mut self) -> Parsed<Expression> {
        self.assignment().map(|grown| grown.expression)
    }

    /// The left side of `=`, or a constant: no assignment either.
    pub(super) fn conditional_expression(&mut self) -> Parsed<Expression> {
        self.conditional().map(|grown| grown.expression)
    }

    fn comma(&mut self) -> Parsed<Grown> {
        let mut left = self.assignment()?;
        while self.take(",") {
            let right = self.assignment()?;
            left = self.grow2(left, right, ExpressionKind::Comma)?;
        }
        Ok(left)
    }

    fn assignment(&mut self) -> Parsed<Grown> {
        let left = self.conditional()?;
        let TokenKind::Symbol(symbol) = *self.kind() else {
            return Ok(left);
        };
        let operator = assigning(symbol);
        if symbol != "=" && operator.is_none() {
            return Ok(left);
        }
        let place = self.span();
        self.advance();
        if symbol == "=" {
            self.refuse_turned(place)?;
        }
        let right = self.deeper(Self::assignment)?;
        match operator {
            None => self.grow2(left, right, ExpressionKind::Assign),
            Some(operator) => self.grow2(left, right, |left, right| {
                ExpressionKind::AssignBinary(operator, left, right, place)
            }),
        }
    }

    /// Reports `=>` and `=<`, whose `=` has been read.
    fn refuse_turned(&mut self, equals: Span) -> Parsed<()> {
        for (written, meant, after) in [("=>", ">=", ">"), ("=<", "<=", "<")] {
            if self.is(after) && self.span().start == equals.end {
                let both = equals.to(self.span());
                let hint = format!("write '{meant}'");
                return Err(self.tell(both, format!("'{written}' is no operator"), hint));
            }
        }
        Ok(())
    }

    fn conditional(&mut self) -> Parsed<Grown> {
        let condition = self.chain()?;
        if !self.take("?") {
            return Ok(condition);
        }
        let then = self.deeper(Self::comma)?;
        if !self.is(":") {
            return Err(self.unexpected("':'", "a choice is 'CONDITION ? IF SO : IF NOT'"));
        }
        self.advance();
        let otherwise = self.deeper(Self::conditional)?;
        let height = condition.height.max(then.height).max(otherwise.height);
        let span = condition.expression.span.to(otherwise.expression.span);
        let kind = ExpressionKind::Choice(
            Box::new(condition.expression),
            Box::new(then.expression),
            Box::new(otherwise.expression),
        );
        self.grow(height, kind, span)
    }

    /// Operands with operators between them. `waiting` holds, in order of rising precedence, the
    /// operators whose right operand is not complete.
    fn chain(&mut self) -> Parsed<Grown> {
        let mut left = self.unary()?;
        let mut waiting: Vec<(Grown, u8, Infix, Span)> = Vec::new();
        loop {
            let next = match *self.kind() {
                TokenKind::Symbol(symbol) => INFIX.iter().find(|(text, ..)| *text == symbol),
                _ => None,
            };
            let strength = next.map_or(0, |(_, strength, _)| *strength);
            while let Some((first, _, infix, place)) =
                waiting.pop_if(|(_, waiting, ..)| *waiting >= strength)
            {
                left = self.combine(first, infix, left, place)?;
            }
            let Some((_, strength, infix)) = next else {
                return Ok(left);
            };
            let place = self.span();
            self.advance();
            let right = self.unary()?;
            waiting.push((left, *strength, *infix, place));
            left = right;
        }
    }

    fn combine(&mut self, left: Grown, infix: Infix, right: Grown, place: Span) -> Parsed<Grown> {
        match infix {
            Infix::And => self.grow2(left, right, ExpressionKind::And),
            Infix::Or => self.grow2(left, right, ExpressionKind::Or),
            Infix::Binary(operator) => {
                self.look_at_bits(operator, &left.expression, &right.expression, place);
                self.grow2(left, right, |left, right| {
                    ExpressionKind::Binary(operator, left, right, place)
                })
            }
        }
    }

    /// Warns of `a & b == c`, which is `a & (b == c)`.
    fn look_at_bits(
        &mut self,
        of: BinaryOperator,
        left: &Expression,
        right: &Expression,
        at: Span,
    ) {
        use BinaryOperator::{
            And, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, Or, Xor,
        };
        let compares = |side: &Expression| match &side.kind {
            ExpressionKind::Binary(
                Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual,
                first,
                ..,
            ) => side.span.start == first.span.start, // else it stands in parentheses
            _ => false,
        };
        // Two comparisons combined by a bitwise operator are intended.
        if matches!(of, And | Or | Xor) && compares(left) != compares(right) {
            let operator = self.source.text_of(at);
            self.warn(
                at,
                format!("the comparison binds stronger than '{operator}'"),
                format!("write (a {operator} b) == c, or a {operator} (b == c) if that is meant"),
            );
        }
    }

    /// A node over two others.
    fn grow2(
        &mut self,
        left: Grown,
        right: Grown,
        kind: impl FnOnce(Box<Expression>, Box<Expression>) -> ExpressionKind,
    ) -> Parsed<Grown> {
        let height = left.height.max(right.height);
        let span = left.expression.span.to(right.expression.span);
        let kind = kind(Box::new(left.expression), Box::new(right.expression));
        self.grow(height, kind, span)
    }

    /// A node over others, of which the highest has this height.
    fn grow(&mut self, height: u32, kind: ExpressionKind, span: Span) -> Parsed<Grown> {
        if height >= limits::HEIGHT {
            let place = self.span_before();
            let message = format!("more than {} operators in one expression", limits::HEIGHT);
            let hint = "split it: use variables, a table, or several statements";
            return Err(self.end_of_patience(place, message, hint));
        }
        Ok(Grown {
            expression: Expression { kind, span },
            height: height + 1,
        })
    }
}

/// Operators before and behind one operand.
impl Parser<'_> {
    fn unary(&mut self) -> Parsed<Grown> {
        let start = self.span();
        let TokenKind::Symbol(symbol) = *self.kind() else {
            return match *self.kind() {
                TokenKind::Word("sizeof") => self.size_of(),
                _ => self.postfix(),
            };
        };
        let operator = match symbol {
            "+" => UnaryOperator::Plus,
            "-" => UnaryOperator::Minus,
            "~" => UnaryOperator::Complement,
            "!" => UnaryOperator::Not,
            "++" | "--" => return self.step_before(symbol),
            "(" if self.begins_type(1) => return self.cast(),
            "&" | "*" => {
                let hint = match symbol {
                    "&" => "values are copied; whole arrays and structs too",
                    _ => "use an array with an index",
                };
                return Err(self.tell(start, "there are no pointers", hint));
            }
            _ => return self.postfix(),
        };
        self.advance();
        let operand = self.deeper(Self::unary)?;
        let span = start.to(operand.expression.span);
        let kind = ExpressionKind::Unary(operator, Box::new(operand.expression));
        self.grow(operand.height, kind, span)
    }

    /// `++a`
    fn step_before(&mut self, symbol: &str) -> Parsed<Grown> {
        let start = self.span();
        self.advance();
        let place = self.deeper(Self::unary)?;
        let span = start.to(place.expression.span);
        let kind = ExpressionKind::Step {
            place: Box::new(place.expression),
            by: if symbol == "++" { 1 } else { -1 },
            old: false,
        };
        self.grow(place.height, kind, span)
    }

    /// `(int)a`
    fn cast(&mut self) -> Parsed<Grown> {
        let start = self.span();
        self.advance();
        let ty = self.type_name()?;
        if self.is("[") || self.is("*") {
            let hint = "convert its elements, or assign it to an array of the same type";
            return Err(self.tell(self.span(), "a cast makes numbers only", hint));
        }
        self.expect(")")?;
        if self.is("{") {
            let hint = "declare a variable with this initialiser";
            return Err(self.tell(self.span(), "a list is no expression", hint));
        }
        let operand = self.deeper(Self::unary)?;
        let span = start.to(operand.expression.span);
        let kind = ExpressionKind::Cast(ty, Box::new(operand.expression));
        self.grow(operand.height, kind, span)
    }

    /// `sizeof a`, `sizeof(int[3])`
    fn size_of(&mut self) -> Parsed<Grown> {
        let start = self.span();
        self.advance();
        if !(self.is("(") && self.begins_type(1)) {
            let operand = self.deeper(Self::unary)?;
            let span = start.to(operand.expression.span);
            let kind = ExpressionKind::SizeOf(Box::new(operand.expression));
            return self.grow(operand.height, kind, span);
        }
        self.advance();
        let ty = self.type_name()?;
        let mut dimensions = Vec::new();
        while self.take("[") {
            dimensions.push(self.deeper(Self::expression)?);
            self.expect("]")?;
        }
        self.expect(")")?;
        let kind = ExpressionKind::SizeOfType(ty, dimensions);
        Ok(Grown::leaf(kind, self.since(start)))
    }

    fn postfix(&mut self) -> Parsed<Grown> {
        let mut left = self.primary()?;
        loop {
            let TokenKind::Symbol(symbol) = *self.kind() else {
                return Ok(left);
            };
            let start = left.expression.span;
            match symbol {
                "(" => return Err(self.no_function()),
                "." => {
                    self.advance();
                    let name = self.name("a field's name")?;
                    let kind = ExpressionKind::Field(Box::new(left.expression), name);
                    left = self.grow(left.height, kind, self.since(start))?;
                }
                "->" => {
                    let hint = "write '.': there are no pointers";
                    return Err(self.tell(self.span(), "'->' is no operator here", hint));
                }
                "[" => {
                    self.advance();
                    let index = self.deeper(Self::comma)?;
                    if !self.take("]") {
                        return Err(self.unexpected("']' behind the index", ""));
                    }
                    let height = left.height.max(index.height);
                    let kind = ExpressionKind::Index(
                        Box::new(left.expression),
                        Box::new(index.expression),
                    );
                    left = self.grow(height, kind, self.since(start))?;
                }
                "++" | "--" => {
                    self.advance();
                    let kind = ExpressionKind::Step {
                        place: Box::new(left.expression),
                        by: if symbol == "++" { 1 } else { -1 },
                        old: true,
                    };
                    left = self.grow(left.height, kind, self.since(start))?;
                }
                _ => return Ok(left),
            }
        }
    }

    /// Reports a call of something that is no name.
    fn no_function(&mut self) -> Told {
        let hint = "functions are called by their name";
        self.tell(self.span(), "only functions can be called", hint)
    }
}

impl Parser<'_> {
    fn primary(&mut self) -> Parsed<Grown> {
        let span = self.span();
        let kind = match self.kind() {
            TokenKind::Name => return self.name_or_call(),
            TokenKind::Text(_) => return Ok(self.strings()),
            TokenKind::Symbol("(") => return self.parenthesis(),
            TokenKind::Integer(integer) => ExpressionKind::Integer {
                value: integer.value,
                unsigned: integer.unsigned,
                long: integer.long,
                decimal: integer.decimal,
            },
            TokenKind::Fixed(millionths) => ExpressionKind::Fixed(*millionths),
            TokenKind::Character(byte) => ExpressionKind::Character(*byte),
            TokenKind::Word("true") => ExpressionKind::Bool(true),
            TokenKind::Word("false") => ExpressionKind::Bool(false),
            _ => return Err(self.no_expression()),
        };
        self.advance();
        Ok(Grown::leaf(kind, span))
    }

    /// Reports that no expression begins here.
    fn no_expression(&mut self) -> Told {
        let hint = match *self.kind() {
            TokenKind::Symbol("{") => "a list in braces is for initialisers: int a[2] = { 1, 2 };",
            TokenKind::Symbol("=") => "is an operand missing, or is '==' meant?",
            TokenKind::Word("if" | "for" | "while" | "do" | "switch" | "return") => {
                "this is a statement; a choice within an expression is 'a ? b : c'"
            }
            TokenKind::Word(word) if self.begins_type(0) => {
                let hint = format!("'{word}' is a type; a conversion is '({word})value'");
                return self.unexpected("an expression", &hint);
            }
            _ => "",
        };
        self.unexpected("an expression", hint)
    }

    fn name_or_call(&mut self) -> Parsed<Grown> {
        let name = self.name("a name")?;
        if !self.take("(") {
            let span = name.span;
            return Ok(Grown::leaf(ExpressionKind::Name(name.text), span));
        }
        let (arguments, height) = self.deeper(Self::arguments)?;
        let span = self.since(name.span);
        self.grow(height, ExpressionKind::Call(name, arguments), span)
    }

    /// The arguments of a call, with its `)`; and their height.
    fn arguments(&mut self) -> Parsed<(Vec<Expression>, u32)> {
        let (mut arguments, mut height) = (Vec::new(), 0);
        if self.take(")") {
            return Ok((arguments, height));
        }
        loop {
            let argument = self.assignment()?;
            height = height.max(argument.height);
            arguments.push(argument.expression);
            if self.take(")") {
                return Ok((arguments, height));
            }
            if !self.take(",") {
                return Err(self.unexpected("',' or ')' behind an argument", ""));
            }
        }
    }

    /// `"a" "b"`: one string.
    fn strings(&mut self) -> Grown {
        let start = self.span();
        let mut bytes = Vec::new();
        while let TokenKind::Text(text) = self.kind() {
            bytes.extend_from_slice(text);
            self.advance();
        }
        Grown::leaf(ExpressionKind::Text(bytes), self.since(start))
    }

    /// `(a)`: the same with a longer span.
    fn parenthesis(&mut self) -> Parsed<Grown> {
        let start = self.span();
        self.advance();
        let mut inner = self.deeper(Self::comma)?;
        if !self.take(")") {
            let hint = match self.misspelled(&inner.expression) {
                Some(hint) => hint,
                None => {
                    let place = self.source.position(start.start);
                    format!(
                        "it closes the '(' in line {}, column {}",
                        place.line, place.column
                    )
                }
            };
            return Err(self.unexpected("an operator or ')'", &hint));
        }
        inner.expression.span = self.since(start);
        Ok(inner)
    }

    /// A hint, if this is a name, or the call of one, that looks like a keyword.
    pub(super) fn misspelled(&self, expression: &Expression) -> Option<String> {
        if self.tells_no_more() {
            return None;
        }
        let (ExpressionKind::Name(name) | ExpressionKind::Call(Name { text: name, .. }, _)) =
            &expression.kind
        else {
            return None;
        };
        let meant = suggest::nearest(name, KEYWORDS)?;
        Some(format!("did you mean '{meant}' instead of '{name}'?"))
    }
}
