//! What a runtime and the kernel side tell each other: `struct ecalls_activations`
//! (abi/activation.h), in memory of the kernel side, or without one in ordinary memory.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use ecalls_kernel::activation::Activations;

use crate::processor::Words;
use crate::sync::AtomicU32;
use crate::{ACTIVATIONS_MAX, PROCESSORS_MAX};

const WORDS: usize = size_of::<ecalls_abi::activation::Activations>() / 8;

/// Whether a runtime uses the kernel side.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KernelSide {
    /// If the process may load it, or the daemon has it; else only [`blocking`](crate::blocking)
    /// tells of blocks.
    #[default]
    IfPossible,
    /// A runtime does not start without it.
    Required,
    /// Never.
    Never,
}

/// An activation's words.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ActivationWords {
    /// SA §4.2; 1: a block is not told.
    pub(crate) lock: AtomicU32,
    /// The processor that it has, waits for, or had when it blocked.
    pub(crate) processor: AtomicU32,
}

#[derive(Debug)]
enum Memory {
    Kernel(Activations),
    Own(Box<[Line]>),
}

/// Ordinary memory, aligned as a page is.
#[repr(align(64))]
#[derive(Debug, Default)]
#[expect(dead_code, reason = "the words are accessed by the page's address")]
struct Line([AtomicU64; 8]);

#[derive(Debug)]
pub(crate) struct Page {
    memory: Memory,
    /// Of `memory`, which each switch would else look for several times.
    start: NonNull<Line>,
}

// SAFETY: `start` is an address in `memory`, which is of atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// `None`: without a kernel side.
    pub(crate) fn new(kernel: Option<Activations>) -> Self {
        let memory = kernel.map_or_else(
            || Memory::Own((0..WORDS / 8).map(|_| Line::default()).collect()),
            Memory::Kernel,
        );
        let start = match &memory {
            Memory::Kernel(kernel) => {
                assert!(kernel.page().len() >= WORDS, "the contract's size");
                let start = NonNull::from(kernel.page()).cast();
                assert!(start.is_aligned(), "a mapping begins with a page");
                start
            }
            Memory::Own(lines) => NonNull::from(&**lines).cast(),
        };
        Self { memory, start }
    }

    /// The kernel side; `None`: without.
    #[inline]
    pub(crate) fn kernel(&self) -> Option<&Activations> {
        match &self.memory {
            Memory::Kernel(kernel) => Some(kernel),
            Memory::Own(_) => None,
        }
    }

    /// The words of processor `index`.
    #[inline]
    pub(crate) fn processor(&self, index: usize) -> &Words {
        assert!(index < PROCESSORS_MAX, "a processor");
        let line = self.start.as_ptr().wrapping_add(index);
        // SAFETY: the page is so long, and of atomics only: `Words` is a line of them.
        unsafe { &*line.cast::<Words>() }
    }

    /// The words of activation `number`.
    pub(crate) fn activation(&self, number: u32) -> &ActivationWords {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        assert!(number < ACTIVATIONS_MAX, "an activation");
        let first = self.start.as_ptr().wrapping_add(PROCESSORS_MAX);
        let place = first.cast::<ActivationWords>().wrapping_add(number);
        // SAFETY: as above; a line has those of eight activations.
        unsafe { &*place }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use ecalls_abi::activation::{Activation, Activations, Processor};

    use super::{ActivationWords, Page};
    use crate::processor::Words;

    #[test]
    fn the_words_are_where_the_contract_has_them() {
        assert_eq!(size_of::<Words>(), size_of::<Processor>());
        assert_eq!(offset_of!(Words, spares), offset_of!(Processor, spares));
        assert_eq!(offset_of!(Words, told), offset_of!(Processor, told));
        assert_eq!(offset_of!(Words, untold), offset_of!(Processor, untold));
        assert_eq!(size_of::<ActivationWords>(), size_of::<Activation>());
        let page = Page::new(None);
        let first = std::ptr::from_ref(page.processor(0)).addr();
        let last = std::ptr::from_ref(page.activation(16_383)).addr();
        let bytes = size_of::<Activations>();
        assert_eq!(last - first, bytes - size_of::<Activation>());
    }
}
