//! A worker's life: one text.

use std::os::fd::OwnedFd;

use ecalls_abi::version::DATA_MAX;
use ecalls_kernel::confined;
use ecalls_kernel::environment::of_parts;
use ecalls_kernel::handler::{Parts, asks, early_word};
use ecode::bpf::Options;
use ecode::data_format::output_format;
use ecode::lexer::{TokenKind, lex};
use ecode::source::Source;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::getpid;
use rustix::rand::GetRandomFlags;
use rustix::time::{ClockId, clock_gettime};
use tracing::error;

use super::cap;
use super::job::{Answer, JOB_MAX, Job, Made};
use crate::sandbox::Enforce;
use crate::sandbox::syscalls::{self, Filter};

/// Drops privileges, takes a text and calls `work`. Returns the process's exit status.
pub(super) fn one(
    jobs: &OwnedFd,
    filter: &Filter,
    enforce: Enforce,
    work: impl Fn(&Job, &OwnedFd) -> u8,
) -> u8 {
    if let Err(error) = confined::end_after(cap::CPU) {
        error!("the compiler: {error}");
        return 1;
    }
    let given_up = syscalls::end_only(getpid(), enforce).and_then(|()| filter.install());
    if let Err(error) = given_up {
        error!("the compiler: giving up system calls: {error}");
        return 1;
    }
    let mut bytes = vec![0; JOB_MAX];
    let count = match rustix::net::recv(jobs, &mut bytes[..], RecvFlags::empty()) {
        // The broker is gone.
        Ok((0, _)) | Err(_) => return 0,
        Ok((count, _)) => count,
    };
    match Job::of_bytes(&bytes[..count]) {
        Some(job) => work(&job, jobs),
        None => 1,
    }
}

/// Compiles a text and sends the answer. Returns the process's exit status.
pub fn compile(job: &Job, jobs: &OwnedFd) -> u8 {
    let sent = rustix::net::send(jobs, &answer(job).to_bytes(), SendFlags::NOSIGNAL);
    u8::from(sent.is_err())
}

pub fn answer(job: &Job) -> Answer {
    let result = made(job);
    Answer {
        serial: job.serial,
        cpu_us: time_spent(),
        result,
    }
}

/// CPU time of this process, us.
pub(super) fn time_spent() -> u32 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let us = spent.tv_sec * 1_000_000 + spent.tv_nsec / 1000;
    u32::try_from(us).unwrap_or(u32::MAX)
}

fn made(job: &Job) -> Result<Box<Made>, String> {
    let source = Source::new(&job.name, &job.text);
    let wrong = |why: String| format!("{}: error: {why}", job.name);
    if nesting(&source) > cap::NESTING {
        let most = cap::NESTING;
        let why = format!("an uploaded text has at most {most} brackets in each other");
        return Err(wrong(why));
    }
    let kinds = job.kinds.clone();
    let environment = of_parts(&job.input, kinds, job.has_channel, &job.attributes);
    let mut environment = environment.map_err(|error| wrong(error.to_string()))?;
    environment.services.clone_from(&job.services);
    let options = Options {
        secret: Some(secret().map_err(|error| wrong(error.to_string()))?),
    };
    let compiled = ecode::compile_with(&source, &environment, &options)
        .map_err(|told| told.render(&source).trim_end().to_owned())?;
    let program = compiled.program;
    let parts = Parts {
        object: compiled.object,
        fuel: if program.loop_depth > 0 {
            program.fuel
        } else {
            1
        },
        output_bytes: program.output,
        effects: asks(&program.body),
        early: early_word(&program),
        state: program.state,
    };
    cap::check(&parts).map_err(wrong)?;
    let output = output_format(&compiled.tree, DATA_MAX as u32).unwrap_or_default();
    if output.len() > cap::FORMAT_BYTES {
        return Err(wrong("`output` has too many fields".to_owned()));
    }
    Ok(Box::new(Made { parts, output }))
}

/// An unpredictable number that hides constants in the kernel's code.
fn secret() -> rustix::io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Depth of nested brackets.
fn nesting(source: &Source) -> usize {
    let (tokens, _) = lex(source);
    let (mut depth, mut most) = (0usize, 0);
    for token in &tokens {
        match token.kind {
            TokenKind::Symbol("(" | "[" | "{") => depth += 1,
            TokenKind::Symbol(")" | "]" | "}") => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> Job {
        Job {
            name: "filter.ec".to_owned(),
            text: text.to_owned(),
            input: "u64 load; u32 size".to_owned(),
            has_channel: true,
            ..Job::default()
        }
    }

    fn wrong(text: &str) -> String {
        made(&job(text)).expect_err("it is wrong")
    }

    #[test]
    fn a_text_becomes_a_program_that_hides_its_constants() {
        let text = "static long n; n++; count(1); return load > 0x12345678;";
        let program = made(&job(text)).expect("a program");
        let words = &program.parts.object.instructions;
        assert!(words.iter().all(|word| word >> 32 != 0x1234_5678));
        assert_eq!(program.parts.state.entries.len(), 1);
        assert!(program.parts.effects);
        let again = made(&job(text)).expect("a program");
        assert_ne!(&again.parts.object.instructions, words, "another secret");
    }

    #[test]
    fn caps_are_told_with_what_to_do() {
        let deep = format!("{}1{}", "(".repeat(40), ")".repeat(40));
        assert!(wrong(&deep).contains("at most 32 brackets"));
        let table = "static long seen[2000]; seen[size]++; return 1;";
        assert!(
            wrong(table).contains("keeps at most 8192"),
            "{}",
            wrong(table)
        );
        let long = "fuel 1000000; long s = 0; for (int i = 0; i < 999999; i++) s += i; return s;";
        let told = wrong(long);
        assert!(told.contains("hint: begin with `fuel "), "{told}");
        let many = "load ^= size * 3 + (load << 5); ".replace("load ^=", "x ^=");
        let many = format!("long x = load; {} return x;", many.repeat(400));
        let large = made(&job(&many));
        assert!(large.is_ok(), "{large:?}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let told = wrong("laod > 5");
        assert!(told.starts_with("filter.ec:1:1: error: "), "{told}");
        let mut without = job("count(1); return 1;");
        without.has_channel = false;
        let told = made(&without).expect_err("there are no counters");
        assert!(told.contains("counters are a channel's"), "{told}");
    }
}
