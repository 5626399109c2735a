//! Ranges: the least and the greatest value that an expression or a register can have.
//!
//! The checker computes the exact numbers of the text, up to 2^64 - 1 of an unsigned long
//! (`Range<i128>`), and warns where a type does not hold them. In the IR a register holds 64 bits,
//! which are read with sign (`Range`: half as large, as [`crate::ir::facts`] keeps one for each
//! register and for each change). The rules of the operators are here once, for exact numbers; in
//! the IR a result that 64 bits do not hold is unknown, because it may wrap.

use crate::ir::Operator;
use crate::types::Int;

/// Least and greatest value, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<T = i64> {
    /// The least value.
    pub low: T,
    /// The greatest value.
    pub high: T,
}

impl<T: Copy + Ord> Range<T> {
    pub(crate) const fn new(low: T, high: T) -> Range<T> {
        Range { low, high }
    }

    /// One number.
    pub(crate) const fn of(value: T) -> Range<T> {
        Range::new(value, value)
    }

    /// Whether the whole other range is in this one.
    pub(crate) fn holds(self, other: Range<T>) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// The smallest range that holds both.
    pub(crate) fn hull(self, other: Range<T>) -> Range<T> {
        Range::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// The numbers in both ranges, if there are any.
    pub(crate) fn within(self, other: Range<T>) -> Option<Range<T>> {
        let both = Range::new(self.low.max(other.low), self.high.min(other.high));
        (both.low <= both.high).then_some(both)
    }

    /// The only number in the range.
    pub(crate) fn only(self) -> Option<T> {
        (self.low == self.high).then_some(self.low)
    }

    /// Whether `self < other`, if that is the same for all their numbers.
    pub(crate) fn less(self, other: Range<T>) -> Option<bool> {
        match (self.high < other.low, self.low >= other.high) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// Whether `self == other`, if that is the same for all their numbers.
    pub(crate) fn equal(self, other: Range<T>) -> Option<bool> {
        match self.within(other) {
            None => Some(false),
            Some(_) => (self.only().is_some() && self == other).then_some(true),
        }
    }
}

impl Range<i128> {
    /// All numbers of a type.
    pub(crate) fn of_int(int: Int) -> Range<i128> {
        let all = 1i128 << int.bits;
        match int.signed {
            true => Range::new(-all / 2, all / 2 - 1),
            false => Range::new(0, all - 1),
        }
    }

    /// The same range, if it fits 64 bits with sign.
    pub(crate) fn narrow(self) -> Option<Range> {
        let (low, high) = (self.low.try_into().ok()?, self.high.try_into().ok()?);
        Some(Range::new(low, high))
    }

    /// The exact results of an operator. `None`: nothing is known. Numbers without sign are not
    /// negative in this form, so division and right shift are the same with and without sign.
    pub(crate) fn computed(operator: Operator, a: Self, b: Self) -> Option<Self> {
        let positive = a.low >= 0 && b.low >= 0;
        Some(match (operator, b.only()) {
            (Operator::Add, _) => Range::new(a.low + b.low, a.high + b.high),
            (Operator::Subtract, _) => Range::new(a.low - b.high, a.high - b.low),
            (Operator::Multiply, _) => return product(a, b),
            (Operator::ShiftLeft, Some(by @ 0..=63)) => return product(a, Range::of(1 << by)),
            (Operator::Divide | Operator::DivideSigned, Some(by @ 1..)) => {
                Range::new(a.low / by, a.high / by)
            }
            // It has the sign of the left operand.
            (Operator::Remainder | Operator::RemainderSigned, Some(by @ 1..)) => {
                Range::new(a.low.clamp(1 - by, 0), a.high.clamp(0, by - 1))
            }
            (Operator::And, _) if positive => Range::new(0, a.high.min(b.high)),
            (Operator::And, _) if b.low >= 0 => Range::new(0, b.high),
            (Operator::And, _) if a.low >= 0 => Range::new(0, a.high),
            (Operator::Or | Operator::Xor, _) if positive => {
                let bits = 128 - (a.high | b.high).leading_zeros();
                Range::new(0, (1 << bits) - 1)
            }
            (Operator::ShiftRight | Operator::ShiftRightSigned, Some(by @ 0..=63)) => {
                Range::new(a.low >> by, a.high >> by)
            }
            _ => return None,
        })
    }
}

fn product(a: Range<i128>, b: Range<i128>) -> Option<Range<i128>> {
    let ends = [
        a.low.checked_mul(b.low)?,
        a.low.checked_mul(b.high)?,
        a.high.checked_mul(b.low)?,
        a.high.checked_mul(b.high)?,
    ];
    let (low, high) = (ends.iter().min()?, ends.iter().max()?);
    Some(Range::new(*low, *high))
}

impl Range {
    /// Nothing is known.
    pub(crate) const ALL: Range = Range::new(i64::MIN, i64::MAX);
    /// The outcomes of a comparison.
    pub(crate) const BOOL: Range = Range::new(0, 1);

    /// All values that an integer of memory has in a register.
    pub(crate) fn of_bits(bits: u8, signed: bool) -> Range {
        let exact = Range::of_int(Int::new(bits, signed));
        exact.narrow().unwrap_or(Range::ALL)
    }

    /// The numbers in both ranges; this range if there are none, which happens only in unreachable
    /// code.
    pub(crate) fn meet(self, other: Range) -> Range {
        self.within(other).unwrap_or(self)
    }

    fn wide(self) -> Range<i128> {
        Range::new(self.low.into(), self.high.into())
    }

    /// The same bits, read without sign.
    pub(crate) fn unsigned(self) -> Range<i128> {
        let all = 1i128 << 64;
        let Range { low, high } = self.wide();
        match (low < 0, high < 0) {
            (true, true) => Range::new(low + all, high + all),
            (true, false) => Range::new(0, all - 1),
            (false, _) => Range::new(low, high),
        }
    }

    /// The results of an operator on registers.
    pub(crate) fn combined(operator: Operator, a: Range, b: Range) -> Range {
        if let (Some(a), Some(b)) = (a.only(), b.only()) {
            return Range::of(operator.apply(a, b));
        }
        let (a, b) = match operator {
            Operator::Divide | Operator::Remainder | Operator::ShiftRight => {
                (a.unsigned(), b.unsigned())
            }
            _ => (a.wide(), b.wide()),
        };
        let exact = Range::computed(operator, a, b);
        exact.and_then(Range::narrow).unwrap_or(Range::ALL)
    }

    /// This range without the other, if that is one number at an end of it.
    pub(crate) fn without(self, other: Range) -> Range {
        match other.only() {
            Some(value) if value == self.low && value < self.high => {
                Range::new(value + 1, self.high)
            }
            Some(value) if value == self.high && value > self.low => {
                Range::new(self.low, value - 1)
            }
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Range;
    use crate::ir::Operator;

    /// Numbers at which rules change.
    const ENDS: [i64; 15] = [
        i64::MIN,
        i64::MIN + 1,
        -1 << 32,
        -64,
        -7,
        -1,
        0,
        1,
        2,
        7,
        63,
        64,
        1 << 32,
        i64::MAX - 1,
        i64::MAX,
    ];

    fn ranges() -> impl Iterator<Item = Range> + Clone {
        let ends = ENDS.into_iter();
        ends.clone()
            .flat_map(move |low| ends.clone().map(move |high| Range::new(low, high)))
            .filter(|range| range.low <= range.high)
    }

    #[test]
    fn a_range_holds_each_result_of_an_operator_on_numbers_of_its_operands() {
        for a in ranges() {
            for b in ranges() {
                for operator in Operator::ALL {
                    let range = Range::combined(operator, a, b);
                    for x in ENDS.into_iter().filter(|x| a.holds(Range::of(*x))) {
                        for y in ENDS.into_iter().filter(|y| b.holds(Range::of(*y))) {
                            let result = operator.apply(x, y);
                            let known = range.holds(Range::of(result));
                            assert!(known, "{x} {operator:?} {y} of {a:?} and {b:?}: {range:?}");
                        }
                    }
                }
            }
        }
    }
}
