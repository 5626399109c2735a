//! Comparisons of what may be negative with what has no sign: C converts the negative number to a
//! very large one. They are noted where they stand, and told when the whole text is known.
//!
//! Told is what comes from outside, and a variable of the text into which the text may put a
//! negative number: a difference, a negative constant, something from outside. So `i` of
//! `for (int i = 0; i < count; i++)` is not told. Sums and products count as wide enough.

use super::Checker;
use super::conversion::constant_of;
use super::range::range;
use crate::limits;
use crate::source::Span;
use crate::tree::{
    BinaryOperator, Builtin, EventField, Expression, ExpressionKind, FunctionId, Place, Statement,
    Storage, Tree, VariableId,
};
use crate::types::{Int, Type};

/// A comparison without sign: the side that its type allows to be negative.
#[derive(Debug)]
pub(super) struct Mixed {
    side: Expression,
    span: Span,
}

/// Walks through the text, after which what still changes is not told.
const WALKS: u32 = 16;

impl Checker<'_> {
    /// Notes an order between what may be negative and what has no sign, before both are converted
    /// to this type.
    pub(super) fn note_mixed_sign(
        &mut self,
        operator: BinaryOperator,
        sides: [&Expression; 2],
        ty: &Type,
        span: Span,
    ) {
        let equality = matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual);
        let unsigned = matches!(ty, Type::Int(int) if !int.signed);
        let told = !self.context.silent && self.mixed.len() < limits::DIAGNOSTICS;
        if equality || !unsigned || !told {
            return;
        }
        let signed = |side: &&Expression| {
            constant_of(side).is_none() && range(side).is_some_and(|range| range.low < 0)
        };
        if let Some(side) = sides.into_iter().find(signed).cloned() {
            self.mixed.push(Mixed { side, span });
        }
    }

    /// Warns of those that were noted and matter.
    pub(super) fn warn_of_mixed_signs(&mut self) {
        let mixed = std::mem::take(&mut self.mixed);
        if mixed.is_empty() {
            return;
        }
        let signs = Signs::of(&self.tree);
        let negative: Vec<bool> = mixed.iter().map(|one| signs.negative(&one.side)).collect();
        for (Mixed { side, span }, _) in mixed.into_iter().zip(negative).filter(|(_, told)| *told) {
            let message = match side.kind {
                ExpressionKind::Builtin(Builtin::Event(EventField::TimeLeft), _) => {
                    "the time that is left is negative for a late event, and compared without sign"
                }
                _ => "what may be negative is compared without sign",
            };
            let name = self.type_name(&side.ty);
            let hint = format!("convert the other side: ({name})(...)");
            self.warn(span, message, hint);
        }
    }
}

/// What may be negative.
#[derive(Debug)]
struct Signs {
    /// By variable, whatever part of it.
    variables: Vec<bool>,
    /// By function: its result.
    results: Vec<bool>,
}

impl Signs {
    fn of(tree: &Tree) -> Signs {
        let variables = tree
            .variables
            .iter()
            .map(|variable| match &variable.storage {
                Storage::Input => true,
                Storage::Static(bytes) | Storage::Constant(bytes) => {
                    holds_negative(&variable.ty, bytes)
                }
                Storage::Local | Storage::Output => false,
            });
        let mut signs = Signs {
            variables: variables.collect(),
            results: vec![false; tree.functions.len()],
        };
        for _ in 0..WALKS {
            let before = signs.count();
            signs.statements(tree, None, &tree.body);
            for (function, at) in tree.functions.iter().zip(0..) {
                signs.statements(tree, Some(FunctionId(at)), &function.body);
            }
            if signs.count() == before {
                break;
            }
        }
        signs
    }

    fn count(&self) -> usize {
        let all = self.variables.iter().chain(&self.results);
        all.filter(|negative| **negative).count()
    }

    fn statements(&mut self, tree: &Tree, function: Option<FunctionId>, list: &[Statement]) {
        for statement in list {
            statement.expressions(&mut |expression| self.stored(tree, expression));
            if let (Statement::Return(Some(value)), Some(function)) = (statement, function) {
                self.results[function.0 as usize] |= self.negative(value);
            }
            statement.bodies(&mut |body| self.statements(tree, function, body));
        }
    }

