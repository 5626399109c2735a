//! An event with all of its data, of any size, as a reader gets it.
//!
//! Up to [`DATA_INLINE`] bytes are in the record, and an event costs no allocation. A longer one
//! has all of its data, the record's included, in one allocation, so that they are one slice.

use alloc::boxed::Box;
use alloc::vec;
use core::ops::{Deref, DerefMut};

use ecalls_abi::Event as Record;
use ecalls_abi::event::DataTooLong;
use ecalls_abi::version::{DATA_INLINE, DATA_LARGE};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};

/// An event (ECalls-05 §3) with all of its data. The fields of its record (`abi/event.h`) are its
/// own: `event.kind`, `event.pid`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    record: Record,
    /// All data, if they are more than a record has.
    long: Option<Box<[u64]>>,
}

impl Event {
    /// Gives an event whose data are not all in its record all of them, `size` bytes at least.
    pub(crate) fn set_long(&mut self, long: Box<[u64]>) {
        let size = (self.record.size as usize).min(8 * long.len());
        self.record.size = u32::try_from(size).unwrap_or(u32::MAX);
        self.long = Some(long);
    }

    /// Has the record's own data only.
    #[inline]
    pub(crate) fn forget_long(&mut self) {
        if self.long.is_some() {
            self.long = None;
        }
    }

    /// The record, for its words to be filled in.
    #[inline]
    pub(crate) fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    /// The record: the event without the data beyond [`DATA_INLINE`] bytes.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The data, as words; those after the last byte in use are 0.
    pub(crate) fn words(&self) -> &[u64] {
        self.long.as_deref().unwrap_or(&self.record.data)
    }

    /// The data.
    pub fn data_bytes(&self) -> &[u8] {
        match &self.long {
            Some(long) => long
                .as_bytes()
                .get(..self.record.size as usize)
                .unwrap_or(long.as_bytes()),
            None => self.record.data_bytes(),
        }
    }

    /// The data as one of the services' structs, or `None` if there is less data than `T` has.
    ///
    /// Data may be longer than `T`: services append fields, and old readers ignore them.
    pub fn data_as<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.data_bytes())
            .ok()
            .map(|(value, _rest)| value)
    }

    /// Stores `bytes` as the data and sets `size`.
    ///
    /// # Errors
    /// [`DataTooLong`] above [`DATA_LARGE`] bytes; the event is then unchanged.
    pub fn set_data(&mut self, bytes: &[u8]) -> Result<(), DataTooLong> {
        if bytes.len() <= DATA_INLINE {
            self.long = None;
            return self.record.set_data(bytes);
        }
        let error = DataTooLong { size: bytes.len() };
        if bytes.len() > DATA_LARGE {
            return Err(error);
        }
        let mut long = vec![0u64; bytes.len().div_ceil(8)].into_boxed_slice();
        long.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        self.record.set_data(&bytes[..DATA_INLINE])?;
        self.record.size = u32::try_from(bytes.len()).map_err(|_| error)?;
        self.long = Some(long);
        Ok(())
    }
}

impl Deref for Event {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

/// The fields; `size` belongs to the data, and [`Event::set_data`] sets it.
impl DerefMut for Event {
    fn deref_mut(&mut self) -> &mut Record {
        &mut self.record
    }
}

/// An event whose data is in its record. A larger `size` counts as all of the record's data.
impl From<Record> for Event {
    fn from(mut record: Record) -> Event {
        record.size = record.size.min(DATA_INLINE as u32);
        Event { record, long: None }
    }
}
