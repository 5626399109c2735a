//! The checked program: names are resolved, every expression has its type, every conversion is
//! written out, and there are no errors any more.
//!
//! The reference interpreter of the tests executes this tree directly; programs in user space and
//! in the kernel are compared with it.
//!
//! Meaning, where C leaves it open: operands are evaluated from left to right; arithmetic wraps;
//! `x / 0` is 0 and `x % 0` is x; the least number / -1 is itself, and % -1 is 0; a shift takes
//! its count modulo the width of the (promoted) left operand; `>>` of a number with sign keeps the
//! sign; `char` has a sign; locals without an initialiser are 0. An index outside its array ends
//! the run with [`Fault::Index`]; an iteration beyond the fuel with [`Fault::Fuel`]. A `bool` that
//! is read from memory is true if its byte is not 0.
//!
//! Before anything else, an event whose data ends before the furthest byte of `input` that any
//! [`Place`] of the body, or of a function that is called, can reach ends in [`Fault::Input`];
//! then `output` is set to zeros. A run that ends in a fault has the result 1; what it wrote until
//! then stays.

pub use crate::ast::BinaryOperator;
use crate::source::Span;
use crate::types::{Int, Structs, Type};

/// A checked program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    pub structs: Structs,
    /// All variables: locals, parameters, statics, constant tables, `input` and `output`.
    pub variables: Vec<Variable>,
    /// Local functions; none calls itself, directly or through others.
    pub functions: Vec<Function>,
    /// The statements that run for an event. A value that they return is a `long`; see
    /// [`Statement`].
    pub body: Vec<Statement>,
    /// [`crate::environment::Environment::unsaid`]
    pub unsaid: Option<i64>,
    /// Iterations of all loops in one run together.
    pub fuel: u32,
    /// The variable `input`; `None`: the text names no input.
    pub input: Option<VariableId>,
    /// The variable `output`; `None`: no output.
    pub output: Option<VariableId>,
    /// Tests, in the order of the text.
    pub tests: Vec<Test>,
    /// The head, if the text is a service.
    pub service: Option<Service>,
    /// For each constant of the environment, whether the text uses it.
    pub constants_used: Vec<bool>,
}

/// The head of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    /// The tracepoint on which it runs: `category:name`.
    pub tracepoint: String,
    /// The kind of its events.
    pub kind: String,
    /// The deadline of its events, us; 0: none.
    pub deadline_us: u64,
    /// Its output as the format of a service's data.
    pub format: String,
}

/// An index of [`Tree::variables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariableId(pub u32);

/// An index of [`Tree::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub name: String,
    pub ty: Type,
    /// Where it lives.
    pub storage: Storage,
    pub span: Span,
}

/// Where a variable lives.
#[derive(Clone, Debug, PartialEq)]
pub enum Storage {
    /// For one run; it is set to 0 each time its declaration is reached.
    Local,
    /// From run to run; with its initial bytes.
    Static(Vec<u8>),
    /// Constant, with its bytes. (Scalar constants have been replaced by their values.)
    Constant(Vec<u8>),
    /// The event's data; read-only.
    Input,
    /// The output of the handler; zeros at first.
    Output,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    /// Its parameters: locals of scalar type.
    pub parameters: Vec<VariableId>,
    /// `Void` or a scalar.
    pub result: Type,
    /// Its body. A function that ends without `return` returns 0.
    pub body: Vec<Statement>,
}

/// A statement. `break` and `continue` concern the innermost loop or (`break`) switch.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Begins a local: all its bytes become 0.
    Declare(VariableId),
    /// Evaluates an expression for its effect.
    Evaluate(Expression),
    /// A block of its own.
    Block(Vec<Statement>),
    /// `if`; the condition is a `bool`.
    If(Expression, Vec<Statement>, Vec<Statement>),
    /// Every kind of loop: `condition` (a `bool`; `None`: true) is evaluated before each iteration,
    /// with `after` not before the first; `continue` goes to `next`. An iteration costs one unit of
    /// fuel when its body begins.
    Loop {
        /// The loop continues while it is true.
        condition: Option<Expression>,
        /// The expressions evaluated after the body of each iteration.
        next: Option<Expression>,
        body: Vec<Statement>,
        /// `do ... while`
        after: bool,
        /// The loop's head.
        span: Span,
    },
    /// `switch`: the value is an `int`, a `long`, or unsigned. Labels have its type and are
    /// different. Groups fall through. The scope of a declaration in a group ends with the group.
    Switch {
        /// The value that is compared.
        value: Expression,
        /// Labels (in 64 bits; `None`: default) with their statements.
        groups: Vec<(Vec<Option<i64>>, Vec<Statement>)>,
    },
    /// Leaves the innermost loop or switch.
    Break,
    /// Goes to `next` of the innermost loop.
    Continue,
    /// In a function: its value, of the result's type. In the body: a `long`; 0 ends the chain of
    /// actions, after any other value it continues. `None`, and the end of the body, mean 1.
    Return(Option<Expression>),
}

