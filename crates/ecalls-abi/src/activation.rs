//! `abi/activation.h`: the page by which a process and the kernel side share who has a virtual
//! processor (SA §3.1).

/// Virtual processors of a process, at most.
pub const PROCESSORS_MAX: u32 = 64;
/// Activations of a process are fewer than this: their numbers begin with 1, and 0 is nobody.
pub const ACTIVATIONS_MAX: u32 = 16_384;

/// `struct ecalls_processor`: a line.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    /// Both sides: the activation that has it; 0: none.
    pub active: u32,
    /// Process: activations that wait for it.
    pub spares: u32,
    /// Kernel side: blocks upon which it took the processor.
    pub told: u64,
    /// Kernel side: blocks upon which it did not.
    pub untold: u64,
    /// Zero.
    pub pad: [u64; 5],
}

/// `struct ecalls_activation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Activation {
    /// The activation: 1: a block is not told (SA §4.2).
    pub lock: u32,
    /// Process: the processor that it has, or had when it blocked.
    pub processor: u32,
}

/// `struct ecalls_activations`: the whole page.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Activations {
    /// By index.
    pub processor: [Processor; PROCESSORS_MAX as usize],
    /// By number.
    pub activation: [Activation; ACTIVATIONS_MAX as usize],
}
