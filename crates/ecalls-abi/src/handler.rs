//! `abi/handler.h`: the built-in kernel handlers, and the meaning of an action's `argument` for
//! each.

/// One in `argument[0]` events passes, the first one included; 0 and 1: all.
pub const HANDLER_SAMPLE: u32 = 0;
/// At most `argument[0]` events per second pass, up to `argument[1]` of them at once.
pub const HANDLER_LIMIT: u32 = 1;
/// An event passes if the comparison of a field ([`field`]) with a bound is true.
pub const HANDLER_THRESHOLD: u32 = 2;
/// Counts a field's value in the channel's 64 counters.
pub const HANDLER_HISTOGRAM: u32 = 3;
/// Counts; `argument[0]` 1: the chain ends here.
pub const HANDLER_COUNT: u32 = 4;
/// The event goes to the sinks of a channel among hosts.
pub const HANDLER_REMOTE: u32 = 5;
/// The first number for handlers created at run time.
pub const HANDLERS_BUILT_IN: u32 = 6;
/// Handlers with numbers from here on may sleep: thread actions only.
pub const HANDLER_SLEEPING: u32 = 64;
/// Copies memory of the receiver into the event's data.
pub const HANDLER_COPY_USER: u32 = 64;
/// The most bytes that [`HANDLER_COPY_USER`] copies.
pub const COPY_USER_MAX: usize = 64;

/// Shift of a field's size in `argument[0]`.
pub const FIELD_SIZE_SHIFT: u32 = 16;
/// Shift of the comparison (threshold), or of the value's shift (histogram).
pub const FIELD_OP_SHIFT: u32 = 24;
/// Shift of the attribute (threshold): 0: the bound is `argument[1]`, n: attribute n - 1.
pub const FIELD_ATTRIBUTE_SHIFT: u32 = 32;

/// Less than the bound.
pub const COMPARE_LESS: u32 = 0;
/// At most the bound.
pub const COMPARE_LESS_EQUAL: u32 = 1;
/// Equal to the bound.
pub const COMPARE_EQUAL: u32 = 2;
/// Not equal to the bound.
pub const COMPARE_NOT_EQUAL: u32 = 3;
/// At least the bound.
pub const COMPARE_GREATER_EQUAL: u32 = 4;
/// More than the bound.
pub const COMPARE_GREATER: u32 = 5;
/// Added to a comparison: the field is signed.
pub const COMPARE_SIGNED: u32 = 8;

/// `argument[0]` of a handler that reads a field: offset and size in bytes, comparison (or shift)
/// and attribute (0: none).
pub const fn field(offset: u16, size: u8, op: u8, attribute: u32) -> u64 {
    offset as u64
        | (size as u64) << FIELD_SIZE_SHIFT
        | (op as u64) << FIELD_OP_SHIFT
        | (attribute as u64) << FIELD_ATTRIBUTE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_word_holds_offset_size_op_and_attribute() {
        assert_eq!(field(0x12, 4, 0xd, 3), 0x0000_0003_0d04_0012);
    }
}
