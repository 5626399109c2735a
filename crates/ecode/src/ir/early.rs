//! Programs that can decide before their event is complete.
//!
//! Such a program only decides: it reads data and attributes of the event that whoever raises it
//! knows from the beginning, its own state, and nothing that takes time to find out; it changes
//! nothing but its state, and asks for nothing. The kernel side can then refuse an event before it
//! has a time stamp, an id, and the data that the program does not read (bpf/event/sole.h).

use super::{Address, Instruction, Op, Program, Region};
use crate::frame::at;

/// Words of the data that are told apart: those of a small event.
const WORDS: u32 = 5;
/// The first attribute of an event behind its id and its times.
const KNOWN: u32 = at::EVENT_SERVICE;

impl Program {
    /// If the program can decide early: a bit for each word (8 bytes) of the data that it reads.
    pub fn early(&self) -> Option<u32> {
        if self.output > 0 || self.input > WORDS * 8 {
            return None;
        }
        let mut words = 0;
        reads(&self.body, &mut words).then_some(words)
    }
}

/// Collects the words; returns false if the program must see the complete event.
fn reads(body: &[Instruction], words: &mut u32) -> bool {
    body.iter().all(|instruction| {
        let op = &instruction.op;
        let stays =
            !matches!(op, Op::Effect { .. }) && op.addresses().all(|at| is_known(op, at, words));
        stays && op.bodies().all(|inner| reads(inner, words))
    })
}

fn is_known(op: &Op, address: &Address, words: &mut u32) -> bool {
    match address.region {
        Region::State | Region::Locals => true,
        Region::Event => address.offset >= KNOWN && address.index.is_none(),
        // The reason of `drop()` is all that it may write.
        Region::Frame => address.offset == at::DROP && matches!(op, Op::Store { .. }),
        Region::Input => {
            let single = matches!(op, Op::Load { .. }) && address.index.is_none();
            *words |= match single {
                true => 1 << (address.offset / 8).min(WORDS - 1),
                false => (1 << WORDS) - 1,
            };
            true
        }
        Region::Output | Region::Attributes | Region::Sinks => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::compile;
    use crate::environment::Environment;
    use crate::source::Source;

    fn early(text: &str) -> Option<u32> {
        let environment = Environment {
            input: Some("u64 cookie; u32 bytes; u32 backlog; u16 family; u16 port".to_owned()),
            ..Environment::default()
        };
        let source = Source::new("test.ec", text);
        let compiled = compile(&source, &environment).expect("it compiles");
        compiled.program.early()
    }

    #[test]
    fn what_only_decides_names_the_words_that_it_reads() {
        assert_eq!(early("return port == 80;"), Some(4));
        assert_eq!(early("return bytes > 1000 || cookie == 7;"), Some(3));
        assert_eq!(early("static long n; return ++n % 100 == 0;"), Some(0));
        assert_eq!(early("return event.pid == 7 && event.kind == 1;"), Some(0));
        assert_eq!(early("if (bytes > 5) drop(3); return 1;"), Some(2));
    }

    #[test]
    fn what_needs_the_complete_event_or_does_more_is_not_early() {
        for text in [
            "return now() > 5;",
            "return event.time > 5;",
            "return event.id % 2;",
            "return event.time_left > 5;",
            "return random() % 2;",
            "count(1); return 1;",
            "defer(5); return 1;",
            "struct output { u64 a; }; output.a = bytes; return 1;",
        ] {
            assert_eq!(early(text), None, "{text}");
        }
    }
}
