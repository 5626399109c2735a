//! What an observer costs where a byte arrives: one over a TCP connection of this program, sent and
//! read, while nobody watches and with an observer of the receiving socket. Where the clock counts
//! instructions, the difference to the first row is what an event of the socket service takes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use ecalls::socket::Interest;
use ecalls::{Channel, SlotUse, Subscription};

use super::Bench;
use super::timing::{MEAN, Value, os, silent};
use crate::exit::{Failure, Outcome};

/// Bytes that arrive before the events are read, and times that each batch does so.
const BURST: u32 = 64;
const BURSTS: u32 = 50;
/// Room for a burst.
const RING: u32 = 128;
/// More than descriptors.
const SLOTS: u32 = 1024;

/// Measures all rows.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let mut pair = connection().map_err(|error| os("opening a connection", error))?;
    let bare = arrivals(bench, &mut pair, || ())?;
    let what = "a byte over TCP, sent and read, while nobody watches";
    let mut values = vec![Value::ns("arrival_bare", bare, MEAN, what)];
    let interest = Interest::default().data_only();
    bench.ecalls.watch_socket(&pair.1, &interest)?;
    for row in ROWS {
        values.push(row.measure(bench, &mut pair)?);
    }
    Ok(values)
}

/// Both ends of a connection over the loopback interface.
fn connection() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    near.set_nodelay(true)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}

/// A row, and how it is observed.
struct Row {
    name: &'static str,
    what: &'static str,
    text: Option<&'static str>,
    /// Slots of use READY that are not read, instead of a ring that is.
    told: bool,
    /// Another subscription gets each event into a ring.
    beside: bool,
}

/// Passes none of the events that a row measures.
const COUNTER: &str = "static long events; return ++events % 1000000000 == 0;";

const ROWS: &[Row] = &[
    Row {
        name: "arrival_memory",
        what: "the same while each event goes into a ring",
        text: None,
        told: false,
        beside: false,
    },
    Row {
        name: "arrival_filter",
        what: "the same while a filter in E-code refuses the events, by a counter",
        text: Some(COUNTER),
        told: false,
        beside: false,
    },
    Row {
        name: "arrival_field",
        what: "the same while a filter in E-code refuses the events, by a field",
        text: Some("local_port == 1"),
        told: false,
        beside: false,
    },
    Row {
        name: "arrival_told",
        what: "the same while a slot holds an event that was not read",
        text: None,
        told: true,
        beside: false,
    },
    Row {
        name: "arrival_pair",
        what: "the same while each event goes into a ring, and a filter in E-code refuses it for \
               another subscription",
        text: Some("local_port == 1"),
        told: false,
        beside: true,
    },
];

impl Row {
    fn measure(&self, bench: &Bench, pair: &mut (TcpStream, TcpStream)) -> Result<Value, Failure> {
        let channel = bench.ecalls.channel();
        let channel = match self.told {
            false => channel.ring(RING),
            true => channel.slots(SLOTS, SlotUse::Ready),
        };
        let mut channel = channel.open()?;
        let mut beside = self.beside.then(|| beside(bench)).transpose()?;
        let mut builder = bench.ecalls.subscribe("socket")?;
        if let Some(text) = self.text {
            builder = builder.ecode(text);
        }
        let subscription = builder.memory(&channel).install()?;
        let value = arrivals(bench, pair, || {
            while !self.told && channel.try_recv().is_some() {}
            if let Some((_, beside)) = &mut beside {
                while beside.try_recv().is_some() {}
            }
        })?;
        if subscription.count()?.offered == 0 {
            return Err(silent("events of the socket"));
        }
        Ok(Value::ns(self.name, value, MEAN, self.what))
    }
}

/// A subscription that gets each event.
fn beside(bench: &Bench) -> Result<(Subscription, Channel), Failure> {
    let channel = bench.ecalls.channel().ring(RING).open()?;
    let builder = bench.ecalls.subscribe("socket")?;
    Ok((builder.memory(&channel).install()?, channel))
}

/// Mean time of an arrival. `after` runs after each burst, outside of what is measured.
fn arrivals(
    bench: &Bench,
    (near, far): &mut (TcpStream, TcpStream),
    mut after: impl FnMut(),
) -> Result<f64, Failure> {
    let bursts = bench.effort.rounds(BURSTS);
    bench.effort.best(|| {
        let mut total_ns = 0;
        for _ in 0..bursts {
            let start_ns = ecalls::now_ns();
            for _ in 0..BURST {
                one(near, far)?;
            }
            total_ns += ecalls::now_ns() - start_ns;
            after();
        }
        Ok(total_ns as f64 / f64::from(bursts * BURST))
    })
}

fn one(near: &mut TcpStream, far: &mut TcpStream) -> Outcome {
    let mut byte = [0];
    near.write_all(&[1])
        .and_then(|()| far.read_exact(&mut byte))
        .map_err(|error| os("sending a byte", error))
}
