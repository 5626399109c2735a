//! The kernel's reason for the refusal of an object file: the one line of libbpf's report that has
//! it.
//!
//! Two kinds of refusal look alike to a caller. Either the kernel lacks a feature that a program
//! uses (a tracepoint, a function, a kind of program): then libbpf reports it, or the kernel
//! reports nothing. Or the kernel has everything, and its verifier rejects the program: then there
//! is a log of each instruction, followed by the reason. The second is not a missing feature, and
//! must not be reported as one.

use std::cell::RefCell;

/// Longest stored reason, bytes.
const MAX: usize = 200;

/// The line with which libbpf begins the verifier's log.
const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";

thread_local! {
    /// The verifier's reason since the last [`take`], for the object that this thread loads.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records a message of libbpf; only the first one from a verifier counts.
pub(crate) fn note(message: &str) {
    let Some(reason) = reason(message) else {
        return;
    };
    SAID.with_borrow_mut(|said| {
        said.get_or_insert(reason);
    });
}

/// The verifier's reason since the last call; `None` if it reported none.
pub(crate) fn take() -> Option<String> {
    SAID.take()
}

/// The reason in a message with a verifier's log: the last line that is not part of its trace.
fn reason(message: &str) -> Option<String> {
    let (head, rest) = message.split_once(BEGIN)?;
    let log = rest.split_once(END).map_or(rest, |(log, _)| log);
    let line = log.lines().rev().map(str::trim).find(|line| is_said(line));
    let program = head
        .trim()
        .trim_start_matches("libbpf: ")
        .trim_end_matches(':');
    let mut text = format!("{program}: {}", line.unwrap_or("it does not say why"));
    if text.len() > MAX {
        let end = (0..=MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    Some(text)
}

/// Whether a line is a message: not an instruction, a state, a source line or a figure.
fn is_said(line: &str) -> bool {
    let number = line.split_once(':').map_or("", |(number, _)| number);
    let is_instruction = number
        .split(' ')
        .next_back()
        .is_some_and(|last| !last.is_empty() && last.bytes().all(|letter| letter.is_ascii_digit()));
    let traces = [
        "processed ",
        "verification time",
        "stack depth",
        "func#",
        ";",
        "R0",
        "R1=",
        "R10=",
        "caller:",
        "callee:",
        "frame",
        "from ",
        "mark_precise",
        "last_idx",
        "regs=",
        "parent ",
    ];
    !line.is_empty() && !is_instruction && !traces.iter().any(|trace| line.starts_with(trace))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "libbpf: prog 'call_generic': -- BEGIN PROG LOAD LOG --\n\
        0: R1=ctx() R10=fp0\n\
        ; u32 zero = 0; @ generic.h:100\n\
        5129: (63) *(u32 *)(r10 -12) = r1     ; R1=0 R10=fp0 fp-16=0000????\n\
        callee:\n frame1: R1=map_value(map=generic_calls,ks=4,vs=280) R10=fp0\n\
        624: (71) r2 = *(u8 *)(r1 +8)\n\
        same insn cannot be used with different pointers\n\
        processed 18665 insns (limit 1000000) max_states_per_insn 64\n\
        -- END PROG LOAD LOG --\n";

    #[test]
    fn the_verifiers_reason_is_the_line_behind_its_trace() {
        assert_eq!(
            reason(LOG).as_deref(),
            Some("prog 'call_generic': same insn cannot be used with different pointers")
        );
    }

    #[test]
    fn what_is_missing_is_no_verdict() {
        for message in [
            "libbpf: prog 'downcall_prctl': failed to find kernel BTF type ID of 'x': -ESRCH\n",
            "libbpf: prog 'a': BPF program load failed: -EPERM\n",
        ] {
            assert_eq!(reason(message), None, "{message}");
        }
    }

    #[test]
    fn the_first_verdict_counts_and_is_taken_once() {
        note("libbpf: failed to load object 'downcall_run'");
        note(LOG);
        note(&LOG.replace("same insn", "another"));
        assert!(take().is_some_and(|said| said.contains("same insn")));
        assert_eq!(take(), None);
    }

    #[test]
    fn long_and_empty_logs_have_a_reason_too() {
        let long = format!(
            "libbpf: prog 'a': {BEGIN}\n{}\n{END}",
            "\u{e9}x".repeat(300)
        );
        assert!(reason(&long).is_some_and(|said| said.len() <= MAX && said.len() > MAX - 4));
        let empty = format!("libbpf: prog 'a': {BEGIN}\nprocessed 1 insns\n{END}");
        assert_eq!(
            reason(&empty).as_deref(),
            Some("prog 'a': it does not say why")
        );
    }
}
