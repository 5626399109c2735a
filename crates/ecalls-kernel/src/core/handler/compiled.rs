//! The compiled form of a text: of our own compiler, or of one that is not trusted.

use std::mem::{offset_of, size_of};
use std::os::fd::OwnedFd;

use ::ecode::bpf::{Map, Object, inspect};
use ::ecode::frame::at;
use ::ecode::ir::{Instruction, Op, Program, State};
use ::ecode::limits;
use ::ecode::source::Source;
use ecalls_abi::ecode::{ECODE_EARLY, Frame};
use ecalls_abi::version::DATA_MAX;

use super::Loader;
use crate::ecode::Maps;
use crate::error::{Error, Result};

const _: () = assert!(
    size_of::<Frame>() == at::BYTES as usize
        && offset_of!(Frame, now_ns) == at::NOW as usize
        && offset_of!(Frame, random) == at::RANDOM as usize
        && offset_of!(Frame, result) == at::RESULT as usize
        && offset_of!(Frame, fuel) == at::FUEL as usize
        && offset_of!(Frame, fault) == at::FAULT as usize
        && offset_of!(Frame, effects) == at::EFFECT_COUNT as usize
        && offset_of!(Frame, drop) == at::DROP as usize
        && offset_of!(Frame, channel) == at::CHANNEL as usize
        && offset_of!(Frame, sinks_present) == at::SINKS_PRESENT as usize
        && offset_of!(Frame, accepted) == at::ACCEPTED as usize
        && offset_of!(Frame, rejected) == at::REJECTED as usize
        && offset_of!(Frame, zero) == at::ZERO as usize
        && offset_of!(Frame, fault_place) == at::FAULT_PLACE as usize
        && offset_of!(Frame, effect) == at::EFFECT as usize
        && offset_of!(Frame, output) == at::OUTPUT as usize
        && offset_of!(Frame, locals) == at::LOCALS as usize,
    "the compiler and the dispatcher mean the same frame"
);

/// A compiled handler.
#[derive(Clone, Debug)]
pub struct Handler {
    /// `None`: the daemon compiles the text.
    object: Option<Object>,
    pub(crate) state: State,
    pub(crate) fuel: u32,
    pub(crate) output_bytes: u32,
    pub(crate) effects: bool,
    /// [`ECODE_EARLY`] and the words of the data that it reads, if it can decide early; else 0.
    pub(crate) early: u32,
    /// Whether it accepts sinks.
    pub(crate) accepts: bool,
    source: Source,
    attributes: Vec<String>,
}

/// The result of a compiler that is not trusted ([`Handler::of_untrusted`]).
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The program.
    pub object: Object,
    /// Its variables.
    pub state: State,
    /// The most iterations that it may make.
    pub fuel: u32,
    /// Bytes of its output.
    pub output_bytes: u32,
    /// Whether it requests effects.
    pub effects: bool,
    /// As [`early_word`] returns it.
    pub early: u32,
}

impl Handler {
    /// The compiled form of `source`: the program for user space, which has the handler's
    /// requirements, and the one for the kernel, unless the daemon is to compile the text.
    ///
    /// # Errors
    /// [`Error::LimitReached`] for an input or output that is larger than an event's data.
    pub fn new(program: &Program, object: Option<Object>, source: Source) -> Result<Handler> {
        let limits = [
            ("bytes of an event's data, which are `input`", program.input),
            (
                "bytes of an event's data, which `output` becomes",
                program.output,
            ),
        ];
        for (which, bytes) in limits {
            if bytes as usize > DATA_MAX {
                return Err(Error::LimitReached {
                    which,
                    limit: DATA_MAX,
                });
            }
        }
        Ok(Handler {
            object,
            state: program.state.clone(),
            fuel: program.fuel.max(1),
            output_bytes: program.output,
            effects: asks(&program.body),
            early: early_word(program),
            accepts: program.accepts,
            source,
            attributes: Vec::new(),
        })
    }

    /// Loads its program with these maps.
    pub(crate) fn load(&self, maps: &Maps<'_>, loader: Loader) -> Result<OwnedFd> {
        let object = self.object.as_ref().ok_or_else(|| Error::Invalid {
            what: "a handler in E-code",
            given: format!("{}, checked only", self.source.name),
            expected: "one with its program: the daemon alone compiles texts for others",
        })?;
        loader(object, maps)?.map_err(|refusal| Error::Ecode(refusal.render(object, &self.source)))
    }

