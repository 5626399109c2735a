//! The instructions that are executed: flat, 12 bytes each, operands in slots. A slot is a register
//! of the IR or a constant, which is put there once; so nothing asks which of the two an operand
//! is. What is rare or long stands in a table beside the code.

use crate::tree::Fault;

/// A register or a constant.
pub(super) type Slot = u16;
/// A place in the code.
pub(super) type Target = u16;

/// See the head of this file; the meaning is that of the IR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Code {
    Set {
        to: Slot,
        from: Slot,
    },
    Add {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Subtract {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Multiply {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    And {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Or {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Xor {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    ShiftLeft {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    ShiftRight {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    /// Divisions, and shifts with sign.
    Rare {
        operator: crate::ir::Operator,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Equal {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    NotEqual {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Less {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    LessEqual {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    LessSigned {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    LessEqualSigned {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    /// Extensions by sign and by zeros.
    Signed8 {
        to: Slot,
        from: Slot,
    },
    Signed16 {
        to: Slot,
        from: Slot,
    },
    Signed32 {
        to: Slot,
        from: Slot,
    },
    Unsigned8 {
        to: Slot,
        from: Slot,
    },
    Unsigned16 {
        to: Slot,
        from: Slot,
    },
    Unsigned32 {
        to: Slot,
        from: Slot,
    },
    /// Goes on at `target`, if the relation holds.
    Jump {
        target: Target,
    },
    IfEqual {
        a: Slot,
        b: Slot,
        target: Target,
    },
    IfNotEqual {
        a: Slot,
        b: Slot,
        target: Target,
    },
    IfLess {
        a: Slot,
        b: Slot,
        target: Target,
    },
    IfLessEqual {
        a: Slot,
        b: Slot,
        target: Target,
    },
    IfLessSigned {
        a: Slot,
        b: Slot,
        target: Target,
    },
    IfLessEqualSigned {
        a: Slot,
        b: Slot,
        target: Target,
    },
    /// Fails unless `index` < `count` without sign.
    Bound {
        index: Slot,
        count: Slot,
    },
    /// Byte `at` of the memory, plus what is in `index`.
    LoadU8 {
        to: Slot,
        index: Slot,
        at: u32,
    },
    LoadU16 {
        to: Slot,
        index: Slot,
        at: u32,
    },
    LoadU32 {
        to: Slot,
        index: Slot,
        at: u32,
    },
    LoadS8 {
        to: Slot,
        index: Slot,
        at: u32,
    },
    LoadS16 {
        to: Slot,
        index: Slot,
        at: u32,
    },
    LoadS32 {
        to: Slot,
        index: Slot,
        at: u32,
    },
    Load64 {
        to: Slot,
        index: Slot,
        at: u32,
    },
    Store8 {
        value: Slot,
        index: Slot,
        at: u32,
    },
    Store16 {
        value: Slot,
        index: Slot,
        at: u32,
    },
    Store32 {
        value: Slot,
        index: Slot,
        at: u32,
    },
    Store64 {
        value: Slot,
        index: Slot,
        at: u32,
    },
    /// A row of the table of copies.
    Copy {
        row: u16,
    },
    Zero {
        index: Slot,
        bytes: u16,
        at: u32,
    },
    NextBit {
        to: Slot,
        mask: Slot,
        after: Slot,
    },
    /// A row of the table of effects.
    Effect {
        row: u16,
    },
    Burn,
    Return {
        value: Slot,
    },
    Fail {
        fault: Fault,
    },
}

/// A copy: (place, slot of the distance) to and from.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRow {
    pub(super) to: (u32, Slot),
    pub(super) from: (u32, Slot),
    pub(super) bytes: u32,
}

/// A request.
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