/// An expression with its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub kind: ExpressionKind,
    /// Its type; the operands of an operator have the same type unless its comment says otherwise.
    pub ty: Type,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionKind {
    /// A constant: of integers their value extended to 64 bits, of `fixed` its millionths.
    Constant(i64),
    /// The value of a place. Its type is a scalar, `sink` included.
    Load(Place),
    /// Arithmetic: both operands have this expression's type, `int` or wider, or `fixed` (`+ - *
    /// / %`). Shifts: the count is an `unsigned int`, which is not reduced yet.
    Arithmetic(BinaryOperator, Box<Expression>, Box<Expression>),
    /// A comparison, a `bool`; both operands have the same type, `int` or wider, or `fixed`.
    Compare(BinaryOperator, Box<Expression>, Box<Expression>),
    /// `-a`
    Negate(Box<Expression>),
    /// `~a`
    Complement(Box<Expression>),
    /// `!a`: a `bool` of a `bool`.
    Not(Box<Expression>),
    /// `a && b`: all `bool`.
    And(Box<Expression>, Box<Expression>),
    /// `a || b`: all `bool`.
    Or(Box<Expression>, Box<Expression>),
    /// `a ? b : c`: a `bool`, then two of this type (or both void).
    Choice(Box<Expression>, Box<Expression>, Box<Expression>),
    /// `a, b`
    Comma(Box<Expression>, Box<Expression>),
    /// To this expression's type: between integers it wraps; to `bool` it is `!= 0`; from an
    /// integer to `fixed` times 1,000,000 (wrapping); from `fixed` towards zero.
    Convert(Box<Expression>),
    /// `a = b`: b has the place's type, a scalar; the value is what was stored.
    Assign(Place, Box<Expression>),
    /// `a op= b`, and steps: the place is found, then b evaluated, then the place read, converted
    /// to `compute`, combined, converted back and stored. The value is the new one, or with `old`
    /// the former one. On a static of 32 or 64 bits, with + - & | ^, all of it is one atomic step
    /// (unless `compute` is `fixed` and the place is not).
    Update {
        /// The place that changes.
        place: Place,
        operator: BinaryOperator,
        /// The type of the computation.
        compute: Type,
        /// The right operand, of type `compute`; for shifts `unsigned int`.
        by: Box<Expression>,
        /// Whether the value is that before the change.
        old: bool,
    },
    /// Copies a whole array or struct; void.
    Copy {
        to: Place,
        /// The source, of the same type.
        from: Place,
    },
    /// Fills an array or struct: zeros, then these (offset, scalar expression), each evaluated and
    /// stored before the next; void.
    Fill(Place, Vec<(u32, Expression)>),
    /// Fills an array of `char` with a text and zeros behind it; void.
    FillText(Place, Vec<u8>),
    /// Calls a function. Arguments have the parameters' types.
    Call(FunctionId, Vec<Expression>),
    /// A built-in function or value.
    Builtin(Builtin, Vec<Expression>),
    /// Compares a string with a text: whether they are the same up to the first 0 (`prefix`: the
    /// string begins with the text); a `bool`.
    CompareText {
        /// An array of `char`.
        text: Place,
        /// The text without a final 0; never longer than the array, no 0 in it.
        with: Vec<u8>,
        /// Whether only the beginning counts.
        prefix: bool,
    },
    /// Compares two strings (`prefix`: the first begins with the second); a `bool`.
    ComparePlaces {
        /// An array of `char`.
        text: Place,
        with: Place,
        /// Whether only the beginning counts.
        prefix: bool,
    },
    /// Characters of a string before its first 0; an `unsigned int`.
    Length(Place),
    /// The step of `for (s in sinks)`: the next sink after this number (a `long`; -1: from the
    /// beginning) that exists, or -1. A `long`, which only an [`ExpressionKind::Assign`] to the
    /// sink's variable accepts.
    NextSink(Box<Expression>),
    /// `best(n, key)`: of the sinks, those n whose key (evaluated with this variable, a sink, for
    /// each) is greatest are accepted, the rest rejected; equal keys: the first ones. Void. The
    /// keys are evaluated in the order of the sinks, after `count`; each costs one unit of fuel.
    Best {
        /// How many; a `long`.
        count: Box<Expression>,
        /// The sink's variable in the key.
        sink: VariableId,
        /// A `long`.
        key: Box<Expression>,
    },
}

