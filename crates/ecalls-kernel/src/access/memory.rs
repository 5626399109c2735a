//! The application's side of a channel: the mapped segments, and the descriptor for sleeping.
//!
//! It needs only the channel's descriptors, so it is the same for a program that hosts the core and
//! for one that received them from the daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_abi::channel::UP_ELEMENT_BYTES;
use ecalls_abi::downcall::{DOWN_ELEMENT_BYTES, DOWN_ELEMENTS};

use crate::core::channel::{ChannelFds, Shape};
use crate::error::{Error, Result};
use crate::kernel::segment::{PAGE, ReadOnlyPage, Segment};

/// The mapped memory of a channel.
#[derive(Debug)]
pub(crate) struct ChannelMemory {
    up: Segment,
    down: Segment,
    wake: Wake,
}

/// A descriptor for sleeping, which is a buffer of wake-ups.
#[derive(Debug)]
pub(crate) struct Wake {
    buffer: OwnedFd,
    /// The reader's position in it.
    consumer: Segment,
    /// The kernel's position in it.
    producer: ReadOnlyPage,
}

impl Wake {
    pub(crate) fn map(buffer: OwnedFd) -> Result<Wake> {
        Ok(Wake {
            consumer: Segment::map(&buffer, PAGE)?,
            producer: ReadOnlyPage::map(&buffer, PAGE)?,
            buffer,
        })
    }

    /// Makes the descriptor unreadable until the next wake-up.
    pub(crate) fn clear(&self) {
        let written = self.producer.first_word().load(Ordering::Acquire);
        self.consumer.words()[0].store(written, Ordering::Release);
    }
}

impl AsFd for Wake {
    /// Readable once the kernel woke the reader.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffer.as_fd()
    }
}

impl ChannelMemory {
    /// Maps a channel of that shape.
    pub(crate) fn map(fds: &ChannelFds, shape: &Shape) -> Result<ChannelMemory> {
        let wake = fds
            .wake
            .try_clone()
            .map_err(|error| Error::from_io("copying a descriptor", error))?;
        Ok(ChannelMemory {
            up: Segment::map(&fds.up, UP_ELEMENT_BYTES * shape.up_elements())?,
            down: Segment::map(&fds.down, DOWN_ELEMENT_BYTES * DOWN_ELEMENTS)?,
            wake: Wake::map(wake)?,
        })
    }

    /// Words of the segment from kernel to application.
    pub(crate) fn up(&self) -> &[AtomicU64] {
        self.up.words()
    }

    /// Words of the segment from application to kernel.
    pub(crate) fn down(&self) -> &[AtomicU64] {
        self.down.words()
    }

    /// Readable once the kernel woke the reader.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes that descriptor unreadable until the next wake-up.
    pub(crate) fn clear_wake(&self) {
        self.wake.clear();
    }
}
