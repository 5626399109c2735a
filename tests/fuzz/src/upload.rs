//! Texts in E-code on their way to the daemon (abi/upload.h), and what the daemon's compiler
//! answers: that process has read a stranger's text, and may say anything.
//!
//! Always: a file that is accepted is exactly what its names and its text look like when they are
//! written; and whatever a compiler answers, it is refused, or a program that the inspector has
//! looked at.

use ecalls_abi::upload::{FILE_MAX, Upload, parse};
use ecalls_abi::zerocopy::IntoBytes;
use ecalls_kernel::handler::Handler;
use ecallsd::compiler::cap;
use ecallsd::compiler::job::{Answer, Job};
use ecode::source::Source;

pub(crate) fn run(bytes: &[u8]) {
    match parse(bytes) {
        Ok((upload, text)) => {
            assert!(bytes.len() <= FILE_MAX);
            let names: Vec<&str> = upload.attributes().collect();
            let again = Upload::new(upload.name(), &names, text).expect("it was accepted");
            assert_eq!(again.as_bytes(), upload.as_bytes());
            assert_eq!(&bytes[bytes.len() - text.len()..], text.as_bytes());
            assert_eq!(upload.as_bytes().len() + text.len(), bytes.len());
        }
        Err(wrong) => assert!(!wrong.to_string().is_empty()),
    }
    if let Some(job) = Job::of_bytes(bytes) {
        assert_eq!(job.to_bytes(), bytes);
    }
    let answer = Answer::of_bytes(bytes).and_then(|answer| answer.result.ok());
    if let Some(made) = answer
        && cap::check(&made.parts).is_ok()
    {
        let handler = Handler::of_untrusted(made.parts, Source::new("fuzz", ""), true);
        drop(handler);
    }
}
