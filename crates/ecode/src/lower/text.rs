//! Strings: arrays of `char`, which end at their first 0 or with the array. They are compared by
//! words as wide as the place's alignment allows, without a branch per byte.
//!
//! Where the first 0 of a word is: `z = (w - 0x01..01) & ~w & 0x80..80` has a bit set for each byte
//! that is 0; the lowest one is right, which is all that is used (above it, a borrow may set more).
//! `z ^ (z - 1)` are the bits up to and including that byte, `((z & -z) >> 7) - 1` those below it;
//! without a 0 both are all bits.

use super::aggregate::step;
use super::{Lowered, Lowering};
use crate::ir::{Address, Label, Operand, Operator, Register, Relation};
use crate::tree::Place;
use crate::types::{Int, Type};

/// Up to so many words are compared one after the other, more by a loop.
const WORDS_UNROLLED: u32 = 8;

/// A word in which each byte is 1.
const ONES: u64 = 0x0101_0101_0101_0101;

const ZERO: Operand = Operand::Constant(0);

/// A question about strings, answered word by word.
#[derive(Clone, Copy)]
enum Question {
    /// Whether the strings are the same.
    Same(Address, Address),
    /// Whether the first begins with the second.
    Begins(Address, Address),
    /// Where the string ends.
    Length(Address),
}

impl<'t> Lowering<'t> {
    /// Whether a string equals, or begins with, a literal; as a relation.
    pub(super) fn compare_text(
        &mut self,
        place: &'t Place,
        with: &[u8],
        prefix: bool,
    ) -> Lowered<(Relation, Operand, Operand)> {
        let address = self.address(place)?;
        self.span = place.span;
        let bytes = self.size_of(&place.ty);
        let align = Self::alignment(place);
        let ends_inside = !prefix && (with.len() as u32) < bytes;
        let count = (with.len() as u32).min(bytes) + u32::from(ends_inside);
        let mut differences = ZERO;
        let mut done = 0;
        while done < count {
            let left = count - done;
            let size = step(align, done, bytes).min(left.next_power_of_two());
            let mut read = self.word(address.plus(done), size);
            if left < size {
                let mask = (1 << (left * 8)) - 1;
                read = self.binary(Operator::And, read, Operand::Constant(mask));
            }
            let expected = Operand::Constant(word(with, done, size.min(left)));
            if size >= left && done == 0 {
                return Ok((Relation::Equal, read, expected));
            }
            let difference = self.binary(Operator::Xor, read, expected);
            differences = self.binary(Operator::Or, differences, difference);
            done += size;
        }
        Ok((Relation::Equal, differences, ZERO))
    }

    /// Whether two strings are the same, or the first begins with the second.
    pub(super) fn compare_places(
        &mut self,
        a: &'t Place,
        b: &'t Place,
        prefix: bool,
    ) -> Lowered<Operand> {
        let (at_a, at_b) = (self.address(a)?, self.address(b)?);
        self.span = a.span.to(b.span);
        let (of_a, of_b) = (self.size_of(&a.ty), self.size_of(&b.ty));
        let align = Self::alignment(a).min(Self::alignment(b));
        let question = match prefix {
            true => Question::Begins(at_a, at_b),
            false => Question::Same(at_a, at_b),
        };
        let result = self.copy(Operand::Constant(1));
        self.block(|this, decided| {
            let both = of_a.min(of_b);
            this.by_words(question, both, align, result, decided)?;
            // Equal so far: the longer string must end here.
            let rest = match (prefix, of_a > of_b, of_b > of_a) {
                (_, _, true) => at_b,
                (false, true, _) => at_a,
                _ => return Ok(()),
            };
            let next = this.word(rest.plus(both), 1);
            let ended = this.compare(Relation::Equal, next, ZERO);
            this.set(result, ended);
            Ok(())
        })?;
        Ok(Operand::Register(result))
    }

    /// Characters before the first 0.
    pub(super) fn length(&mut self, place: &'t Place) -> Lowered<Operand> {
        let address = self.address(place)?;
        self.span = place.span;
        let bytes = self.size_of(&place.ty);
        let align = Self::alignment(place);
        let result = self.copy(Operand::Constant(i64::from(bytes)));
        self.block(|this, decided| {
            this.by_words(Question::Length(address), bytes, align, result, decided)
        })?;
        Ok(Operand::Register(result))
    }