/// A place, which can be read and written.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The variable that contains it.
    pub variable: VariableId,
    /// The constant part of its offset, bytes.
    pub offset: u32,
    /// The computed parts of its offset, evaluated from left to right; each is checked at once.
    pub indices: Vec<Index>,
    pub ty: Type,
    pub span: Span,
}

/// `[index]`: must be below `count`, else [`Fault::Index`].
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// A `long` or `unsigned long`; compared without sign, so that a negative one is outside.
    pub value: Expression,
    /// Elements of the array.
    pub count: u32,
    /// Bytes of one.
    pub stride: u32,
}

/// What the language itself offers; the arguments have the types given here. See `man 7 ecode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `event.X`: of the type that [`EventField::ty`] gives. No arguments.
    Event(EventField),
    /// `now()`: ns on the clock of events; unsigned long.
    Now,
    /// `min(a, b)`, of this expression's type.
    Min,
    /// `max(a, b)`
    Max,
    /// `clamp(a, low, high)`: min(max(a, low), high), all of this expression's type
    Clamp,
    /// `abs(a)`: of the least number, itself.
    Abs,
    /// `hash(unsigned long)`: unsigned long, the same everywhere ([`crate::frame::hash`]).
    Hash,
    /// `random()`: unsigned long ([`crate::frame::random`]).
    Random,
    /// `attr("name")`: the channel's attribute of that number; long.
    Attribute(u32),
    /// `s.name`: the attribute of that number of the sink; long. One argument, the sink.
    SinkAttribute(u32),
    /// `s.id`: unsigned long. One argument, the sink.
    SinkId,
    /// `age(s)`: ns since the sink's attributes were last told; unsigned long.
    SinkAge,
    /// `accept(s)`; void. The last word on a sink counts.
    Accept,
    /// `reject(s)`; void.
    Reject,
    /// `once(key, ttl_us)`: a bool: true unless it was true for this key within that time;
    /// arguments: unsigned long. The static variable is the memory of this call:
    /// [`crate::limits::ONCE_ENTRIES`] times u64 key, u64 `now()` when it was last true (0: never).
    /// A key has one place there, its [`crate::frame::hash`] modulo the entries, and displaces who
    /// is in it. "Within": max(0, now - then as a long) / 1000 < ttl_us.
    Once(VariableId),
    /// `signal(n, value)`: int and unsigned long; void.
    Signal,
    /// `raise("service", a, b, c)`: up to three long; the service's index; void.
    Raise(u32),
    /// `defer(us)`: unsigned long; void.
    Defer,
    /// `drop(reason)`: int, of which the lowest 8 bits are kept; ends the run and, the result
    /// being 0, the chain; void.
    Drop,
    /// `count(counter, by)`: unsigned int and unsigned long; void.
    Count,
    /// `histogram(value)`: unsigned long; void.
    Histogram,
}

/// The fields that every event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventField {
    /// Index of the service. unsigned int
    Service,
    /// Number of its kind. unsigned int
    Kind,
    /// When it was raised, ns. unsigned long
    Time,
    /// Its deadline, ns; 0: none. unsigned long
    Deadline,
    /// ns until the deadline; negative: late; without a deadline the largest long. long
    TimeLeft,
    /// Its id. unsigned long
    Id,
    /// Process. unsigned int
    Pid,
    /// Thread. unsigned int
    Tid,
    /// User. unsigned int
    Uid,
    /// CPU. unsigned int
    Cpu,
    /// Type. unsigned int
    Type,
    /// Priority. unsigned int
    Priority,
    /// Bytes of data. unsigned int
    Size,
}

