//! Conditions: a comparison that decides a branch becomes that branch. `&&`, `||` and `!` become
//! exits from blocks, so there are no intermediate results of 0 or 1.

use super::{Lowered, Lowering};
use crate::ir::{Label, Operand, Relation};
use crate::tree::{BinaryOperator, Expression, ExpressionKind};
use crate::types::Type;

impl<'t> Lowering<'t> {
    /// Leaves `to` if the condition equals `when`, else continues.
    pub(super) fn branch(&mut self, e: &'t Expression, when: bool, to: Label) -> Lowered<()> {
        self.nested(|this| match &e.kind {
            ExpressionKind::Not(a) => this.branch(a, !when, to),
            ExpressionKind::And(a, b) => this.branch_both(a, b, false, when, to),
            ExpressionKind::Or(a, b) => this.branch_both(a, b, true, when, to),
            _ => {
                let (relation, a, b) = this.relation(e)?;
                let (relation, a, b) = if when {
                    (relation, a, b)
                } else {
                    not(relation, a, b)
                };
                this.span = e.span;
                this.exit_if(relation, a, b, to);
                Ok(())
            }
        })
    }

    /// `a && b` if `decided` is false, `a || b` if it is true: `decided` is the value with which
    /// one operand decides the result.
    fn branch_both(
        &mut self,
        a: &'t Expression,
        b: &'t Expression,
        decided: bool,
        when: bool,
        to: Label,
    ) -> Lowered<()> {
        if when == decided {
            self.branch(a, decided, to)?;
            return self.branch(b, decided, to);
        }
        self.block(|this, skip| {
            this.branch(a, decided, skip)?;
            this.branch(b, when, to)
        })
    }

    /// The relation that holds if the expression, a `bool`, is true.
    pub(super) fn relation(&mut self, e: &'t Expression) -> Lowered<(Relation, Operand, Operand)> {
        let zero = Operand::Constant(0);
        match &e.kind {
            ExpressionKind::Compare(operator, a, b) => {
                let left = self.value(a)?;
                let left = self.hold(left, b);
                let right = self.value(b)?;
                Ok(compared(*operator, is_signed(&a.ty), left, right))
            }
            ExpressionKind::Convert(a) if e.ty == Type::Bool && a.ty != Type::Bool => {
                Ok((Relation::NotEqual, self.value(a)?, zero))
            }
            ExpressionKind::CompareText { text, with, prefix } => {
                self.compare_text(text, with, *prefix)
            }
            ExpressionKind::Not(a) => {
                let (relation, a, b) = self.relation(a)?;
                Ok(not(relation, a, b))
            }
            _ => Ok((Relation::NotEqual, self.value(e)?, zero)),
        }
    }

    /// Does `then` if the condition holds, else `otherwise`.
    pub(super) fn choose(
        &mut self,
        condition: &'t Expression,
        then: impl FnOnce(&mut Self) -> Lowered<()>,
        otherwise: impl FnOnce(&mut Self) -> Lowered<()>,
    ) -> Lowered<()> {
        if is_simple(condition) {
            let (relation, a, b) = self.relation(condition)?;
            let span = condition.span;
            let then = self.collect(then)?;
            let otherwise = self.collect(otherwise)?;
            self.span = span;
            self.emit(crate::ir::Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            });
            return Ok(());
        }
        self.span = condition.span;
        self.block(|this, end| {
            this.block(|this, over| {
                this.branch(condition, false, over)?;
                then(this)?;
                this.emit(crate::ir::Op::Exit(end));
                Ok(())
            })?;
            otherwise(this)
        })
    }

    /// The condition as a value, 0 or 1.
    pub(super) fn decide(&mut self, e: &'t Expression) -> Lowered<Operand> {
        let result = self.copy(Operand::Constant(0));
        self.block(|this, over| {
            this.branch(e, false, over)?;
            this.span = e.span;
            this.set(result, Operand::Constant(1));
            Ok(())
        })?;
        Ok(Operand::Register(result))
    }
}

/// Whether the condition is one relation, whose operands are values.
pub(super) fn is_simple(e: &Expression) -> bool {
    match &e.kind {
        ExpressionKind::Not(a) => is_simple(a),
        ExpressionKind::And(..) | ExpressionKind::Or(..) => false,
        _ => true,
    }
}

/// The opposite.
fn not(relation: Relation, a: Operand, b: Operand) -> (Relation, Operand, Operand) {
    match relation.opposite() {
        (opposite, false) => (opposite, a, b),
        (opposite, true) => (opposite, b, a),
    }
}

/// Whether numbers of this type are compared and divided with sign.
pub(super) fn is_signed(ty: &Type) -> bool {
    match ty {
        Type::Int(int) => int.signed,
        Type::Bool => false,
        _ => true,
    }
}

/// A comparison of C in the relations of the IR.
pub(super) fn compared(
    operator: BinaryOperator,
    signed: bool,
    a: Operand,
    b: Operand,
) -> (Relation, Operand, Operand) {
    let (less, less_equal) = match signed {
        true => (Relation::LessSigned, Relation::LessEqualSigned),
        false => (Relation::Less, Relation::LessEqual),
    };
    match operator {
        BinaryOperator::Less => (less, a, b),
        BinaryOperator::LessEqual => (less_equal, a, b),
        BinaryOperator::Greater => (less, b, a),
        BinaryOperator::GreaterEqual => (less_equal, b, a),
        BinaryOperator::NotEqual => (Relation::NotEqual, a, b),
        _ => (Relation::Equal, a, b),
    }
}
