//! A library's own descriptors. A program that closes all it does not know, as daemons do, must
//! not close these: the number would soon be another file's.

use std::ffi::c_uint;

/// Has `close` close the numbers from `first` to `last`, but for `own`, in ascending order. Its
/// answer is that to the last part. The child of a vfork may come here: it allocates nothing.
pub fn close_around<R>(
    (first, last): (c_uint, c_uint),
    own: impl Iterator<Item = c_uint>,
    mut close: impl FnMut(c_uint, c_uint) -> R,
) -> Option<R> {
    let mut from = first;
    for own in own.filter(|own| (first..=last).contains(own)) {
        if own > from {
            close(from, own - 1);
        }
        from = own + 1;
    }
    let all_are_own = from > last && from > first;
    (!all_are_own).then(|| close(from, last))
}

#[cfg(test)]
mod tests {
    use super::close_around;

    fn closed(range: (u32, u32), own: &[u32]) -> Vec<(u32, u32)> {
        let mut closed = Vec::new();
        close_around(range, own.iter().copied(), |first, last| {
            closed.push((first, last));
        });
        closed
    }

    #[test]
    fn own_descriptors_are_left_out() {
        assert_eq!(closed((3, 9), &[]), [(3, 9)]);
        assert_eq!(closed((3, 9), &[2, 5, 6, 10]), [(3, 4), (7, 9)]);
        assert_eq!(closed((3, 9), &[3, 9]), [(4, 8)]);
        assert_eq!(closed((3, 3), &[3]), []);
        // The kernel refuses it.
        assert_eq!(closed((9, 3), &[5]), [(9, 3)]);
    }
}