impl EventField {
    /// All, with their names in the language.
    pub const ALL: [(&'static str, EventField); 13] = [
        ("service", EventField::Service),
        ("kind", EventField::Kind),
        ("time", EventField::Time),
        ("deadline", EventField::Deadline),
        ("time_left", EventField::TimeLeft),
        ("id", EventField::Id),
        ("pid", EventField::Pid),
        ("tid", EventField::Tid),
        ("uid", EventField::Uid),
        ("cpu", EventField::Cpu),
        ("type", EventField::Type),
        ("priority", EventField::Priority),
        ("size", EventField::Size),
    ];

    pub fn ty(self) -> Type {
        Type::Int(match self {
            EventField::Time | EventField::Deadline | EventField::Id => Int::UNSIGNED_LONG,
            EventField::TimeLeft => Int::LONG,
            _ => Int::UNSIGNED,
        })
    }
}

/// Why a run ended before its time. The action has failed: that is counted, and the chain goes on
/// as if the action were not there, so that the event is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Fault {
    /// An index was outside its array.
    Index = 1,
    /// More iterations than the fuel allows.
    Fuel = 2,
    /// The event has less data than the program reads.
    Input = 3,
    /// More requests than [`crate::limits::EFFECTS`].
    Effects = 4,
}

impl Fault {
    pub const ALL: [Fault; 4] = [Fault::Index, Fault::Fuel, Fault::Input, Fault::Effects];

    /// The fault of that number, as it stands in a frame.
    pub fn of_number(number: u32) -> Option<Fault> {
        Fault::ALL.into_iter().find(|known| *known as u32 == number)
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Index => "index outside its array",
            Fault::Fuel => "more iterations than allowed",
            Fault::Input => "the event has less data than the program reads",
            Fault::Effects => "more requests than allowed",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The behaviour that it shows.
    pub name: String,
    pub steps: Vec<TestStep>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TestStep {
    /// Sets something of the input: an [`ExpressionKind::Assign`], `Fill` or `FillText`.
    Input(Expression),
    /// Sets a field of the event.
    Event(EventField, i64),
    /// Sets an attribute.
    Attribute(u32, i64),
    /// Sets the result of `now()`.
    Now(i64),
    /// Sets something of the sink with this number; from then on there is one.
    Sink(u32, SinkField, i64),
    /// Runs the program.
    Run(Span),
    /// A `bool`. In it, these locals are known.
    Expect {
        condition: Expression,
        /// The results of a run, by the names that expectations use.
        outcomes: Vec<(Outcome, VariableId)>,
    },
    /// A request ([`Builtin::Signal`] and so on, `drop` too), which the run must have made.
    Requested {
        request: Expression,
        /// As in `Expect`.
        outcomes: Vec<(Outcome, VariableId)>,
    },
}

/// A property of a sink that a test sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkField {
    /// `s.id`
    Id,
    /// The result of `age(s)`, ns.
    Age,
    /// The attribute of that number.
    Attribute(u32),
}

/// The results of a run, besides output and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value it returned; long
    Result,
    /// Why it failed, a number of [`Fault`], 0: it did not; int
    Fault,
    /// Sinks that were accepted, a bit each; unsigned long
    Accepted,
    /// Sinks that were rejected; unsigned long
    Rejected,
    /// Whether it dropped the event; bool
    Dropped,
    /// How many requests it made; unsigned int
    Requests,
}

impl Outcome {
    /// All, with their names.
    pub const ALL: [(&'static str, Outcome); 6] = [
        ("result", Outcome::Result),
        ("fault", Outcome::Fault),
        ("accepted", Outcome::Accepted),
        ("rejected", Outcome::Rejected),
        ("dropped", Outcome::Dropped),
        ("requests", Outcome::Requests),
    ];

    pub fn ty(self) -> Type {
        match self {
            Outcome::Result => Type::Int(Int::LONG),
            Outcome::Fault => Type::Int(Int::INT),
            Outcome::Accepted | Outcome::Rejected => Type::Int(Int::UNSIGNED_LONG),
            Outcome::Dropped => Type::Bool,
            Outcome::Requests => Type::Int(Int::UNSIGNED),
        }
    }
}
