//! The functions that a library stands before: those of the same name that are loaded after it,
//! as a rule the C library's own.

use std::ffi::{CStr, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The address of one of them, once it has been looked up.
#[derive(Debug)]
pub struct Next {
    /// With a zero at its end.
    name: &'static str,
    /// Functions whose type has changed exist in two versions; this is the one in use.
    version: Option<&'static CStr>,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// Of this name, with a zero at its end.
    #[must_use]
    pub const fn new(name: &'static str, version: Option<&'static CStr>) -> Self {
        Self {
            name,
            version,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address. A C library without it ends the process.
    #[inline]
    #[must_use]
    pub fn get(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            self.find()
        } else {
            address
        }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let name = self.name.as_ptr().cast();
        // SAFETY: both look up a name in what is loaded after this library.
        let address = unsafe {
            match self.version {
                Some(version) => libc::dlvsym(libc::RTLD_NEXT, name, version.as_ptr()),
                None => libc::dlsym(libc::RTLD_NEXT, name),
            }
        };
        if address.is_null() {
            say(&format!(
                "ecalls: the C library has no function {}, so the program cannot go on: \
                 run it without the option of `ecalls run` that replaces it",
                self.name.trim_end_matches('\0')
            ));
            std::process::abort();
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// The version of a function, if it has several.
#[doc(hidden)]
#[macro_export]
macro_rules! version {
    () => {
        None
    };
    ($version:literal) => {
        Some($version)
    };
}

/// Declares functions of the C library, and makes functions of them that call the next one.
#[macro_export]
macro_rules! next {
    ($(
        fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $(, $version:literal)?;
    )*) => {$(
        /// # Safety
        /// As the C library's function.
        #[inline]
        pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
            static NEXT: $crate::next::Next = $crate::next::Next::new(
                concat!(stringify!($name), "\0"),
                $crate::version!($($version)?),
            );
            // SAFETY: the function of this name has this type.
            let next = unsafe {
                std::mem::transmute::<
                    *mut std::ffi::c_void,
                    unsafe extern "C-unwind" fn($($type),*) $(-> $result)?,
                >(NEXT.get())
            };
            // SAFETY: as the caller says.
            unsafe { next($($argument),*) }
        }
    )*};
}

next! {
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize)
        -> c_long;
}

/// Writes a line to standard error, past whatever stands before write(2).
pub fn say(text: &str) {
    let line = format!("{text}\n");
    // SAFETY: the line is as long as it says.
    unsafe {
        syscall(
            libc::SYS_write,
            2,
            line.as_ptr().addr(),
            line.len(),
            0,
            0,
            0,
        )
    };
}
