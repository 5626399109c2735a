//! Every limit of the language and of the compiler, by name. A text beyond one is refused with the
//! limit in the message. Together they bound the compiler's own time and memory, whatever the text.

/// Bytes of a text.
pub const TEXT_BYTES: usize = 64 * 1024;
/// Tokens of a text.
pub const TOKENS: usize = 32 * 1024;
/// Depth of nested expressions, blocks and types.
pub const DEPTH: u32 = 64;
/// Height of the tree of one expression, chains of operators (`a + b + c`) included.
pub const HEIGHT: u32 = 256;
/// Diagnostics shown of one compilation.
pub const DIAGNOSTICS: usize = 50;
/// Bytes of `input`, `output`, and of all local arrays and structs together, each.
pub const REGION_BYTES: u32 = 4096;
/// Bytes of all `static` variables.
pub const STATE_BYTES: u32 = 32 * 1024;
/// Elements of one array.
pub const ARRAY_ELEMENTS: u32 = 4096;
/// Local functions and their parameters.
pub const FUNCTIONS: usize = 64;
/// Parameters of a function.
pub const PARAMETERS: usize = 16;
/// Instructions of the IR once functions are expanded where they are called.
pub const INSTRUCTIONS: usize = 8 * 1024;
/// Depth of nested expressions, statements and called functions, once functions are expanded; so
/// the later phases may be recursive.
pub const NESTING: u32 = 256;
/// Depth of nested loops, those of called functions included.
pub const LOOP_DEPTH: u32 = 6;
/// Instructions of a program for the kernel. The verifier takes less than 50 ms for any so long.
pub const BPF_INSTRUCTIONS: usize = 8 * 1024;
/// The same for a text that is not trusted ([`crate::bpf::Options::secret`]), which then is loaded
/// within about 5 ms.
pub const BPF_INSTRUCTIONS_STRANGER: usize = 2 * 1024;
/// Instructions of a program for the kernel, where each counts as often as the verifier walks it at
/// least: in a loop twice, in nested loops four times, and so on. A walk takes up to 4 us.
pub const BPF_WALK: usize = 12 * 1024;
/// Conditional jumps of a program for the kernel, counted in the same way: the verifier remembers
/// each whose other branch it has not walked yet (BPF_COMPLEXITY_LIMIT_JMP_SEQ, 8192).
pub const BPF_BRANCHES: usize = 8000;
/// Bytes of stack of a program for the kernel, over all frames.
pub const BPF_STACK_BYTES: u32 = 512;
/// Iterations of all loops in one run together, unless the text says `fuel N;`.
pub const FUEL: u32 = 4096;
/// The largest N of `fuel N;`.
pub const FUEL_MAX: u32 = 1_000_000;
/// Requests (signals, raises, counts) of one run.
pub const EFFECTS: u32 = 16;
/// Bytes of a service's name, of its format, and of its events' data, which are its output.
pub const SERVICE_NAME_BYTES: usize = 31;
pub const SERVICE_FORMAT_BYTES: usize = 511;
pub const SERVICE_DATA_BYTES: u32 = 2152;
/// The longest deadline of a service's events, us.
pub const SERVICE_DEADLINE_US: u64 = 3_600_000_000;
/// Sinks of a channel.
pub const SINKS: u32 = 64;
/// Attributes of a channel or a sink.
pub const ATTRIBUTES: u32 = 32;
/// The largest number of keys that a `once` remembers.
pub const ONCE_ENTRIES: u32 = 256;