    /// Compares word after word; the outcome is in `result`, and the block `decided` is left.
    fn by_words(
        &mut self,
        question: Question,
        bytes: u32,
        align: u32,
        result: Register,
        decided: Label,
    ) -> Lowered<()> {
        let words = bytes / align;
        let mut done = 0;
        if words > WORDS_UNROLLED {
            let at = self.copy(ZERO);
            let (index, one) = (Operand::Register(at), Operand::Constant(1));
            self.repeat(|this, end| {
                let count = Operand::Constant(i64::from(words));
                this.exit_if(Relation::LessEqual, count, index, end);
                let here = question.each(|mut address| {
                    this.step(&mut address, index, words, align);
                    address
                });
                let stride = Operand::Constant(i64::from(align));
                let before = this.binary(Operator::Multiply, index, stride);
                this.ask(here, align, before, result, decided)?;
                let next = this.binary(Operator::Add, index, one);
                this.set(at, next);
                Ok(())
            })?;
            done = words * align;
        }
        while done < bytes {
            let size = step(align, done, bytes);
            let here = question.each(|address| address.plus(done));
            self.ask(
                here,
                size,
                Operand::Constant(i64::from(done)),
                result,
                decided,
            )?;
            done += size;
        }
        Ok(())
    }

    /// Compares a word of `size` bytes after the first `before` bytes.
    fn ask(
        &mut self,
        question: Question,
        size: u32,
        before: Operand,
        result: Register,
        decided: Label,
    ) -> Lowered<()> {
        let (ending, difference) = match question {
            Question::Length(a) => (self.word(a, size), None),
            Question::Same(a, b) => {
                let (a, b) = (self.word(a, size), self.word(b, size));
                (a, Some(self.binary(Operator::Xor, a, b)))
            }
            Question::Begins(a, b) => {
                let (a, b) = (self.word(a, size), self.word(b, size));
                (b, Some(self.binary(Operator::Xor, a, b)))
            }
        };
        let zeros = self.zeros(ending, size);
        let below = match question {
            Question::Same(..) => {
                let less = self.binary(Operator::Subtract, zeros, Operand::Constant(1));
                self.binary(Operator::Xor, zeros, less)
            }
            Question::Begins(..) | Question::Length(_) => self.below(zeros),
        };
        if let Some(difference) = difference {
            let counts = self.binary(Operator::And, difference, below);
            self.when(Relation::NotEqual, counts, ZERO, |this| {
                this.set(result, ZERO);
                this.leave(Some(decided));
                Ok(())
            })?;
            self.exit_if(Relation::NotEqual, zeros, ZERO, decided);
            return Ok(());
        }
        self.when(Relation::NotEqual, zeros, ZERO, |this| {
            // Each byte below is 0xff: count these bytes.
            let ones = Operand::Constant(ONES as i64);
            let each = this.binary(Operator::And, below, ones);
            let sum = this.binary(Operator::Multiply, each, ones);
            let count = this.binary(Operator::ShiftRight, sum, Operand::Constant(56));
            let length = this.binary(Operator::Add, before, count);
            this.set(result, length);
            this.leave(Some(decided));
            Ok(())
        })
    }

    /// The highest bit of each byte that is 0; see the head of this file.
    fn zeros(&mut self, word: Operand, size: u32) -> Operand {
        let ones = ONES >> (64 - size * 8);
        let less = self.binary(Operator::Subtract, word, Operand::Constant(ones as i64));
        let not = self.binary(Operator::Xor, word, Operand::Constant(-1));
        let both = self.binary(Operator::And, less, not);
        self.binary(Operator::And, both, Operand::Constant((ones << 7) as i64))
    }

    /// All bits of the bytes below the first 0.
    fn below(&mut self, zeros: Operand) -> Operand {
        let negative = self.binary(Operator::Subtract, ZERO, zeros);
        let lowest = self.binary(Operator::And, zeros, negative);
        let first = self.binary(Operator::ShiftRight, lowest, Operand::Constant(7));
        self.binary(Operator::Subtract, first, Operand::Constant(1))
    }

    fn word(&mut self, from: Address, size: u32) -> Operand {
        self.load(from, &Type::Int(Int::new(size as u8 * 8, false)))
    }
}

impl Question {
    /// The same question about other addresses.
    fn each(self, mut there: impl FnMut(Address) -> Address) -> Question {
        match self {
            Question::Same(a, b) => Question::Same(there(a), there(b)),
            Question::Begins(a, b) => Question::Begins(there(a), there(b)),
            Question::Length(a) => Question::Length(there(a)),
        }
    }
}

/// Bytes of a literal as a word; after its end, zeros.
pub(super) fn word(text: &[u8], from: u32, size: u32) -> i64 {
    let mut bytes = [0; 8];
    let there = text.iter().skip(from as usize).take(size as usize);
    for (byte, of_text) in bytes.iter_mut().zip(there) {
        *byte = *of_text;
    }
    i64::from_le_bytes(bytes)
}
