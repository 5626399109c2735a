//! The parser's output: names are not looked up yet, and types are as they were written.
//!
//! Every node has the span of all its text; operators and names also have their own, for carets.
//! The tree holds no comments: the formatter finds them among the tokens.

use crate::source::Span;

#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// Declarations, in order.
    pub items: Vec<Item>,
    /// The body: statements, in braces or not, or one expression, which is stored as a `return` of
    /// it. `None`: the text has only declarations and tests.
    pub body: Option<Block>,
}

/// A declaration at the outermost level.
#[derive(Clone, Debug)]
pub enum Item {
    /// `struct NAME { fields };`. `input` and `output` are the program's own.
    Struct(StructItem),
    /// `enum NAME { A, B = 3 };`
    Enum(EnumItem),
    /// Variables of the whole text: `static` or `const`. Without either the parser has reported an
    /// error.
    Variable(Declaration),
    /// `int f(int a) { ... }`
    Function(FunctionItem),
    /// `fuel 10000;`
    Fuel(Expression),
    /// `service "name" on tracepoint "category:name";`
    Service(ServiceItem),
    /// `test "name" { ... }`
    Test(TestItem),
}

/// A name where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct StructItem {
    pub name: Name,
    /// Its fields: declarations without initialisers.
    pub fields: Vec<Declaration>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct EnumItem {
    /// Its name; an enum may have none.
    pub name: Option<Name>,
    /// Names with their values, where given.
    pub values: Vec<(Name, Option<Expression>)>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct FunctionItem {
    /// The type of its result.
    pub ty: TypeName,
    pub name: Name,
    /// One declarator each, no initialisers.
    pub parameters: Vec<Declaration>,
    pub body: Block,
    pub span: Span,
}

/// The head of a service: the body runs at a tracepoint of the kernel and raises the service's
/// events.
#[derive(Clone, Debug)]
pub struct ServiceItem {
    /// The service's name and its tracepoint, `category:name`, as in the quotes; `None`: an error
    /// has been reported.
    pub head: Option<(Name, Name)>,
    /// `kind NAME;`: the name of its events' kind.
    pub kinds: Vec<Name>,
    /// `deadline US;`
    pub deadlines: Vec<Expression>,
    pub span: Span,
}

/// A test: sets the event, runs the body, and checks the results.
#[derive(Clone, Debug)]
pub struct TestItem {
    /// The behaviour that it shows.
    pub name: String,
    /// `input.x = 3;` (assignments to input, event, attr("name"), sinks), `run;`, `expect EXPR;`
    pub steps: Vec<TestStep>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum TestStep {
    /// `PLACE = VALUE;`
    Set {
        /// The place that is set.
        place: Expression,
        value: Initialiser,
    },
    /// `run;`
    Run(Span),
    /// `expect EXPR;`, in which `result`, `output`, `input`, statics and `fault` can be named.
    Expect(Expression),
}

/// A type as it is written, without the dimensions after the variable's name.
#[derive(Clone, Debug)]
pub struct TypeName {
    pub kind: TypeKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeKind {
    Void,
    Bool,
    /// An integer: `unsigned long`, `u16`, `int32_t`, `char`, `size_t`...
    Int(crate::types::Int),
    /// `fixed`
    Fixed,
    /// `struct NAME`
    Struct(String),
    /// `enum NAME`
    Enum(String),
    /// No type; the error has been reported.
    Error,
}

/// `static const int a[3] = { 1, 2, 3 }, b;`
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Kept from run to run.
    pub is_static: bool,
    /// Never written.
    pub is_const: bool,
    /// The type of all.
    pub ty: TypeName,
    pub variables: Vec<Declarator>,
    pub span: Span,
}

/// One variable of a declaration.
#[derive(Clone, Debug)]
pub struct Declarator {
    pub name: Name,
    /// Its dimensions, the outermost first; `None`: as many as the initialiser has.
    pub dimensions: Vec<Option<Expression>>,
    pub initialiser: Option<Initialiser>,
}

#[derive(Clone, Debug)]
pub enum Initialiser {
    Value(Expression),
    /// `{ 1, 2 }`, `{ .a = 1, [3] = 2 }`
    List(Vec<Element>, Span),
}

/// One value of a list.
#[derive(Clone, Debug)]
pub struct Element {
    /// The element that it initialises, if it is named: `.a`, `[3]`.
    pub designator: Option<Designator>,
    pub value: Initialiser,
}

#[derive(Clone, Debug)]
pub enum Designator {
    /// `.a`
    Field(Name),
    /// `[3]`
    Index(Expression),
}

/// `{ ... }`
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub statements: Vec<Statement>,
    /// With its braces.
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Statement {
    pub kind: StatementKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum StatementKind {
    Empty,
    Declaration(Declaration),
    /// `EXPR;`
    Expression(Expression),
    /// `{ ... }`
    Block(Block),
    If {
        condition: Expression,
        /// Executed if the condition is not 0.
        then: Box<Statement>,
        /// Executed if the condition is 0.
        otherwise: Option<Box<Statement>>,
    },
    While {
        /// The loop continues while it is not 0.
        condition: Expression,
        body: Box<Statement>,
    },
    /// `do ... while`
    Do {
        body: Box<Statement>,
        /// The loop continues while it is not 0.
        condition: Expression,
    },
    /// `for (a; b; c)`
    For {
        /// A declaration, an expression statement or empty.
        first: Box<Statement>,
        /// The loop continues while it is not 0; `None`: until the fuel is used up.
        condition: Option<Expression>,
        /// After each round.
        next: Option<Expression>,
        body: Box<Statement>,
    },
    /// `for (s in sinks)`
    ForSink {
        name: Name,
        /// The statement for each sink.
        body: Box<Statement>,
    },
    /// `switch`: groups of labels with their statements; a group falls through as in C.
    Switch {
        /// The value that is compared.
        value: Expression,
        groups: Vec<SwitchGroup>,
    },
    /// `break;`
    Break,
    /// `continue;`
    Continue,
    /// `return;`, `return EXPR;`
    Return(Option<Expression>),
}

/// `case 1: case 2: default: statements`
#[derive(Clone, Debug)]
pub struct SwitchGroup {
    /// `None` is `default`.
    pub labels: Vec<(Option<Expression>, Span)>,
    pub statements: Vec<Statement>,
}

#[derive(Clone, Debug)]
pub struct Expression {
    pub kind: ExpressionKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ExpressionKind {
    Integer {
        value: u64,
        /// `u`
        unsigned: bool,
        /// `l`, `ll`
        long: bool,
        /// Whether it is decimal. Hexadecimal, octal and binary literals can have an unsigned type
        /// without a suffix (C11 6.4.4.1).
        decimal: bool,
    },
    /// `1.25`: in millionths.
    Fixed(i64),
    /// `'a'`
    Character(u8),
    /// `"text"`, without its final 0.
    Text(Vec<u8>),
    /// `true`, `false`
    Bool(bool),
    /// A name: a variable, an enum's value, a field of the input; `input`, `output`, `event`.
    Name(String),
    /// `a.b`
    Field(Box<Expression>, Name),
    /// `a[b]`
    Index(Box<Expression>, Box<Expression>),
    /// `f(a, b)`
    Call(Name, Vec<Expression>),
    /// `-a`, `!a`, `~a`, `+a`
    Unary(UnaryOperator, Box<Expression>),
    /// `++a`, `a--`
    Step {
        /// The place that is changed.
        place: Box<Expression>,
        /// 1 or -1.
        by: i8,
        /// Whether the value is that before the change (`a++`).
        old: bool,
    },
    /// `a + b`, with the operator's span.
    Binary(BinaryOperator, Box<Expression>, Box<Expression>, Span),
    /// `a && b`
    And(Box<Expression>, Box<Expression>),
    /// `a || b`
    Or(Box<Expression>, Box<Expression>),
    /// `a ? b : c`
    Choice(Box<Expression>, Box<Expression>, Box<Expression>),
    /// `a = b`
    Assign(Box<Expression>, Box<Expression>),
    /// `a += b`, with the operator's span.
    AssignBinary(BinaryOperator, Box<Expression>, Box<Expression>, Span),
    /// `a, b`
    Comma(Box<Expression>, Box<Expression>),
    /// `(int)a`
    Cast(TypeName, Box<Expression>),
    /// `sizeof a`
    SizeOf(Box<Expression>),
    /// `sizeof(int)`, `sizeof(struct a)`, with dimensions: `sizeof(int[3])`
    SizeOfType(TypeName, Vec<Expression>),
    /// A part that could not be read; the error has been reported.
    Error,
}

/// An operator before one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOperator {
    Plus,
    Minus,
    Complement,
    Not,
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
    And,
    Or,
    Xor,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

impl BinaryOperator {
    /// As it is written.
    pub const fn sign(self) -> &'static str {
        match self {
            BinaryOperator::Add => "+",
            BinaryOperator::Subtract => "-",
            BinaryOperator::Multiply => "*",
            BinaryOperator::Divide => "/",
            BinaryOperator::Remainder => "%",
            BinaryOperator::ShiftLeft => "<<",
            BinaryOperator::ShiftRight => ">>",
            BinaryOperator::And => "&",
            BinaryOperator::Or => "|",
            BinaryOperator::Xor => "^",
            BinaryOperator::Less => "<",
            BinaryOperator::LessEqual => "<=",
            BinaryOperator::Greater => ">",
            BinaryOperator::GreaterEqual => ">=",
            BinaryOperator::Equal => "==",
            BinaryOperator::NotEqual => "!=",
        }
    }
}
