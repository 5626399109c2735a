//! In the memory: everything that a client can write, while the kernel side reads and writes it.
//!
//! Each scribbler has a channel through which its own events flow all the time, raised as fast as
//! its limits allow, and deferred calls that are drained all the time.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecalls_abi::downcall::{DEFER_DELAY, DEFER_SWITCH, DOWN_RING, Generic, OPS, Op};
use ecalls_abi::message::{OpenChannel, Request, Subscribe};
use ecalls_abi::service::ServiceInfo;
use ecalls_abi::subscription::ACTION_MEMORY;
use ecalls_abi::text;
use ecalls_abi::zerocopy::{FromZeros, IntoBytes};

use crate::actor::{Roles, Stage};
use crate::messages::Random;
use crate::raw::{self, DOWN_BYTES, Pages, Raw, RawChannel, tell, up_bytes};
use crate::scene::Scene;
use crate::tests;

tests! {
    garbage_in_every_word_of_a_ring_hurts_its_owner_only
    garbage_in_every_word_of_slots_hurts_their_owner_only
    garbage_in_deferred_calls_hurts_their_caller_only
    positions_that_lie_hurt_their_owner_only
    garbage_in_the_wake_page_hurts_its_owner_only
    calls_with_lengths_and_names_that_lie_are_refused
    pages_that_flip_while_they_are_read_hurt_their_owner_only
    times_beyond_the_clock_block_no_processor
}

pub(crate) const ROLES: Roles = &[
    ("scribbler", scribble),
    ("wake page", scribble_wake),
    ("lying calls", lie_in_calls),
    ("beyond the clock", go_beyond_the_clock),
];

const CAPACITY: u32 = 64;

/// How long each kind of garbage is written.
const TIME: Duration = Duration::from_millis(600);

fn garbage_in_every_word_of_a_ring_hurts_its_owner_only() {
    Scene::begin().attack("scribbler", &["up", "ring"]);
}

fn garbage_in_every_word_of_slots_hurts_their_owner_only() {
    let scene = Scene::begin();
    for slot_use in ["0", "1", "2"] {
        let mut attacker = scene.attacker("scribbler", &["up", "slots", slot_use]);
        attacker.expect("done");
        attacker.end();
    }
    scene.end();
}

fn garbage_in_deferred_calls_hurts_their_caller_only() {
    let scene = Scene::begin();
    for defer in [0, DEFER_DELAY, DEFER_SWITCH] {
        let defer = defer.to_string();
        let mut attacker = scene.attacker("scribbler", &["down", "ring", "0", &defer]);
        attacker.expect("done");
        attacker.end();
    }
    scene.end();
}

fn positions_that_lie_hurt_their_owner_only() {
    let scene = Scene::begin();
    for what in ["front", "header"] {
        let mut attacker = scene.attacker("scribbler", &[what, "ring"]);
        attacker.expect("done");
        attacker.end();
    }
    scene.end();
}

fn garbage_in_the_wake_page_hurts_its_owner_only() {
    Scene::begin().attack("wake page", &[]);
}

fn calls_with_lengths_and_names_that_lie_are_refused() {
    Scene::begin().attack("lying calls", &[]);
}

fn pages_that_flip_while_they_are_read_hurt_their_owner_only() {
    Scene::begin().attack("scribbler", &["flip", "ring"]);
}

fn times_beyond_the_clock_block_no_processor() {
    Scene::begin().attack("beyond the clock", &[]);
}

/// A client with a service and a channel that its own events arrive in.
pub(crate) struct Loop {
    pub(crate) raw: Raw,
    pub(crate) channel: RawChannel,
    pub(crate) service: u32,
    pub(crate) name: String,
    pub(crate) subscription: u32,
}

impl Loop {
    pub(crate) fn open(shape: &OpenChannel) -> Loop {
        let (mut raw, ..) = Raw::open().expect("the daemon");
        let channel = raw
            .open_channel(shape)
            .unwrap_or_else(|no| panic!("{}", tell(&no)));
        let (service, name) = register(&mut raw);
        let subscription = subscribe(&mut raw, service, channel.id);
        Loop {
            raw,
            channel,
            service,
            name,
            subscription,
        }
    }

    /// Raises one event by the fast call; what becomes of it is not asked.
    pub(crate) fn raise(&self, data: u64) {
        let all = u64::from(u32::MAX) << 32 | u64::from(u32::MAX);
        let _ = raw::fast_call(
            self.channel.id,
            0,
            Op::Raise as u16,
            [u64::from(self.service), all, data],
        );
    }

    pub(crate) fn up(&self) -> Pages {
        Pages::map(&self.channel.up, up_bytes(CAPACITY), 0, true).expect("our memory")
    }

    pub(crate) fn down(&self) -> Pages {
        Pages::map(&self.channel.down, DOWN_BYTES, 0, true).expect("our memory")
    }
}

/// Registers a service of this process.
pub(crate) fn register(raw: &mut Raw) -> (u32, String) {
    register_with(raw, "u64 value")
}