    /// Looks at all that an expression stores.
    fn stored(&mut self, tree: &Tree, e: &Expression) {
        match &e.kind {
            ExpressionKind::Assign(place, value) => self.put(place.variable, self.negative(value)),
            ExpressionKind::Update {
                place,
                operator,
                by,
                ..
            } => {
                let negative = match operator {
                    BinaryOperator::Subtract => true,
                    BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight => false,
                    _ => self.negative(by),
                };
                self.put(place.variable, negative && is_signed(&place.ty));
            }
            ExpressionKind::Copy { to, from } => self.put(to.variable, self.place(from)),
            ExpressionKind::Fill(place, values) => {
                let negative = values.iter().any(|(_, value)| self.negative(value));
                self.put(place.variable, negative);
            }
            ExpressionKind::Call(function, arguments) => {
                let parameters = &tree.functions[function.0 as usize].parameters;
                for (parameter, argument) in parameters.iter().zip(arguments) {
                    self.put(*parameter, self.negative(argument));
                }
            }
            _ => {}
        }
        e.children(&mut |child| self.stored(tree, child));
    }

    fn put(&mut self, variable: VariableId, negative: bool) {
        self.variables[variable.0 as usize] |= negative;
    }

    fn place(&self, place: &Place) -> bool {
        self.variables[place.variable.0 as usize]
    }

    /// Whether the value may be negative.
    fn negative(&self, e: &Expression) -> bool {
        is_signed(&e.ty) && self.value(e)
    }

    /// The same whatever its type says: `(long)(a - b)` is negative where a is the smaller one.
    fn value(&self, e: &Expression) -> bool {
        use BinaryOperator as Op;
        match &e.kind {
            ExpressionKind::Constant(value) => is_signed(&e.ty) && *value < 0,
            ExpressionKind::Load(place) | ExpressionKind::Update { place, .. } => {
                is_signed(&place.ty) && self.place(place)
            }
            ExpressionKind::Convert(a)
            | ExpressionKind::Comma(_, a)
            | ExpressionKind::Assign(_, a) => self.value(a),
            ExpressionKind::Negate(_) | ExpressionKind::Complement(_) => true,
            ExpressionKind::Choice(_, a, b) => self.value(a) || self.value(b),
            ExpressionKind::Arithmetic(operator, a, b) => match operator {
                Op::Subtract => range(e).is_none_or(|range| range.low < 0 || !is_signed(&e.ty)),
                Op::And => self.value(a) && self.value(b),
                Op::ShiftLeft | Op::ShiftRight | Op::Remainder => self.value(a),
                _ => self.value(a) || self.value(b),
            },
            ExpressionKind::Call(function, _) => self.results[function.0 as usize],
            ExpressionKind::Builtin(builtin, arguments) => match builtin {
                Builtin::Event(EventField::TimeLeft)
                | Builtin::Attribute(_)
                | Builtin::SinkAttribute(_) => true,
                Builtin::Max => arguments.iter().all(|argument| self.value(argument)),
                Builtin::Min => arguments.iter().any(|argument| self.value(argument)),
                Builtin::Clamp => arguments[1..].iter().any(|argument| self.value(argument)),
                _ => false,
            },
            _ => false,
        }
    }
}

fn is_signed(ty: &Type) -> bool {
    matches!(ty, Type::Fixed | Type::Int(Int { signed: true, .. }))
}

/// Whether one of the numbers that a variable begins with is negative; of structs nothing is known.
fn holds_negative(ty: &Type, bytes: &[u8]) -> bool {
    match ty {
        Type::Array(of, _) => holds_negative(of, bytes),
        Type::Int(int) if int.signed => {
            let numbers = bytes.chunks(int.bytes() as usize);
            numbers.filter_map(<[u8]>::last).any(|last| *last >= 0x80)
        }
        Type::Fixed => bytes
            .chunks(8)
            .filter_map(<[u8]>::last)
            .any(|last| *last >= 0x80),
        _ => false,
    }
}