    /// The same with the names of the attributes that the text uses, by number, for a process that
    /// compiles the text again.
    #[must_use]
    pub fn with_attributes(mut self, names: &[String]) -> Handler {
        self.attributes = names.to_vec();
        self
    }

    /// The compiled form of `source` by a compiler that is not trusted: in any case the handler
    /// reads and writes only its own data. `has_channel`: whether it has attributes.
    ///
    /// # Errors
    /// [`Error::Ecode`] if the program cannot be one of the compiler; see [`inspect`].
    pub fn of_untrusted(parts: Parts, source: Source, has_channel: bool) -> Result<Handler> {
        let mut maps = vec![Map::Frame, Map::Event];
        if has_channel {
            maps.push(Map::Attributes);
        }
        if !parts.state.bytes.is_empty() {
            maps.push(Map::State);
        }
        let state = &parts.state;
        let output = parts.output_bytes as usize;
        let fits = output <= DATA_MAX
            && parts.object.input_bytes as usize <= DATA_MAX
            && parts.object.state_bytes as usize == state.bytes.len()
            && state.bytes.len() <= limits::STATE_BYTES as usize
            && state.bytes.len().is_multiple_of(8);
        let checked = match fits {
            true => inspect(&parts.object, &maps).map_err(|foreign| foreign.to_string()),
            false => Err("its memory does not fit".to_owned()),
        };
        if let Err(why) = checked {
            let name = &source.name;
            let told = format!("{name}: the compiler's program is none that it can make: {why}");
            return Err(Error::Ecode(told));
        }
        // Nothing that such a program reads is another user's: the caller of an early filter sets
        // all data that this one says it does not read to 0. Attributes it would not set.
        let only_decides = !parts.effects
            && parts.output_bytes == 0
            && parts
                .object
                .maps
                .iter()
                .all(|used| used.map != Map::Attributes);
        Ok(Handler {
            early: if only_decides { parts.early } else { 0 },
            object: Some(parts.object),
            state: parts.state,
            fuel: parts.fuel.max(1),
            output_bytes: parts.output_bytes,
            effects: parts.effects,
            accepts: false,
            source,
            attributes: Vec::new(),
        })
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Names of attributes.
    pub(crate) fn attributes(&self) -> &[String] {
        &self.attributes
    }
}

/// For [`Parts::early`].
pub fn early_word(program: &Program) -> u32 {
    program.early().map_or(0, |words| ECODE_EARLY | words)
}

/// Whether an instruction requests an effect.
pub fn asks(body: &[Instruction]) -> bool {
    body.iter().any(|instruction| {
        let op = &instruction.op;
        matches!(op, Op::Effect { .. }) || op.bodies().any(asks)
    })
}

#[cfg(test)]
mod tests {
    use ::ecode::compile;
    use ::ecode::environment::Environment;

    use super::*;

    /// A handler whose compiler says that it decides early, whatever it does.
    fn said_to_be_early(text: &str) -> Handler {
        let environment = Environment {
            input: Some("u64 cookie; u32 bytes; u32 backlog".to_owned()),
            attributes: vec!["limit".to_owned()],
            ..Environment::default()
        };
        let source = Source::new("test.ec", text);
        let compiled = compile(&source, &environment).expect("it compiles");
        let parts = Parts {
            object: compiled.object,
            fuel: 1,
            output_bytes: compiled.program.output,
            effects: asks(&compiled.program.body),
            state: compiled.program.state,
            early: ECODE_EARLY,
        };
        Handler::of_untrusted(parts, source, true).expect("one of our forms")
    }

    #[test]
    fn handler_with_attributes_requests_or_output_is_never_early() {
        assert_eq!(said_to_be_early("return bytes > 5;").early, ECODE_EARLY);
        for text in [
            "return (long)bytes > attr(\"limit\");",
            "count(1); return 1;",
            "struct output { u64 a; }; output.a = bytes; return 1;",
        ] {
            assert_eq!(said_to_be_early(text).early, 0, "{text}");
        }
    }
}
