//! The load: requests at a rate, at random moments, each on a connection of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::{Outcome, PORT, address};

/// GET of a path; the body of the answer.
pub(crate) fn get(host: &str, path: &str) -> Outcome<String> {
    let mut stream = TcpStream::connect((host, PORT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    Ok(body.to_owned())
}

/// Sends requests to the first host, and prints how long they took.
pub(crate) fn load(rate: &str, seconds: &str) -> Outcome<()> {
    let (rate, seconds): (f64, u64) = (rate.parse()?, seconds.parse()?);
    let (told, heard) = channel();
    let begin = Instant::now();
    let (mut state, mut at) = (0x9e37_79b9_7f4a_7c15_u64, Duration::ZERO);
    while at < Duration::from_secs(seconds) {
        std::thread::sleep((begin + at).saturating_duration_since(Instant::now()));
        let told = told.clone();
        std::thread::spawn(move || {
            let asked = Instant::now();
            let body = get(&address(1), "/").unwrap_or_default();
            let _ = told.send((body, asked.elapsed()));
        });
        // Exponentially distributed pauses.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        at += Duration::from_secs_f64(-(1.0 - uniform).ln() / rate);
    }
    drop(told);
    let answers: Vec<(String, Duration)> = heard.into_iter().collect();
    let of = |wanted: &str| {
        let times = answers.iter().filter(|(body, _)| body == wanted);
        let times: Vec<f64> = times.map(|(_, time)| time.as_secs_f64() * 1e3).collect();
        let count = times.len();
        match count {
            0 => (0, "-".to_owned()),
            _ => (
                count,
                format!("{:.0}", times.iter().sum::<f64>() / count as f64),
            ),
        }
    };
    let ((here, here_ms), (there, there_ms)) = (of("here"), of("there"));
    let refused = answers.len() - here - there;
    println!("{here_ms:>12} {there_ms:>12} {refused:>8}");
    Ok(())
}
