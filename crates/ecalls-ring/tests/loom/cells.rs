//! Replies that are kept ready: the kernel side never takes one in parts.

use ecalls_ring::Cells;
use ecalls_ring::cells::{CELL_WORDS, read};
use ecalls_ring::words::zeroed;
use loom::sync::Arc;

use super::{Segment, model, race};

#[test]
fn reader_takes_a_whole_reply_or_none() {
    model(|| {
        let memory = Segment(Arc::new(zeroed(CELL_WORDS)));
        let mut cells = Cells::new(memory.clone());
        assert!(cells.write(0, b"", &[1; 2]));
        let writer = move || {
            assert!(cells.write(0, b"", &[2; 2]));
            assert!(cells.write(0, b"", &[3; 2]));
        };
        let copy = memory.clone();
        let (_, taken) = race([writer], move || read(&copy.0, 0));
        if let Some([sum, reply]) = taken {
            assert_eq!(sum, reply, "the sum of a reply of two bytes is the reply");
        }
        let last = read(&memory.0, 0).unwrap();
        assert_eq!(last, [u64::from_ne_bytes([3, 3, 0, 0, 0, 0, 0, 0]); 2]);
    });
}