/// The same with another format.
pub(crate) fn register_with(raw: &mut Raw, format: &str) -> (u32, String) {
    let mut info = ServiceInfo::new_zeroed();
    let name = format!("loop-{}-{}", std::process::id(), raw.next_number());
    text::write(&mut info.name, &name).expect("short");
    text::write(&mut info.format, format).expect("short");
    text::write(&mut info.kinds, "one").expect("short");
    let index = raw.value(&Request::RegisterService(info));
    let index = index.unwrap_or_else(|no| panic!("{}", tell(&no)));
    (u32::try_from(index).expect("an index"), name)
}

/// Lets a service's events arrive in a channel.
pub(crate) fn subscribe(raw: &mut Raw, service: u32, channel: u32) -> u32 {
    let mut subscribe = Subscribe {
        service,
        channel,
        actions: 1,
        ..Subscribe::default()
    };
    subscribe.action[0].kind = ACTION_MEMORY;
    subscribe.action[0].channel = channel;
    let id = raw.value(&Request::Subscribe(subscribe));
    u32::try_from(id.unwrap_or_else(|no| panic!("{}", tell(&no)))).expect("an id")
}

/// Lets a thread raise until the flag is set.
fn keep_raising(client: &Arc<Loop>, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (client, stop) = (Arc::clone(client), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            client.raise(number);
            number += 1;
        }
    })
}

