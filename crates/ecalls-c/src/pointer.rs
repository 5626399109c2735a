//! The only place that dereferences the pointers of a C caller.
//!
//! Each function checks for null and otherwise relies on the promises in the crate root. Options
//! are copied before they are checked, so that the checked values are the ones that are used.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use crate::error::{Failure, Outcome};

/// The largest size of options; a greater `size` is an error of the caller.
const OPTIONS_MAX: usize = 4096;

/// A struct of C whose first field is `size`.
///
/// # Safety
/// `repr(C)`, begins with a `u32`, has no padding, and every pattern of bytes is one of its values,
/// pointers and optional functions included. (An invalid pointer is a value, too; the promises in
/// the crate root make it valid.)
pub(crate) unsafe trait Options: Sized {
    /// The size of its first version, which is the least size that is accepted.
    const LEAST: usize;
}

/// The object behind a handle.
///
/// # Safety
/// `pointer` is null, or its target lives and is not changed during `'a`.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// A text.
///
/// # Safety
/// `pointer` is null, or a text that ends with 0 and is not changed during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise; not null.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map_err(|_| Failure::invalid(format!("{what} is no UTF-8")))
}

/// An optional text: empty if it is null.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    unsafe { text(pointer, what) }
}

/// So many texts, at most `most`, each a `what`.
///
/// # Safety
/// `pointer` is null or has `count` pointers, each as [`text`] demands.
pub(crate) unsafe fn texts<'a>(
    pointer: *const *const c_char,
    count: u32,
    most: usize,
    what: &str,
) -> Outcome<Vec<&'a str>> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > most {
        return Err(Failure::invalid(format!(
            "{what}_count is {count}: 0 to {most}"
        )));
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let first = output(pointer.cast_mut(), &format!("the array of {what}s"))?;
    let mut found = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: `count` pointers are there, by the caller's promise.
        let place = unsafe { first.as_ptr().add(at) };
        // SAFETY: as above.
        let one = unsafe { place.read() };
        // SAFETY: the caller's promise.
        found.push(unsafe { text(one, what) }?);
    }
    Ok(found)
}

/// A slice of bytes; null stands for an empty one.
///
/// # Safety
/// `pointer` is null, or points to `size` bytes that are not changed during `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, size: usize, what: &str) -> Outcome<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { std::slice::from_raw_parts(pointer, size) })
}

/// A copy of options. Fields that the caller's version lacks are 0.
///
/// # Safety
/// `pointer` is null, or begins with a `u32` and has as many bytes as this number says.
pub(crate) unsafe fn options<T: Options>(pointer: *const T, what: &str) -> Outcome<T> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: a `u32` is there, by the caller's promise; not null.
    let size = unsafe { pointer.cast::<u32>().read_unaligned() };
    // SAFETY: `size` bytes are there, by the caller's promise.
    unsafe { sized(pointer, size, what) }
}

/// A copy of a struct that has `size` bytes on the caller's side.
///
/// # Safety
/// `pointer` is not null and points to `size` bytes.
pub(crate) unsafe fn sized<T: Options>(pointer: *const T, size: u32, what: &str) -> Outcome<T> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if !(T::LEAST..=OPTIONS_MAX).contains(&size) {
        return Err(Failure::invalid(format!(
            "the size in {what} is {size}: set it to the size of the struct, at least {}",
            T::LEAST
        )));
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: `known` is within both, which do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), known);
    }
    // SAFETY: `known <= size`, so this stays inside the caller's struct or at its end.
    let rest = unsafe { pointer.cast::<u8>().add(known) };
    // SAFETY: these are the bytes of the caller's struct that this version does not know.
    let rest = unsafe { std::slice::from_raw_parts(rest, size - known) };
    if rest.iter().any(|byte| *byte != 0) {
        return Err(Failure::new(
            libc::E2BIG,
            format!("{what} sets fields that this version of libecalls does not know"),
        ));
    }
    // SAFETY: every pattern of bytes is a value of T (`Options`), and all bytes are set.
    Ok(unsafe { copy.assume_init() })
}

/// The place of an output. Callers write it last, and only on success.
pub(crate) fn output<T>(pointer: *mut T, what: &str) -> Outcome<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| null(what))
}

