//! The instructions that are executed: flat, 12 bytes each, operands in slots. A slot is a register
//! of the IR or a constant, which is put there once; so nothing asks which of the two an operand
//! is. What is rare or long stands in a table beside the code.

use crate::ir::Operator;
use crate::tree::Fault;

/// A register or a constant.
pub(super) type Slot = u16;
/// A place in the code.
pub(super) type Target = u16;

/// See the head of this file; the meaning is that of the IR. The slot that is written stands first,
/// operands in their order, a target last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Code {
    Set(Slot, Slot),
    Add(Slot, Slot, Slot),
    Subtract(Slot, Slot, Slot),
    Multiply(Slot, Slot, Slot),
    And(Slot, Slot, Slot),
    Or(Slot, Slot, Slot),
    Xor(Slot, Slot, Slot),
    ShiftLeft(Slot, Slot, Slot),
    ShiftRight(Slot, Slot, Slot),
    /// Divisions, and shifts with sign.
    Rare(Operator, Slot, Slot, Slot),
    Equal(Slot, Slot, Slot),
    NotEqual(Slot, Slot, Slot),
    Less(Slot, Slot, Slot),
    LessEqual(Slot, Slot, Slot),
    LessSigned(Slot, Slot, Slot),
    LessEqualSigned(Slot, Slot, Slot),
    /// Extensions by sign and by zeros.
    Signed8(Slot, Slot),
    Signed16(Slot, Slot),
    Signed32(Slot, Slot),
    Unsigned8(Slot, Slot),
    Unsigned16(Slot, Slot),
    Unsigned32(Slot, Slot),
    /// Goes on at the target, if the relation holds.
    Jump(Target),
    IfEqual(Slot, Slot, Target),
    IfNotEqual(Slot, Slot, Target),
    IfLess(Slot, Slot, Target),
    IfLessEqual(Slot, Slot, Target),
    IfLessSigned(Slot, Slot, Target),
    IfLessEqualSigned(Slot, Slot, Target),
    /// Fails unless the first is less than the second, without sign.
    Bound(Slot, Slot),
    /// Reads the memory there.
    LoadU8(Slot, There),
    LoadU16(Slot, There),
    LoadU32(Slot, There),
    LoadS8(Slot, There),
    LoadS16(Slot, There),
    LoadS32(Slot, There),
    Load64(Slot, There),
    /// Writes it.
    Store8(There, Slot),
    Store16(There, Slot),
    Store32(There, Slot),
    Store64(There, Slot),
    /// Rows of the tables.
    Copy(u16),
    Zero(u16),
    Effect(u16),
    NextBit(Slot, Slot, Slot),
    Burn(u32),
    Return(Slot),
    Fail(Fault),
}

/// A place in the memory: a byte, and the slot with how much further.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct There {
    pub(super) at: u32,
    pub(super) index: Slot,
}

/// A copy, or zeros, which come from nowhere: `from` is `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRow {
    pub(super) to: There,
    pub(super) from: There,
    pub(super) bytes: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct EffectRow {
    pub(super) kind: u32,
    pub(super) number: Slot,
    pub(super) values: [Slot; 3],
}

/// Bytes of the memory. Addresses have been proven to lie inside; if that were wrong, zeros.
#[inline(always)]
pub(super) fn bytes_at<const SIZE: usize>(bytes: &[u8], at: usize) -> [u8; SIZE] {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(there) => *there,
        None => [0; SIZE],
    }
}

/// Puts bytes into the memory.
#[inline(always)]
pub(super) fn put_at<const SIZE: usize>(bytes: &mut [u8], at: usize, value: [u8; SIZE]) {
    if let Some(there) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *there = value;
    }
}
