//! The cache beside memcached: the same requests, the same replies, by the process and, as root, by
//! the kernel.

#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use ecalls_answer::Cache;
use limit::Running;

const PATIENCE: Duration = Duration::from_secs(20);

/// Requests, and how many replies each has. (Of several keys memcached 1.6 sends the end apart.)
const REQUESTS: &[(&[u8], usize)] = &[
    (b"get missing\r\n", 1),
    (b"set key 7 0 5\r\nvalue\r\n", 1),
    (b"get key\r\n", 1),
    (b"get key\r\n", 1),
    (b"get key\r\n", 1),
    (b"get  key\r\n", 1),
    (b"set key 8 0 6 noreply\r\nsecond\r\n", 0),
    // What the kernel answers overtakes what waits for the process: this one waits behind it.
    (b"get missing\r\n", 1),
    (b"get key\r\n", 1),
    (b"get key\r\n", 1),
    (b"set other 0 0 0\r\n\r\n", 1),
    (b"get other\r\n", 1),
    (b"get other\r\n", 1),
    (b"delete key\r\n", 1),
    (b"get key\r\n", 1),
    (b"get key\r\n", 1),
    (b"delete key\r\n", 1),
    (b"nonsense\r\n", 1),
];

/// Asks, and returns the replies.
fn ask(client: &UdpSocket, id: u16, text: &[u8], replies: usize) -> Vec<Vec<u8>> {
    let [a, b] = id.to_be_bytes();
    let request = [&[a, b, 0, 0, 0, 1, 0, 0][..], text].concat();
    client.send(&request).expect("sent");
    let received = (0..replies).map(|_| {
        let mut bytes = [0; 2000];
        let count = client.recv(&mut bytes).expect("a reply");
        bytes[..count].to_vec()
    });
    received.collect()
}

fn client(port: u16) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.connect(("127.0.0.1", port)).expect("an address");
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    client
}

/// Ends the cache, also when the test fails.
struct Stop<'a>(&'a UdpSocket);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(b"");
    }
}

/// A port that nobody has.
fn free() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("it is bound").port()
}

#[test]
fn replies_are_those_of_memcached() {
    let is_root = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    let interface = is_root.then_some("lo");
    let at = "127.0.0.1:0".parse().expect("an address");
    let mut cache = Cache::open(at, interface, 1_000_000).expect("it begins");
    let ours = client(cache.address().expect("it is bound").port());
    let port = free();
    let mut command = Command::new("memcached");
    let words = ["-l", "127.0.0.1", "-p", "0", "-u", "root", "-t", "1", "-U"];
    command
        .args(words)
        .arg(port.to_string())
        .stdin(Stdio::null());
    if Command::new("memcached").arg("-V").output().is_err() {
        eprintln!("skipped: memcached is not installed");
        return;
    }
    let _memcached = Running::start(&mut command);
    let theirs = client(port);
    theirs
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a socket");
    let begun = std::time::Instant::now();
    while theirs.send(b"\0\0\0\0\0\x01\0\0get x\r\n").is_err() || theirs.recv(&mut [0; 99]).is_err()
    {
        assert!(begun.elapsed() < PATIENCE, "memcached does not answer");
    }
    theirs.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let (served, counts) = std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            let mut served = 0u64;
            loop {
                if cache.serve().expect("a request") == 0 {
                    return (served, cache.counts().expect("counts"));
                }
                served += 1;
            }
        });
        let stop = Stop(&ours);
        for (id, (text, replies)) in (300u16..).zip(REQUESTS) {
            let said = String::from_utf8_lossy(text).into_owned();
            let expected = ask(&theirs, id, text, *replies);
            assert_eq!(ask(&ours, id, text, *replies), expected, "{said:?}");
        }
        drop(stop);
        serving.join().expect("it ends")
    });
    let answered = counts.map_or(0, |counts| counts.answered);
    assert_eq!(served + answered, REQUESTS.len() as u64);
    // The second and third time, once after the key has changed, and the other key's second.
    assert_eq!(answered, if is_root { 4 } else { 0 });
}