/// Writes an optional output.
///
/// # Safety
/// `pointer` is null or may be written.
pub(crate) unsafe fn write_optional<T>(pointer: *mut T, value: T) {
    if let Some(place) = NonNull::new(pointer) {
        // SAFETY: the caller's promise; not null.
        unsafe { place.write(value) };
    }
}

/// Passes a new handle to the caller.
///
/// # Safety
/// `place` may be written.
pub(crate) unsafe fn give<T>(place: NonNull<*mut T>, value: T) {
    // SAFETY: the caller's promise.
    unsafe { place.write(Box::into_raw(Box::new(value))) };
}

/// Ends a handle.
///
/// # Safety
/// `pointer` is null or came from [`give`], and is not used any more.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        crate::error::guard(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(pointer) });
            Ok(0)
        });
    }
}

/// Ends a handle whose object is still needed.
///
/// # Safety
/// As [`take_back`].
pub(crate) unsafe fn take<T>(pointer: *mut T, what: &str) -> Outcome<Box<T>> {
    let place = output(pointer, what)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { Box::from_raw(place.as_ptr()) })
}

/// A word in the caller's memory that several threads change at a time.
///
/// # Safety
/// `pointer` is null, or its target lives during `'a` and is changed only by this library.
pub(crate) unsafe fn word<'a>(pointer: *mut u32, what: &str) -> Outcome<&'a AtomicU32> {
    let place = output(pointer, what)?;
    // SAFETY: the caller's promise; a `uint32_t` of C is aligned, and not null.
    Ok(unsafe { AtomicU32::from_ptr(place.as_ptr()) })
}

/// Writes a text as snprintf does: as much as fits, with a final 0. Returns the length of the whole
/// text.
///
/// # Safety
/// `buffer` is null or has `size` bytes that may be written.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, size: usize) -> Outcome<c_int> {
    let length = c_int::try_from(text.len())
        .map_err(|_| Failure::new(libc::EOVERFLOW, "the text is too long"))?;
    if size == 0 {
        return Ok(length);
    }
    let buffer = output(buffer.cast::<u8>(), "the buffer")?;
    let fits = text.len().min(size - 1);
    // SAFETY: `fits` is less than `size`, within both; a caller's buffer does not overlap our text.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.as_ptr(), fits) };
    // SAFETY: `fits` is less than `size`.
    let end = unsafe { buffer.add(fits) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(length)
}

fn null(what: &str) -> Failure {
    Failure::invalid(format!("{what} is NULL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Known {
        size: u32,
        old: u32,
        new: u64,
    }

    // SAFETY: repr(C), begins with a u32, integers without padding.
    unsafe impl Options for Known {
        const LEAST: usize = 8;
    }

    fn read(words: &[u32]) -> Outcome<Known> {
        // SAFETY: each case has as many bytes as its first word says, or is refused for it.
        unsafe { options(words.as_ptr().cast(), "these options") }
    }

    #[test]
    fn older_options_have_zeros_for_what_is_new() {
        let known = read(&[8, 7]).expect("valid");
        assert_eq!((known.old, known.new), (7, 0));
    }

    #[test]
    fn newer_options_are_taken_while_what_is_unknown_is_zero() {
        assert_eq!(read(&[24, 7, 9, 0, 0, 0]).expect("valid").new, 9);
        assert!(read(&[24, 7, 9, 0, 0, 1]).is_err());
    }

    #[test]
    fn sizes_without_sense_are_refused() {
        for size in [0, 7, 4097, u32::MAX] {
            assert!(read(&[size, 0, 0, 0]).is_err(), "{size}");
        }
    }

    #[test]
    fn texts_are_cut_to_the_buffer_and_counted_whole() {
        let mut buffer = [b'x'; 4];
        // SAFETY: a buffer of that size.
        let length = unsafe { write_text("hello", buffer.as_mut_ptr().cast(), 4) };
        assert_eq!((length.expect("valid"), &buffer), (5, b"hel\0"));
        // SAFETY: nothing is written with size 0.
        let length = unsafe { write_text("hello", std::ptr::null_mut(), 0) };
        assert_eq!(length.expect("valid"), 5);
    }
}
