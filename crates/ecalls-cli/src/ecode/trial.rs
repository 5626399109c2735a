//! One program tried out, in user space or in the running kernel: a [`Setting`] is what it finds,
//! an [`Ending`] what it leaves. Both places get the same bytes.

use std::time::Instant;

use ::ecode::Compiled;
use ::ecode::frame::at;
use ::ecode::limits::{ATTRIBUTES, SINKS};
use ::ecode::run::{Effect, Machine, Memory};
use ::ecode::source::Source;
use ::ecode::tree::{EventField, Fault};
use ::ecode::types::Type;
use ecalls_kernel::ecode::{Memory as KernelMemory, Trial as KernelTrial};
use serde_json::Value;

use super::{text, value};
use crate::exit::{Code, Failure};
use crate::output::note;

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum On {
    /// In this process
    User,
    /// In the running kernel; needs root
    Kernel,
}

/// What a program finds.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Header and data of the event.
    event: Vec<u8>,
    now_ns: u64,
    random: u64,
    attributes: Vec<i64>,
    sinks: Vec<Sink>,
}

#[derive(Clone, Debug)]
struct Sink {
    id: u64,
    told_ns: u64,
    attributes: Vec<i64>,
}

/// What a program leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) result: i64,
    pub(crate) fault: Option<Fault>,
    pub(crate) dropped: Option<u32>,
    pub(crate) fuel_used: u32,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    pub(crate) effects: Vec<Effect>,
    pub(crate) output: Vec<u8>,
    pub(crate) state: Vec<u8>,
}

/// The time at which a trial takes place, unless the event says otherwise: one second after the
/// beginning, so that there is a past.
const NOW_NS: u64 = 1_000_000_000;
/// What `random()` goes on from, so that a trial can be repeated.
const RANDOM: u64 = 0x9e37_79b9_7f4a_7c15;

impl Setting {
    /// An event that is all zeros.
    pub(crate) fn new(compiled: &Compiled) -> Setting {
        let input = compiled.program.input.max(declared_input(compiled));
        let mut setting = Setting {
            event: vec![0; (at::EVENT_DATA + input) as usize],
            now_ns: NOW_NS,
            random: RANDOM,
            attributes: vec![0; ATTRIBUTES as usize],
            sinks: Vec::new(),
        };
        setting.put(EventField::Size, i64::from(input));
        setting.put(EventField::Time, NOW_NS as i64);
        setting
    }

    /// Takes what `--event` says: `{"input": {...}, "event": {"pid": 1}, "now": 5, "random": 7,
    /// "attributes": {"load": 3}, "sinks": [{"id": 1, "age": 5, "load": 3}]}`; an object without
    /// any of these is the input.
    pub(crate) fn take(
        &mut self,
        compiled: &Compiled,
        names: &Names<'_>,
        given: &Value,
    ) -> Result<(), String> {
        const PARTS: [&str; 6] = ["input", "event", "now", "random", "attributes", "sinks"];
        let Value::Object(parts) = given else {
            return Err(format!("{given} is no JSON object"));
        };
        if !parts.keys().any(|key| PARTS.contains(&key.as_str())) {
            return self.take_input(compiled, given);
        }
        for (part, given) in parts {
            match part.as_str() {
                "input" => self.take_input(compiled, given),
                "event" => self.take_event(given),
                "now" => unsigned(given).map(|now| self.now_ns = now),
                "random" => unsigned(given).map(|random| self.random = random.max(1)),
                "attributes" => fill(names.attributes, given, &mut self.attributes, &[]),
                "sinks" => self.take_sinks(names.sinks, given),
                _ => Err(format!("no such part; there are: {}", PARTS.join(", "))),
            }
            .map_err(|error| format!("{part}: {error}"))?;
        }
        Ok(())
    }

    fn take_input(&mut self, compiled: &Compiled, given: &Value) -> Result<(), String> {
        let tree = &compiled.tree;
        let Some(input) = tree.input else {
            return match given {
                Value::Object(fields) if fields.is_empty() => Ok(()),
                _ => Err("the text has no input: declare struct input, or name a service".into()),
            };
        };
        let ty = &tree.variables[input.0 as usize].ty;
        let data = &mut self.event[at::EVENT_DATA as usize..];
        value::write(&tree.structs, ty, given, data)
    }

