//! The load: requests at a rate, at random moments, each on a connection of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::{HOSTS, Outcome, PORT, address};

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

/// Sends requests by this policy for so many seconds, and prints of those that began after the
/// first `skipped` seconds: how many were done where they arrived, and their mean time in ms; the
/// same of those done on another host; how many were refused; mean and 99th percentile of all.
///
/// They go to the first host; if they are `spread`, every other one goes to any of the others.
pub(crate) fn load(words: &[&str]) -> Outcome<()> {
    let [policy, rate, seconds, skipped, is_spread] = words else {
        return Err("load POLICY RATE SECONDS SKIPPED SPREAD".into());
    };
    let (rate, seconds): (f64, u64) = (rate.parse()?, seconds.parse()?);
    let (skipped, is_spread): (u64, bool) = (skipped.parse()?, is_spread.parse()?);
    let (told, heard) = channel();
    let begin = Instant::now();
    let (mut state, mut at) = (0x9e37_79b9_7f4a_7c15_u64, Duration::ZERO);
    while at < Duration::from_secs(seconds) {
        std::thread::sleep((begin + at).saturating_duration_since(Instant::now()));
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let other = 2 + (state >> 33) as u8 % (HOSTS - 1);
        let host = if is_spread && state >> 63 == 1 {
            other
        } else {
            1
        };
        let (told, path) = (told.clone(), format!("/{policy}"));
        let counts = at >= Duration::from_secs(skipped);
        std::thread::spawn(move || {
            let asked = Instant::now();
            let body = get(&address(host), &path).unwrap_or_default();
            if counts {
                let _ = told.send((body, asked.elapsed()));
            }
        });
        // Exponentially distributed pauses.
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        at += Duration::from_secs_f64(-(1.0 - uniform).ln() / rate);
    }
    drop(told);
    let answers: Vec<(String, Duration)> = heard.into_iter().collect();
    let mut all = Vec::new();
    for place in ["here", "there"] {
        let times = answers.iter().filter(|(body, _)| body == place);
        let times: Vec<f64> = times.map(|(_, time)| time.as_secs_f64() * 1e3).collect();
        print!("{} {:.1} ", times.len(), mean(&times));
        all.extend(times);
    }
    all.sort_by(f64::total_cmp);
    let last = all.len().saturating_sub(1);
    let p99 = all.get(last * 99 / 100).copied().unwrap_or(f64::NAN);
    println!("{} {:.1} {p99:.1}", answers.len() - all.len(), mean(&all));
    Ok(())
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}
