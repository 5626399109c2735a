//! Handlers written in C (tests/ecode/compare/handwritten.bpf.c), loaded by libbpf: `ecalls bench
//! ecode` compares E-code with them. They belong to no core and are not attached.
//!
//! The kernel's verifier refuses two of them, whose instructions can still be counted.
//!
//! They are here, though only `ecalls-bench` uses them, because this is the only crate that uses
//! libbpf and compiles BPF programs. The linker leaves them out of other programs.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};

use crate::error::{Error, Result};

/// All handlers.
#[derive(Debug)]
pub struct Handwritten {
    object: Object,
    /// The instructions of those that are not loaded.
    refused: Vec<(&'static str, Vec<u64>)>,
}

/// The handlers that the verifier refuses.
const REFUSED: [&str; 2] = ["array", "long_array"];

/// The content of one of their maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The frame.
    Frame,
    /// The event.
    Event,
    /// Variables.
    State,
}

impl Handwritten {
    /// Loads them.
    ///
    /// # Errors
    /// Those of the system.
    pub fn load() -> Result<Handwritten> {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/handwritten.bpf.o"));
        let failed = |error| Error::from_bpf("loading handlers written in C", &error);
        let mut open = ObjectBuilder::default()
            .open_memory(bytes)
            .map_err(failed)?;
        let mut refused = Vec::new();
        for mut program in open.progs_mut() {
            if let Some(name) = REFUSED.into_iter().find(|name| program.name() == *name) {
                refused.push((name, program.insns().iter().map(word).collect()));
                program.set_autoload(false);
            }
        }
        let object = open.load().map_err(failed)?;
        Ok(Handwritten { object, refused })
    }

    /// Whether the verifier refuses this handler.
    pub fn is_refused(&self, name: &str) -> bool {
        REFUSED.contains(&name)
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let mut all = self.object.progs_mut();
        let found = all.find(|program| program.name() == name);
        found.ok_or(Error::Closed("the handler in C"))
    }

    /// The instructions of a handler.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn instructions(&self, name: &str) -> Result<Vec<u64>> {
        if let Some((_, instructions)) = self.refused.iter().find(|(of, _)| *of == name) {
            return Ok(linked(instructions));
        }
        Ok(self.program(name)?.insns().iter().map(word).collect())
    }

    /// The map to which this descriptor in an instruction refers.
    pub fn content(&self, descriptor: i32) -> Option<Content> {
        match descriptor {
            FRAME => return Some(Content::Frame),
            EVENT => return Some(Content::Event),
            _ => {}
        }
        let mut maps = self.object.maps();
        let map = maps.find(|map| map.as_fd().as_raw_fd() == descriptor)?;
        Some(match map.name().to_str() {
            Some("frames") => Content::Frame,
            Some("events") => Content::Event,
            _ => Content::State,
        })
    }

    /// Sets the event that they read.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_event(&self, event: &[u8]) -> Result<()> {
        let mut maps = self.object.maps();
        let map = maps.find(|map| map.name() == "events");
        let map = map.ok_or(Error::Closed("the event of handlers in C"))?;
        let mut value = event.to_vec();
        value.resize(map.value_size() as usize, 0);
        map.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|error| Error::from_bpf("setting the event of handlers in C", &error))
    }

    /// Runs a handler.
    ///
    /// # Errors
    /// Those of the system.
    pub fn run(&self, name: &str) -> Result<()> {
        let program = self.program(name)?;
        program
            .test_run(ProgramInput::default())
            .map(|_| ())
            .map_err(|error| Error::from_bpf("running a handler in C", &error))
    }

    /// The number of runs so far and their time, ns, while statistics are enabled.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counted(&self, name: &str) -> Result<(u64, u64)> {
        let info = crate::kernel::sys::program_info(self.program(name)?.as_fd())?;
        Ok((info.run_cnt, info.run_time_ns))
    }
}

/// Values instead of descriptors, in programs that are not loaded.
const FRAME: i32 = -1;
const EVENT: i32 = -2;

fn word(one: &libbpf_sys::bpf_insn) -> u64 {
    u64::from(one.code)
        | u64::from(one.dst_reg()) << 8
        | u64::from(one.src_reg()) << 12
        | u64::from(one.off.cast_unsigned()) << 16
        | u64::from(one.imm.cast_unsigned()) << 32
}

/// Inserts the maps that a program uses first, in their order: its frame and its event.
fn linked(instructions: &[u64]) -> Vec<u64> {
    const WIDE: u64 = 0x18;
    const SOURCE_MAP: u64 = 1 << 12;
    let mut maps = [FRAME, EVENT].into_iter();
    let mut link = |word: &u64| match word & 0xff {
        WIDE => {
            let map = maps.next().unwrap_or_default().cast_unsigned();
            word & 0xfff | SOURCE_MAP | u64::from(map) << 32
        }
        _ => *word,
    };
    instructions.iter().map(&mut link).collect()
}