    fn take_event(&mut self, given: &Value) -> Result<(), String> {
        let Value::Object(fields) = given else {
            return Err(format!("{given} is no JSON object"));
        };
        for (name, given) in fields {
            let field = EventField::ALL.iter().find(|(known, _)| known == name);
            let Some((_, field)) = field else {
                let known: Vec<_> = EventField::ALL.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "'{name}' is no field; there are: {}",
                    known.join(", ")
                ));
            };
            let number = unsigned(given).map_err(|error| format!("{name}: {error}"))?;
            self.put(*field, number as i64);
        }
        Ok(())
    }

    /// Sets a field of the event's header; `time_left` sets the deadline.
    pub(crate) fn put(&mut self, field: EventField, number: i64) {
        let (at, wide) = match field {
            EventField::Id => (at::EVENT_ID, true),
            EventField::Time => (at::EVENT_TIME, true),
            EventField::Deadline => (at::EVENT_DEADLINE, true),
            EventField::TimeLeft => {
                let deadline = self.now_ns.wrapping_add_signed(number);
                return self.put(EventField::Deadline, deadline as i64);
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
    pub(crate) fn attribute(&mut self, number: u32, value: i64) {
        if let Some(place) = self.attributes.get_mut(number as usize) {
            *place = value;
        }
    }

    /// The event's data, to be written.
    pub(crate) fn data(&mut self) -> &mut [u8] {
        &mut self.event[at::EVENT_DATA as usize..]
    }

    fn take_sinks(&mut self, names: &[String], given: &Value) -> Result<(), String> {
        let Value::Array(sinks) = given else {
            return Err(format!("{given} is no JSON array"));
        };
        if sinks.len() > SINKS as usize {
            return Err(format!("{} sinks, but {SINKS} fit", sinks.len()));
        }
        for (number, given) in sinks.iter().enumerate() {
            let mut attributes = vec![0; ATTRIBUTES as usize];
            fill(names, given, &mut attributes, &["id", "age"])?;
            let told = |name| given.get(name).map_or(Ok(0), unsigned);
            self.sinks.push(Sink {
                id: given.get("id").map_or(Ok(number as u64), unsigned)?,
                told_ns: self.now_ns.saturating_sub(told("age")?),
                attributes,
            });
        }
        Ok(())
    }

    fn sinks_present(&self) -> u64 {
        (0..self.sinks.len()).fold(0, |mask, at| mask | 1 << at)
    }

    /// The table of sinks as it lies in memory.
    fn sink_table(&self) -> Vec<u8> {
        let mut table = vec![0; at::SINK_TABLE_BYTES as usize];
        for (sink, row) in self
            .sinks
            .iter()
            .zip(table.chunks_exact_mut(at::SINK_BYTES as usize))
        {
            let words = [sink.id, sink.told_ns].into_iter();
            let words = words.chain(sink.attributes.iter().map(|value| *value as u64));
            for (word, place) in words.zip(row.chunks_exact_mut(8)) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        table
    }
}

/// Bytes of the input as the text or the service declares it.
fn declared_input(compiled: &Compiled) -> u32 {
    let tree = &compiled.tree;
    let ty = tree.input.map(|input| &tree.variables[input.0 as usize].ty);
    ty.and_then(|ty: &Type| tree.structs.size(ty)).unwrap_or(0)
}

/// Names that stand for numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) attributes: &'a [String],
    pub(crate) sinks: &'a [String],
}

fn unsigned(given: &Value) -> Result<u64, String> {
    let number = given
        .as_u64()
        .or_else(|| given.as_i64().map(|number| number as u64));
    number.ok_or_else(|| format!("{given} is no whole number"))
}

/// Attributes by name. `others` may be there, too.
fn fill(
    names: &[String],
    given: &Value,
    values: &mut [i64],
    others: &[&str],
) -> Result<(), String> {
    let Value::Object(given) = given else {
        return Err(format!("{given} is no JSON object"));
    };
    for (name, given) in given {
        match names.iter().position(|known| known == name) {
            Some(at) if at < values.len() => {
                values[at] = unsigned(given).map_err(|error| format!("{name}: {error}"))? as i64;
            }
            None if others.contains(&name.as_str()) => {}
            _ => {
                let names = names.join(", ");
                return Err(format!("'{name}' is no attribute; there are: {names}"));
            }
        }
    }
    Ok(())
}

/// A program in one of the two places, with the state that it keeps from run to run.
#[derive(Debug)]
pub(crate) enum Trial {
    User(Machine, Box<Memory>),
    Kernel(Box<KernelTrial>, Box<KernelMemory>),
}

impl Trial {
    /// Makes a program ready. The kernel's refusal is told with the line of the text.
    pub(crate) fn new(on: On, source: &Source, compiled: &Compiled) -> Result<Trial, Failure> {
        let program = &compiled.program;
        if on == On::User {
            let memory = Box::new(Memory::new(program));
            return Ok(Trial::User(Machine::new(program), memory));
        }
        let object = text::object(source, compiled)?;
        let trial = KernelTrial::load(&object)?.map_err(|refusal| {
            note(refusal.render(&object, source));
            Failure::new(
                Code::Failed,
                format!("{}: the kernel refuses it", source.name),
            )
        })?;
        let memory = KernelMemory {
            frame: vec![0; at::BYTES as usize],
            event: Vec::new(),
            state: program.state.bytes.clone(),
            attributes: Vec::new(),
            sinks: Vec::new(),
        };
        Ok(Trial::Kernel(Box::new(trial), Box::new(memory)))
    }

    /// Puts the setting in place.
    pub(crate) fn set(&mut self, setting: &Setting, fuel: u32) {
        match self {
            Trial::User(_, memory) => {
                memory.set_event(&setting.event);
                memory.set_now(setting.now_ns);
                memory.set_random(setting.random);
                memory.set_sinks_present(setting.sinks_present());
                for (number, value) in (0..).zip(&setting.attributes) {
                    memory.set_attribute(number, *value);
                }
                let table = setting.sink_table();
                let place = memory.sinks_mut();
                let bytes = place.len().min(table.len());
                place[..bytes].copy_from_slice(&table[..bytes]);
            }
            Trial::Kernel(_, memory) => {
                memory.event.clone_from(&setting.event);
                let attributes = setting.attributes.iter();
                memory.attributes = attributes.flat_map(|value| value.to_le_bytes()).collect();
                memory.sinks = setting.sink_table();
                let frame = &mut memory.frame;
                frame.fill(0);
                put(frame, at::NOW, &setting.now_ns.to_le_bytes());
                put(frame, at::RANDOM, &setting.random.to_le_bytes());
                put(frame, at::RESULT, &1i64.to_le_bytes());
                put(frame, at::FUEL, &fuel.to_le_bytes());
                put(
                    frame,
                    at::SINKS_PRESENT,
                    &setting.sinks_present().to_le_bytes(),
                );
            }
        }
    }

    /// Runs it once on what was set.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        match self {
            Trial::User(machine, memory) => {
                // What went wrong is in the memory, too.
                let _ = machine.run(memory);
                Ok(())
            }
            Trial::Kernel(trial, memory) => Ok(trial.run(memory)?),
        }
    }

    /// Runs it so many times on this setting, with the state kept. How long a run takes, ns: in the
    /// kernel, by the kernel's own count.
    pub(crate) fn time(&mut self, setting: &Setting, fuel: u32, runs: u64) -> Result<u64, Failure> {
        match self {
            Trial::User(machine, memory) => {
                let begin = Instant::now();
                for _ in 0..runs {
                    let _ = machine.run(memory);
                }
                let took_ns = begin.elapsed().as_nanos() / u128::from(runs);
                Ok(u64::try_from(took_ns).unwrap_or(u64::MAX))
            }
            Trial::Kernel(..) => {
                let _counted = ecalls_kernel::enable_statistics()?;
                let before = self.counted()?;
                for _ in 0..runs {
                    self.set(setting, fuel);
                    self.run()?;
                }
                let (count, ns) = self.counted()?;
                Ok((ns - before.1) / (count - before.0).max(1))
            }
        }
    }

    /// Runs and nanoseconds that the kernel has counted.
    fn counted(&self) -> Result<(u64, u64), Failure> {
        match self {
            Trial::User(..) => Ok((0, 0)),
            Trial::Kernel(trial, _) => Ok(trial.counted()?),
        }
    }

    /// What the last run left.
    pub(crate) fn ending(&self, compiled: &Compiled) -> Ending {
        let fuel = compiled.program.fuel;
        match self {
            Trial::User(_, memory) => Ending {
                result: memory.result(),
                fault: memory.fault(),
                dropped: memory.drop_reason().map(u32::from),
                fuel_used: fuel - memory.fuel(),
                accepted: memory.judged().0,
                rejected: memory.judged().1,
                effects: memory.effects().collect(),
                output: memory.output().to_vec(),
                state: memory.state().to_vec(),
            },
            Trial::Kernel(_, memory) => {
                let frame = &memory.frame;
                let output = compiled.program.output as usize;
                Ending {
                    result: word(frame, at::RESULT) as i64,
                    fault: Fault::ALL
                        .into_iter()
                        .find(|fault| *fault as u32 == half(frame, at::FAULT)),
                    dropped: half(frame, at::DROP).checked_sub(1),
                    fuel_used: fuel - half(frame, at::FUEL),
                    accepted: word(frame, at::ACCEPTED),
                    rejected: word(frame, at::REJECTED),
                    effects: effects(frame),
                    output: frame[at::OUTPUT as usize..][..output].to_vec(),
                    state: memory.state.clone(),
                }
            }
        }
    }
}

fn put(frame: &mut [u8], at: u32, bytes: &[u8]) {
    frame[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn word(frame: &[u8], at: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&frame[at as usize..][..8]);
    u64::from_le_bytes(bytes)
}

fn half(frame: &[u8], at: u32) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[at as usize..][..4]);
    u32::from_le_bytes(bytes)
}

fn effects(frame: &[u8]) -> Vec<Effect> {
    let count = half(frame, at::EFFECT_COUNT).min(::ecode::limits::EFFECTS);
    let read = |number| {
        let begin = at::EFFECT + number * at::EFFECT_BYTES;
        Effect {
            kind: half(frame, begin),
            number: half(frame, begin + 4),
            values: [8, 16, 24].map(|offset| word(frame, begin + offset)),
        }
    };
    (0..count).map(read).collect()
}
