//! Whole arrays and structs: copied, filled, set to 0, by the widest access that the place's
//! alignment allows, and narrower ones for the last bytes.

use super::{Lowered, Lowering};
use crate::ir::{Address, Op, Operand, Region};
use crate::tree::{Expression, ExpressionKind, Place};
use crate::types::{Int, Type};

impl<'t> Lowering<'t> {
    pub(super) fn copy_all(&mut self, to: &'t Place, from: &'t Place) -> Lowered<()> {
        let target = self.address(to)?;
        let source = self.address(from)?;
        self.span = to.span;
        if target == source {
            return Ok(());
        }
        let bytes = self.size_of(&to.ty);
        let align = Self::alignment(to).min(Self::alignment(from));
        let most = bytes - bytes % align;
        if most > align {
            let (bytes, align) = (most, align as u8);
            self.emit(Op::Copy {
                to: target,
                from: source,
                bytes,
                align,
            });
        }
        let mut done = if most > align { most } else { 0 };
        while done < bytes {
            let size = step(align, done, bytes);
            let word = Type::Int(Int::new(size as u8 * 8, false));
            let value = self.load(source.plus(done), &word);
            self.store(target.plus(done), value, &word);
            done += size;
        }
        Ok(())
    }

    pub(super) fn fill(
        &mut self,
        place: &'t Place,
        values: &'t [(u32, Expression)],
    ) -> Lowered<()> {
        let address = self.address(place)?;
        self.span = place.span;
        let bytes = self.size_of(&place.ty);
        self.zero(address, bytes, Self::alignment(place));
        // The place is 0 already, unless an earlier value may have been written there.
        let ordered = values.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let zeros_stay = ordered && !values.iter().any(|(_, value)| value.contains(&writes));
        for (offset, value) in values {
            let given = self.value(value)?;
            self.span = value.span;
            if given != Operand::Constant(0) || !zeros_stay {
                self.store(address.plus(*offset), given, &value.ty);
            }
        }
        Ok(())
    }

    pub(super) fn fill_text(&mut self, place: &'t Place, text: &[u8]) -> Lowered<()> {
        let address = self.address(place)?;
        self.span = place.span;
        let bytes = self.size_of(&place.ty);
        let align = Self::alignment(place);
        let length = (text.len() as u32).min(bytes);
        let mut done = 0;
        while done < length {
            let size = step(align, done, bytes);
            let value = Operand::Constant(super::text::word(text, done, size));
            let bits = size as u8 * 8;
            self.emit(Op::Store {
                to: address.plus(done),
                value,
                bits,
            });
            done += size;
        }
        // The bytes between here and the next wide access are less than a word.
        while done < bytes && !done.is_multiple_of(align) {
            let size = step(align, done, bytes);
            self.zero(address.plus(done), size, size);
            done += size;
        }
        self.zero(address.plus(done), bytes - done, align);
        Ok(())
    }

    /// Sets bytes to 0, of which the first lies at a multiple of `align`.
    pub(super) fn zero(&mut self, to: Address, bytes: u32, align: u32) {
        let most = bytes - bytes % align;
        if most > align {
            let (bytes, align) = (most, align as u8);
            self.emit(Op::Zero { to, bytes, align });
        }
        let mut done = if most > align { most } else { 0 };
        while done < bytes {
            let size = step(align, done, bytes);
            let (value, bits) = (Operand::Constant(0), size as u8 * 8);
            self.emit(Op::Store {
                to: to.plus(done),
                value,
                bits,
            });
            done += size;
        }
    }

    /// Reads a word of the frame.
    pub(super) fn frame(&mut self, offset: u32) -> Operand {
        let from = Address::fixed(Region::Frame, offset);
        self.load(from, &Type::Int(Int::UNSIGNED_LONG))
    }
}

/// Bytes of the widest access at `done`, of `bytes` that begin at a multiple of `align`.
pub(super) fn step(align: u32, done: u32, bytes: u32) -> u32 {
    let mut size = 1 << (align | done).trailing_zeros();
    while done + size > bytes {
        size /= 2;
    }
    size
}

/// Whether an expression may write memory.
fn writes(e: &Expression) -> bool {
    matches!(
        e.kind,
        ExpressionKind::Assign(..)
            | ExpressionKind::Update { .. }
            | ExpressionKind::Copy { .. }
            | ExpressionKind::Fill(..)
            | ExpressionKind::FillText(..)
            | ExpressionKind::Call(..)
    )
}
