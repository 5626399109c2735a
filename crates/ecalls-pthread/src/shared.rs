//! Where the C library notes in an object what its attributes were: found by looking, not by
//! knowing the library's version. Two objects are initialized, one with the attribute and one
//! without, and the one word in which they differ is where it is.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::next;

/// The place of a word and its bits, of one attribute; 0: not looked for yet.
pub(crate) struct Mark {
    found: AtomicU64,
    look: fn() -> Option<(usize, u32)>,
}

const FOUND: u64 = 1 << 63;
/// It cannot be told.
const UNKNOWN: u64 = 1 << 62;

impl Mark {
    const fn new(look: fn() -> Option<(usize, u32)>) -> Self {
        Self {
            found: AtomicU64::new(0),
            look,
        }
    }

    #[inline]
    fn get(&self) -> u64 {
        match self.found.load(Ordering::Relaxed) {
            0 => self.look_now(),
            found => found,
        }
    }

    #[cold]
    fn look_now(&self) -> u64 {
        let found = (self.look)().map_or(UNKNOWN, |(at, bits)| {
            FOUND | u64::try_from(at).unwrap_or(0) << 32 | u64::from(bits)
        });
        self.found.store(found, Ordering::Relaxed);
        found
    }

    /// Where the word is in an object; `None`: it cannot be told.
    pub(crate) fn place(&self) -> Option<usize> {
        let found = self.get();
        (found & UNKNOWN == 0).then(|| usize::try_from(found >> 32 & 0xFFFF).unwrap_or(0))
    }

    /// Whether an object has the attribute. If that cannot be told, it has: then the C library's
    /// function is right in any case, if slower.
    ///
    /// # Safety
    /// It is such an object.
    #[inline]
    pub(crate) unsafe fn is_in<T>(&self, object: *const T) -> bool {
        let Some(at) = self.place() else {
            return true;
        };
        // SAFETY: the word is in the object; it does not change after the initialization.
        let word = unsafe { object.byte_add(at).cast::<u32>().read_volatile() };
        let bits = u32::try_from(self.get() & 0xFFFF_FFFF).unwrap_or(0);
        word & bits == bits
    }
}

/// The one word in which two objects differ, and the bits that only the second one has.
fn difference<T>(init: impl Fn(*mut T, bool)) -> Option<(usize, u32)> {
    let words = |with: bool| {
        let mut object = MaybeUninit::<T>::zeroed();
        init(object.as_mut_ptr(), with);
        let bytes = size_of::<T>();
        // SAFETY: all of it is initialized, with zeros at least.
        let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr().cast::<u8>(), bytes) };
        let words = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .copied()
            .map(u32::from_ne_bytes);
        words.collect::<Vec<u32>>()
    };
    let (without, with) = (words(false), words(true));
    let mut differ = (0..with.len()).filter(|word| with[*word] != without[*word]);
    let (word, None) = (differ.next()?, differ.next()) else {
        return None;
    };
    Some((word * 4, with[word] & !without[word])).filter(|(_, bits)| *bits != 0)
}

macro_rules! mark {
    ($(#[$text:meta])* $name:ident, $object:ident, $attr:ident, $attr_init:ident,
        $init:expr, |$a:ident| $set:expr) => {
        $(#[$text])*
        pub(crate) static $name: Mark = Mark::new(|| {
            difference(|object: *mut libc::$object, with| {
                let mut attr = MaybeUninit::<libc::$attr>::zeroed();
                let $a = attr.as_mut_ptr();
                // SAFETY: both are the caller's, and initialized in this order.
                unsafe {
                    libc::$attr_init($a);
                    if with {
                        $set;
                    }
                    ($init)(object, $a);
                }
            })
        });
    };
}

mark!(
    /// A mutex is used by several processes.
    SHARED_MUTEX, pthread_mutex_t, pthread_mutexattr_t, pthread_mutexattr_init,
    |object, attr| next::pthread_mutex_init(object, attr),
    |attr| libc::pthread_mutexattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED)
);
mark!(
    /// A mutex tells whoever has it already.
    CHECKED_MUTEX, pthread_mutex_t, pthread_mutexattr_t, pthread_mutexattr_init,
    |object, attr| next::pthread_mutex_init(object, attr),
    |attr| libc::pthread_mutexattr_settype(attr, libc::PTHREAD_MUTEX_ERRORCHECK)
);
mark!(
    /// A mutex that the kernel helps to hand over.
    ROBUST_MUTEX, pthread_mutex_t, pthread_mutexattr_t, pthread_mutexattr_init,
    |object, attr| next::pthread_mutex_init(object, attr),
    |attr| libc::pthread_mutexattr_setrobust(attr, libc::PTHREAD_MUTEX_ROBUST)
);
mark!(
    /// A condition is used by several processes.
    SHARED_CONDITION, pthread_cond_t, pthread_condattr_t, pthread_condattr_init,
    |object, attr| next::pthread_cond_init(object, attr),
    |attr| libc::pthread_condattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED)
);
mark!(
    /// A condition's times are on CLOCK_MONOTONIC.
    MONOTONIC_CONDITION, pthread_cond_t, pthread_condattr_t, pthread_condattr_init,
    |object, attr| next::pthread_cond_init(object, attr),
    |attr| libc::pthread_condattr_setclock(attr, libc::CLOCK_MONOTONIC)
);
mark!(
    /// A read-write lock is used by several processes.
    SHARED_RWLOCK, pthread_rwlock_t, pthread_rwlockattr_t, pthread_rwlockattr_init,
    |object, attr| next::pthread_rwlock_init(object, attr),
    |attr| libc::pthread_rwlockattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED)
);
mark!(
    /// A barrier is used by several processes.
    SHARED_BARRIER, pthread_barrier_t, pthread_barrierattr_t, pthread_barrierattr_init,
    |object, attr| next::pthread_barrier_init(object, attr, 1),
    |attr| libc::pthread_barrierattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED)
);

/// A semaphore is used by several processes.
pub(crate) static SHARED_SEMAPHORE: Mark = Mark::new(|| {
    difference(|object: *mut libc::sem_t, with| {
        // SAFETY: the caller's.
        unsafe { next::sem_init(object, i32::from(with), 0) };
    })
});

/// How many threads a barrier waits for.
pub(crate) static BARRIER_COUNT: Mark = Mark::new(|| {
    difference(|object: *mut libc::pthread_barrier_t, with| {
        // SAFETY: the caller's.
        unsafe { next::pthread_barrier_init(object, std::ptr::null(), if with { 3 } else { 1 }) };
    })
});
