//! What polls log that no scheduler answers. The only test of this file, because the line comes
//! once per process.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::File;
use std::io::Read;
use std::sync::atomic::AtomicU64;

use ecalls_loop::Timing;
use ecalls_loop::bare::CoopPoll;
use ecalls_loop::coop::Slot;

#[test]
fn polls_without_a_scheduler_say_so_once() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer = File::from(std::os::fd::OwnedFd::from(writer));
    let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
    tracing::subscriber::with_default(subscriber, || {
        // A slot at which no scheduler looks.
        let memory: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
        let mut poll = CoopPoll::cooperative(Slot::new(memory).unwrap());
        for _ in 0..2 {
            poll.poll(1, 1).unwrap();
        }
        assert_eq!(poll.timing(), Timing::Plain);
        drop(CoopPoll::plain());
    });
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    assert_eq!(log.matches("no cooperative scheduler").count(), 1, "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}
