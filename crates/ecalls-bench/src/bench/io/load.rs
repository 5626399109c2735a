//! The connections of a server: busy ones, and idle ones.
//!
//! The busy ones ask all at once, and ask again once all have their replies: a closed loop, in
//! which the server has several requests for each turn of its own loop. All replies have the same
//! length.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

use super::super::timing::os;
use super::site::Server;
use crate::exit::Failure;

const BUSY: usize = 16;
/// So many rounds are not counted.
const WARM_UP: usize = 50;
/// A first reply is whole once nothing follows for so long.
const PAUSE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
const DESCRIPTORS: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) cpu_us_per_request: f64,
    pub(super) replies_per_s: f64,
}

/// For this process and the servers; without the right to it, connecting fails and says so.
pub(super) fn allow_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS);
    limit.current = Some(most.min(DESCRIPTORS));
    let _ = setrlimit(Resource::Nofile, limit);
}

pub(super) fn measure(
    server: &Server,
    request: &str,
    idle: usize,
    seconds: f64,
) -> Result<Found, Failure> {
    let failed = |error| os(&format!("asking {}", server.name), error);
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, server.port));
    let _idle = (0..idle)
        .map(|_| connect())
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let mut busy = (0..BUSY)
        .map(|_| connect())
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let bytes = length(&mut busy[0], request).map_err(failed)?;
    for stream in &busy {
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    }
    let mut reply = vec![0; bytes];
    let mut round = || {
        for stream in &mut busy {
            stream.write_all(request.as_bytes())?;
        }
        busy.iter_mut()
            .try_for_each(|stream| stream.read_exact(&mut reply))
    };
    for _ in 0..WARM_UP {
        round().map_err(failed)?;
    }
    let (before_ns, begun) = (cpu_ns(server.pid())?, Instant::now());
    let mut rounds = 0_u32;
    while begun.elapsed().as_secs_f64() < seconds {
        round().map_err(failed)?;
        rounds += 1;
    }
    let requests = f64::from(rounds) * BUSY as f64;
    Ok(Found {
        replies_per_s: requests / begun.elapsed().as_secs_f64(),
        cpu_us_per_request: (cpu_ns(server.pid())? - before_ns) / 1e3 / requests,
    })
}

/// The length of a reply.
fn length(stream: &mut TcpStream, request: &str) -> std::io::Result<usize> {
    stream.write_all(request.as_bytes())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut some = [0; 8192];
    let mut bytes = stream.read(&mut some)?;
    stream.set_read_timeout(Some(PAUSE))?;
    while let Ok(more) = stream.read(&mut some) {
        if more == 0 {
            break;
        }
        bytes += more;
    }
    if bytes == 0 {
        return Err(std::io::Error::other("it closed the connection"));
    }
    Ok(bytes)
}

/// Processor time of all threads of a process.
fn cpu_ns(pid: u32) -> Result<f64, Failure> {
    let folder = format!("/proc/{pid}/task");
    let failed = |error| os(&format!("reading {folder}"), error);
    let mut sum = 0.0;
    for thread in fs::read_dir(&folder).map_err(failed)? {
        let path = thread.map_err(failed)?.path().join("schedstat");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let ns: f64 = text
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0.0);
        sum += ns;
    }
    Ok(sum)
}