fn scribble(stage: &mut Stage) {
    let number = |at: usize| u32::try_from(stage.number(at)).expect("small");
    let shape = OpenChannel {
        layout: match stage.argument(1) {
            "slots" => ecalls_abi::Layout::Slots.raw(),
            _ => 0,
        },
        capacity: CAPACITY,
        slot_use: number(2),
        defer: number(3),
        delay_ns: 1_000_000,
        width: 1,
        pad: 0,
    };
    let client = Arc::new(Loop::open(&shape));
    let stop = Arc::new(AtomicBool::new(false));
    let raiser = keep_raising(&client, &stop);
    let (up, down) = (client.up(), client.down());
    let until = Instant::now() + TIME;
    let mut random = Random(7);
    while Instant::now() < until {
        for _ in 0..500 {
            match stage.argument(0) {
                "up" => anywhere(&up, &mut random),
                "down" => {
                    anywhere(&down, &mut random);
                    some_call(&down, &mut random, client.service);
                }
                "front" => up.words()[8].store(random.odd(), Ordering::Relaxed),
                "header" => {
                    let place = random.below(32) as usize;
                    up.words()[place].store(random.odd(), Ordering::Relaxed);
                }
                _ => flip(&up, &down, &mut random, client.service),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    raiser.join().expect("no panic");
    // Its own channel may be of no use any more; it can still be closed, and a new one works.
    drop((up, down, client));
    let fresh = Loop::open(&raw::ring(CAPACITY));
    let up = fresh.up();
    fresh.raise(5);
    assert_eq!(
        up.words()[0].load(Ordering::Acquire),
        1,
        "a new channel shows its event"
    );
    stage.say("done");
}

fn anywhere(pages: &Pages, random: &mut Random) {
    let words = pages.words();
    let place = random.below(words.len() as u64) as usize;
    words[place].store(random.odd(), Ordering::Relaxed);
}

/// Puts calls into the ring of deferred ones: every operation, with odd arguments, and more of them
/// than there are places.
fn some_call(down: &Pages, random: &mut Random, service: u32) {
    let words = down.words();
    let entry = (DOWN_RING + random.below(1024) as usize) * 8;
    words[entry].store(random.below(u64::from(OPS) + 2), Ordering::Relaxed);
    words[entry + 1].store(u64::from(service), Ordering::Relaxed);
    words[entry + 2].store(random.odd(), Ordering::Relaxed);
    words[entry + 3].store(random.odd(), Ordering::Relaxed);
    // back, and the cells' bits
    words[0].store(random.odd(), Ordering::Relaxed);
    words[1].store(random.next(), Ordering::Relaxed);
    if random.below(8) == 0 {
        let op = random.below(u64::from(OPS) + 1) as u16;
        let argument = [random.odd(), random.odd(), random.odd()];
        let _ = raw::fast_call(0, 0, op, argument);
    }
}

/// Changes values while they are in use: positions, sequences, operations, sizes.
fn flip(up: &Pages, down: &Pages, random: &mut Random, service: u32) {
    let entry = (DOWN_RING + random.below(4) as usize) * 8;
    for (pages, place, good) in [
        (up, 8, up.words()[1].load(Ordering::Relaxed)),
        (up, 9, 1),
        (up, 128, random.below(200)),
        (down, entry, Op::Raise as u64),
        (down, entry + 1, u64::from(service)),
        (
            down,
            0,
            down.words()[8].load(Ordering::Relaxed).wrapping_add(4),
        ),
    ] {
        pages.words()[place].store(good, Ordering::Relaxed);
        pages.words()[place].store(random.odd(), Ordering::Relaxed);
        pages.words()[place].store(good, Ordering::Relaxed);
    }
}

/// The one page of the wake descriptor that its holder may write is the consumer's position.
fn scribble_wake(stage: &mut Stage) {
    let client = Arc::new(Loop::open(&raw::ring(CAPACITY)));
    let consumer = Pages::map(&client.channel.wake, 4096, 0, true).expect("the consumer's page");
    // The producer's pages may be read only.
    assert!(Pages::map(&client.channel.wake, 4096, 4096, true).is_err());
    let producer = Pages::map(&client.channel.wake, 3 * 4096, 4096, false).expect("to read");
    let up = client.up();
    let stop = Arc::new(AtomicBool::new(false));
    let raiser = keep_raising(&client, &stop);
    let until = Instant::now() + TIME;
    let mut random = Random(11);
    while Instant::now() < until {
        for _ in 0..200 {
            let place = if random.below(2) == 0 {
                0
            } else {
                random.below(512) as usize
            };
            consumer.words()[place].store(random.odd(), Ordering::Relaxed);
            // Wake me, always.
            up.words()[9].store(1, Ordering::Relaxed);
            up.words()[8].store(up.words()[1].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        std::hint::black_box(producer.words()[0].load(Ordering::Relaxed));
    }
    stop.store(true, Ordering::Relaxed);
    raiser.join().expect("no panic");
    stage.say("done");
}

/// The generic call, whose argument the kernel copies: sizes, names, kinds, targets of all sorts,
/// and, by the fast call, addresses that are not the caller's, or nobody's.
fn lie_in_calls(stage: &mut Stage) {
    let (mut raw, _, program) = Raw::open().expect("the daemon");
    let (_, name) = register(&mut raw);
    let channel = raw.open_channel(&raw::ring(CAPACITY)).expect("a channel");
    let mut random = Random(13);
    let until = Instant::now() + TIME;
    while Instant::now() < until {
        let mut call = Generic::new_zeroed();
        text::write(&mut call.service, &name).expect("short");
        call.op = Op::Raise as u32;
        call.size = random.odd() as u32;
        call.kind = random.odd() as u32;
        call.target = random.odd() as i32;
        call.flags = random.odd() as u32;
        call.deadline_us = random.odd();
        call.release_us = random.odd();
        match random.below(4) {
            0 => call.service = [b'x'; 32],
            1 => call.op = random.odd() as u32,
            2 => call.channel = random.odd() as u32,
            _ => {}
        }
        let place = (&raw const call).addr() as u64;
        let kernel = 0xffff_8880_0000_0000 | random.odd() & 0xffff_ffff;
        // The last is the end of the page: the call begins there, and goes on who knows where.
        for address in [
            place,
            0,
            8,
            random.odd(),
            kernel,
            u64::MAX - 3,
            place | 4095,
        ] {
            let _ = raw::fast_call(channel.id, 0, Op::Call as u16, [address, 0, 0]);
        }
        if let Some(program) = &program {
            run_with_sizes_that_lie(program, &mut call);
        }
    }
    stage.say("done");
}

fn run_with_sizes_that_lie(program: &OwnedFd, call: &mut Generic) {
    const PROG_TEST_RUN: u32 = 10;
    let run = |bytes: &mut [u8], size: u32| {
        let mut argument = [0u64; 10];
        argument[0] = raw::pair(raw::number(program), 0);
        // ctx_size_in, ctx_size_out; ctx_in
        argument[5] = raw::pair(size, 0);
        argument[6] = bytes.as_mut_ptr() as u64;
        raw::bpf(PROG_TEST_RUN, &mut argument)
    };
    let size = size_of::<Generic>() as u32;
    let _ = run(call.as_mut_bytes(), size);
    for wrong in [0, 8, size - 8, size + 8, u32::MAX] {
        let mut long = [0u8; size_of::<Generic>() + 8];
        long[..call.as_bytes().len()].copy_from_slice(call.as_bytes());
        let _ = run(&mut long, wrong);
    }
}

/// The kernel's timers take signed times: one that is too large has passed long ago, and a timer
/// that is started for it again and again never lets its processor go.
fn go_beyond_the_clock(stage: &mut Stage) {
    let shape = OpenChannel {
        defer: DEFER_DELAY,
        delay_ns: u64::MAX,
        width: 1,
        pad: 0,
        ..raw::ring(CAPACITY)
    };
    let client = Loop::open(&shape);
    let now = ecalls::now_ns();
    for (timer, (expiry, period)) in [
        (1 << 63, 0),
        (u64::MAX - 5, 0),
        (1 << 62, 1 << 62),
        (now, u64::MAX - 5),
        (now, 1 << 63),
        (now, u64::MAX - now),
    ]
    .into_iter()
    .enumerate()
    {
        let argument = [timer as u64, expiry, period];
        let _ = raw::fast_call(client.channel.id, 0, Op::Timer as u16, argument);
    }
    // Its delay is as long as it gets, and no shorter.
    let down = client.down();
    down.words()[0].store(1, Ordering::Release);
    let _ = raw::fast_call(client.channel.id, 0, Op::Delay as u16, [0; 3]);
    std::thread::sleep(TIME / 2);
    stage.say("done");
}
