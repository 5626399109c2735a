//! Warnings of comparisons between a number that may be negative and one without sign: C converts
//! the negative number to a very large one. The checker notes such comparisons, and warns when it
//! knows the whole text.
//!
//! It warns of numbers from outside, and of variables to which the text may assign a negative
//! number: a difference, a negative constant, a number from outside. So it does not warn of `i` in
//! `for (int i = 0; i < count; i++)`. Sums and products are assumed not to overflow.

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

/// A comparison without sign: the operand whose type allows negative values.
#[derive(Debug)]
pub(super) struct Mixed {
    side: Expression,
    span: Span,
}

impl Checker<'_> {
    /// Records a comparison of order between a signed and an unsigned operand, before both are
    /// converted to this type.
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

    /// Warns of the recorded comparisons whose operand may be negative.
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

/// The variables of a text, and behind them the results of its functions, as numbers.
type Holder = usize;

/// A value that the text puts into a variable or a result.
#[derive(Clone, Copy, Debug)]
enum Stored<'t> {
    Value(&'t Expression),
    /// A difference.
    Negative,
    /// Any part of this variable.
    Variable(VariableId),
}

/// Which variables and results may be negative.
#[derive(Debug)]
struct Signs {
    variables: usize,
    /// By holder, for all its parts together.
    negative: Vec<bool>,
}

impl Signs {
    /// Evaluates each stored value once, and again when a holder in it turns out to be possibly
    /// negative. A holder does so once, so this ends.
    fn of(tree: &Tree) -> Signs {
        let variables = tree.variables.iter();
        let negative = variables.map(|variable| match &variable.storage {
            Storage::Input => true,
            Storage::Static(bytes) | Storage::Constant(bytes) => {
                holds_negative(&variable.ty, bytes)
            }
            Storage::Local | Storage::Output => false,
        });
        let mut signs = Signs {
            variables: tree.variables.len(),
            negative: negative.collect(),
        };
        signs
            .negative
            .resize(signs.variables + tree.functions.len(), false);
        let stores = signs.stores(tree);
        let mut readers = vec![Vec::new(); signs.negative.len()];
        for (store, (_, stored)) in stores.iter().enumerate() {
            match stored {
                Stored::Value(value) => signs.holders(value, &mut |of| readers[of].push(store)),
                Stored::Variable(id) => readers[id.0 as usize].push(store),
                Stored::Negative => {}
            }
        }
        let mut open: Vec<usize> = (0..stores.len()).collect();
        while let Some((to, stored)) = open.pop().map(|store| stores[store]) {
            let negative = match stored {
                Stored::Value(value) => signs.negative(value),
                Stored::Variable(id) => signs.negative[id.0 as usize],
                Stored::Negative => true,
            };
            if negative && !signs.negative[to] {
                signs.negative[to] = true;
                open.append(&mut readers[to]);
            }
        }
        signs
    }

    fn result(&self, function: FunctionId) -> Holder {
        self.variables + function.0 as usize
    }

    /// All values that the text stores.
    fn stores<'t>(&self, tree: &'t Tree) -> Vec<(Holder, Stored<'t>)> {
        let mut all = Vec::new();
        self.statements(tree, None, &tree.body, &mut all);
        for (function, at) in tree.functions.iter().zip(0..) {
            self.statements(tree, Some(FunctionId(at)), &function.body, &mut all);
        }
        all
    }

    fn statements<'t>(
        &self,
        tree: &'t Tree,
        function: Option<FunctionId>,
        list: &'t [Statement],
        all: &mut Vec<(Holder, Stored<'t>)>,
    ) {
        for statement in list {
            statement.expressions(&mut |expression| stored(tree, expression, all));
            if let (Statement::Return(Some(value)), Some(function)) = (statement, function) {
                all.push((self.result(function), Stored::Value(value)));
            }
            statement.bodies(&mut |body| self.statements(tree, function, body, all));
        }
    }

    /// The variables and results in an expression.
    fn holders(&self, e: &Expression, visit: &mut dyn FnMut(Holder)) {
        e.places(&mut |place| visit(place.variable.0 as usize));
        if let ExpressionKind::Call(function, _) = e.kind {
            visit(self.result(function));
        }
        e.children(&mut |child| self.holders(child, visit));
    }

    fn place(&self, place: &Place) -> bool {
        self.negative[place.variable.0 as usize]
    }

    /// Whether the value may be negative.
    fn negative(&self, e: &Expression) -> bool {
        is_signed(&e.ty) && self.value(e)
    }

    /// The same without regard to the type: `(long)(a - b)` is negative if a is less than b.
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
            ExpressionKind::Call(function, _) => self.negative[self.result(*function)],
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

/// All values that an expression stores.
fn stored<'t>(tree: &'t Tree, e: &'t Expression, all: &mut Vec<(Holder, Stored<'t>)>) {
    let mut put = |to: VariableId, stored| all.push((to.0 as usize, stored));
    match &e.kind {
        ExpressionKind::Assign(place, value) => put(place.variable, Stored::Value(value)),
        ExpressionKind::Update {
            place,
            operator,
            by,
            ..
        } if is_signed(&place.ty) => match operator {
            BinaryOperator::Subtract => put(place.variable, Stored::Negative),
            BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight => {}
            _ => put(place.variable, Stored::Value(by)),
        },
        ExpressionKind::Copy { to, from } => put(to.variable, Stored::Variable(from.variable)),
        ExpressionKind::Fill(place, values) => {
            for (_, value) in values {
                put(place.variable, Stored::Value(value));
            }
        }
        ExpressionKind::Call(function, arguments) => {
            let parameters = &tree.functions[function.0 as usize].parameters;
            for (parameter, argument) in parameters.iter().zip(arguments) {
                put(*parameter, Stored::Value(argument));
            }
        }
        _ => {}
    }
    e.children(&mut |child| stored(tree, child, all));
}

fn is_signed(ty: &Type) -> bool {
    matches!(ty, Type::Fixed | Type::Int(Int { signed: true, .. }))
}

/// Whether one of the initial numbers of a variable is negative; for a struct, false.
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
