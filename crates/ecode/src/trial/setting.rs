//! The inputs of a trial run: an event, a time, attributes, sinks. `ecalls ecode run`, the tests in
//! texts and the tests of this repository fill a [`Setting`]; the caller copies it into the
//! program's memory, in user space ([`Setting::put_into`]) or in the kernel.

use std::collections::BTreeMap;

use crate::frame::at;
use crate::ir::Program;
use crate::limits::{ATTRIBUTES, REGION_BYTES, SINKS};
use crate::run::Memory;
use crate::tree::{EventField, SinkField, Tree};
use crate::types::Type;

/// The time at which a trial takes place, unless it is set: 1000 s after the beginning, so that
/// there is a past.
const NOW_NS: u64 = 1_000_000_000_000;
/// The seed of `random()`, so that a trial can be repeated.
const RANDOM: u64 = 0x9e37_79b9_7f4a_7c15;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Header and data of the event.
    pub event: Vec<u8>,
    /// The result of `now()`.
    pub now_ns: u64,
    /// The seed of `random()`.
    pub random: u64,
    /// Attributes of the channel.
    pub attributes: Vec<i64>,
    /// The sinks that exist, by number.
    pub sinks: BTreeMap<u32, Sink>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    pub id: u64,
    /// The age of its attributes, ns.
    pub age_ns: u64,
    pub attributes: Vec<i64>,
}

impl Setting {
    /// An event that is all zeros, with data as the program's input is declared.
    pub fn new(tree: &Tree, program: &Program) -> Setting {
        let ty = tree.input.map(|input| &tree.variables[input.0 as usize].ty);
        let declared = ty.and_then(|ty: &Type| tree.structs.size(ty)).unwrap_or(0);
        let input = program.input.max(declared);
        let mut setting = Setting {
            event: vec![0; (at::EVENT_DATA + input) as usize],
            now_ns: NOW_NS,
            random: RANDOM,
            attributes: vec![0; ATTRIBUTES as usize],
            sinks: BTreeMap::new(),
        };
        setting.set_event(EventField::Size, i64::from(input));
        setting.set_event(EventField::Time, NOW_NS as i64);
        setting
    }

    /// The event's data, to be written.
    pub fn data(&mut self) -> &mut [u8] {
        &mut self.event[at::EVENT_DATA as usize..]
    }

    /// Sets a field of the event's header. `time_left` sets the deadline; a `size` beyond the
    /// event's data extends the data.
    pub fn set_event(&mut self, field: EventField, number: i64) {
        if field == EventField::Size {
            let bytes = usize::try_from(number).map_or(0, |bytes| bytes.min(REGION_BYTES as usize));
            let bytes = at::EVENT_DATA as usize + bytes;
            self.event.resize(self.event.len().max(bytes), 0);
        }
        let (at, wide) = match field {
            EventField::Id => (at::EVENT_ID, true),
            EventField::Time => (at::EVENT_TIME, true),
            EventField::Deadline => (at::EVENT_DEADLINE, true),
            EventField::TimeLeft => {
                let deadline = self.now_ns.wrapping_add_signed(number);
                return self.set_event(EventField::Deadline, deadline as i64);
            }
            EventField::Service => (at::EVENT_SERVICE, false),
            EventField::Kind => (at::EVENT_KIND, false),
            EventField::Type => (at::EVENT_TYPE, false),
            EventField::Priority => (at::EVENT_PRIORITY, false),
            EventField::Pid => (at::EVENT_PID, false),
            EventField::Tid => (at::EVENT_TID, false),
            EventField::Uid => (at::EVENT_UID, false),
            EventField::Cpu => (at::EVENT_CPU, false),
            EventField::Size => (at::EVENT_SIZE, false),
        };
        let bytes = if wide { 8 } else { 4 };
        let place = &mut self.event[at as usize..][..bytes];
        place.copy_from_slice(&number.to_le_bytes()[..bytes]);
    }

    /// Sets an attribute of the channel.
    pub fn set_attribute(&mut self, number: u32, value: i64) {
        if let Some(place) = self.attributes.get_mut(number as usize) {
            *place = value;
        }
    }

    /// Sets a property of a sink, which exists from then on. Its id is initially its number.
    pub fn set_sink(&mut self, number: u32, field: SinkField, value: i64) {
        let sink = self.sinks.entry(number).or_insert_with(|| Sink {
            id: u64::from(number),
            age_ns: 0,
            attributes: vec![0; ATTRIBUTES as usize],
        });
        match field {
            SinkField::Id => sink.id = value as u64,
            SinkField::Age => sink.age_ns = value as u64,
            SinkField::Attribute(at) => {
                if let Some(place) = sink.attributes.get_mut(at as usize) {
                    *place = value;
                }
            }
        }
    }

    /// The sinks that exist, one bit each.
    pub fn sinks_present(&self) -> u64 {
        let numbers = self.sinks.keys().filter(|number| **number < SINKS);
        numbers.fold(0, |mask, number| mask | 1 << number)
    }

    /// The bytes of the table of sinks.
    pub fn sink_table(&self) -> Vec<u8> {
        let mut table = vec![0; at::SINK_TABLE_BYTES as usize];
        let rows = table.chunks_exact_mut(at::SINK_BYTES as usize).zip(0..);
        for (row, number) in rows {
            let Some(sink) = self.sinks.get(&number) else {
                continue;
            };
            let words = [sink.id, self.now_ns.wrapping_sub(sink.age_ns)].into_iter();
            let words = words.chain(sink.attributes.iter().map(|value| *value as u64));
            for (word, place) in words.zip(row.chunks_exact_mut(8)) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        table
    }

    /// The bytes of the channel's attributes.
    pub fn attribute_table(&self) -> Vec<u8> {
        let attributes = self.attributes.iter();
        attributes.flat_map(|value| value.to_le_bytes()).collect()
    }

    /// The frame that a program in the kernel finds.
    pub fn frame(&self, fuel: u32) -> Vec<u8> {
        let mut frame = vec![0; at::BYTES as usize];
        let mut put = |offset: u32, bytes: &[u8]| {
            frame[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        put(at::NOW, &self.now_ns.to_le_bytes());
        put(at::RANDOM, &self.random.to_le_bytes());
        put(at::RESULT, &1i64.to_le_bytes());
        put(at::FUEL, &fuel.to_le_bytes());
        put(at::SINKS_PRESENT, &self.sinks_present().to_le_bytes());
        frame
    }

    /// Copies the setting into the memory of a program in user space.
    pub fn put_into(&self, memory: &mut Memory) {
        memory.set_event(&self.event);
        memory.set_now(self.now_ns);
        memory.set_random(self.random);
        memory.set_sinks_present(self.sinks_present());
        for (number, value) in (0..).zip(&self.attributes) {
            memory.set_attribute(number, *value);
        }
        let table = self.sink_table();
        let place = memory.sinks_mut();
        let bytes = place.len().min(table.len());
        place[..bytes].copy_from_slice(&table[..bytes]);
    }
}
