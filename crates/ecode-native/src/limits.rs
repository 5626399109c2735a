//! Every limit by name. A program beyond one is interpreted.

/// Instructions of the IR. The code of as many is made within some 0.2 s.
pub const INSTRUCTIONS: usize = 8 * 1024;
/// Bytes of stack that the code may take. The interpreter takes none, and threads with small stacks
/// run it.
pub const STACK_BYTES: usize = 16 * 1024;
/// Rounds of loops that take no fuel, in one run together: some seconds.
pub const ROUNDS_WITHOUT_FUEL: i64 = 1 << 32;
