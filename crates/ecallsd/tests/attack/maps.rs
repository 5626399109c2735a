//! With the descriptors: what bpf(2) lets a holder of a map or a program do, and what it must not.
//!
//! A client holds three maps of each channel, and no program where the kernel has a fast call. It
//! may read and write its own memory in any way; it must not take it away from the kernel side, nor
//! get at anything that it was not given.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ecalls_abi::message::{Number, QUOTA_BYTES, QUOTA_CHANNELS, Request};
use ecalls_abi::text;

use crate::actor::{Roles, Stage, start};
use crate::memory::Loop;
use crate::messages::Random;
use crate::raw::{self, bpf, number, pair};
use crate::running::wait_until;
use crate::scene::{Scene, new_user, user};
use crate::tests;

tests! {
    freezing_its_maps_takes_nothing_from_the_kernel_side
    every_command_of_bpf_on_what_was_given_hurts_its_holder_only
    nothing_but_what_was_given_can_be_opened
    memory_that_is_pinned_stays_charged_until_it_is_let_go
    nothing_is_given_that_keeps_memory_longer_than_its_holder
}

pub(crate) const ROLES: Roles = &[
    ("freezes", freeze),
    ("every command", every_command),
    ("opens others' things", open_others),
    ("pins", pin),
    ("binds", bind),
];

// Commands of bpf(2).
const MAP_LOOKUP: u32 = 1;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const MAP_NEXT_KEY: u32 = 4;
const OBJ_PIN: u32 = 6;
const PROG_ATTACH: u32 = 8;
const PROG_DETACH: u32 = 9;
const PROG_NEXT_ID: u32 = 11;
const MAP_NEXT_ID: u32 = 12;
const PROG_BY_ID: u32 = 13;
const MAP_BY_ID: u32 = 14;
const RAW_TRACEPOINT_OPEN: u32 = 17;
const BTF_BY_ID: u32 = 19;
const MAP_LOOKUP_AND_DELETE: u32 = 21;
const MAP_FREEZE: u32 = 22;
const LINK_CREATE: u32 = 28;
const LINK_BY_ID: u32 = 30;
const PROG_BIND_MAP: u32 = 35;
const COMMANDS: u32 = 40;

/// The means by which a holder keeps its memory beyond its own end: it stays charged meanwhile.
const KEEPING: u32 = OBJ_PIN;

fn freezing_its_maps_takes_nothing_from_the_kernel_side() {
    Scene::begin().attack("freezes", &[]);
}

fn every_command_of_bpf_on_what_was_given_hurts_its_holder_only() {
    Scene::begin().attack("every command", &[]);
}

fn nothing_but_what_was_given_can_be_opened() {
    Scene::begin().attack("opens others' things", &[]);
}

fn memory_that_is_pinned_stays_charged_until_it_is_let_go() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attacker = start("pins", uid, &[]);
    let answer = attacker.hear();
    if answer == "pinned" {
        // The channel is closed, no descriptor and no mapping is left: the pin holds its memory.
        std::thread::sleep(Duration::from_secs(1));
        let used = user(uid).expect("it is connected").used;
        assert!(used[QUOTA_BYTES] > 0, "{used:?}");
        assert_eq!(used[QUOTA_CHANNELS], 0, "{used:?}");
        attacker.ask("unpin");
        wait_until("what was pinned is given back", || {
            user(uid).expect("it is connected").used[QUOTA_BYTES] == 0
        });
    } else {
        eprintln!("  pins nothing: {answer}");
    }
    attacker.end();
    scene.end();
}

fn nothing_is_given_that_keeps_memory_longer_than_its_holder() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attacker = start("binds", uid, &[]);
    let answer = attacker.hear();
    if answer == "no fast call" {
        // The one way to call that is left is a program, and nothing keeps its holder from that.
        eprintln!("  not on this kernel: {answer}");
    } else {
        assert_eq!(answer, "let go");
        wait_until("what was bound is given back", || {
            user(uid).expect("it is connected").used[QUOTA_BYTES] == 0
        });
    }
    attacker.end();
    scene.end();
}

/// Binds its maps to every descriptor that it has, and lets go of them.
fn bind(stage: &mut Stage) {
    let (other, welcome, program) = raw::Raw::open().expect("the daemon");
    if text::read(&welcome.mechanism) == "run" {
        stage.say("no fast call");
        stage.hear();
        return;
    }
    assert!(program.is_none(), "a program is given to strangers");
    let mut client = Loop::open(&raw::ring(64));
    for map in [
        &client.channel.up,
        &client.channel.down,
        &client.channel.wake,
    ] {
        for fd in 0..100 {
            let bound = bpf(PROG_BIND_MAP, &mut [pair(fd, number(map)), 0]);
            assert!(bound.is_err(), "a map is bound to descriptor {fd}");
        }
    }
    let close = Request::CloseChannel(number_of(client.channel.id));
    client.raw.value(&close).expect("its own");
    let Loop { raw, channel, .. } = client;
    drop(channel);
    stage.say("let go");
    stage.hear();
    drop((raw, other));
}

fn freeze(stage: &mut Stage) {
    let client = Loop::open(&raw::ring(64));
    for (name, map) in [("up", &client.channel.up), ("down", &client.channel.down)] {
        let frozen = bpf(MAP_FREEZE, &mut [pair(number(map), 0)]);
        assert!(frozen.is_err(), "{name} is frozen");
    }
    // Of the wake descriptor only the holder's own page would be frozen.
    let _ = bpf(MAP_FREEZE, &mut [pair(number(&client.channel.wake), 0)]);
    // Events come as before, and new mappings may still be made.
    let up = client.up();
    for event in 1..=10 {
        client.raise(event);
        assert_eq!(up.words()[0].load(Ordering::Acquire), event);
    }
    stage.say("done");
}

fn every_command(stage: &mut Stage) {
    let (_other, _, program) = raw::Raw::open().expect("the daemon");
    let mut client = Loop::open(&raw::ring(64));
    let maps = [
        &client.channel.up,
        &client.channel.down,
        &client.channel.wake,
    ];
    let mut random = Random(17);
    for _ in 0..40 {
        for fd in maps.into_iter().chain(&program) {
            for command in (0..COMMANDS).filter(|command| *command != KEEPING) {
                one_command(command, number(fd), &mut random);
            }
        }
    }
    // Its channel can still be closed.
    let id = client.channel.id;
    let closed = client
        .raw
        .value(&Request::CloseChannel(Number { number: id, pad: 0 }));
    assert!(closed.is_ok());
    stage.say("done");
}

fn one_command(command: u32, fd: u32, random: &mut Random) {
    const ON_ELEMENTS: [u32; 5] = [
        MAP_LOOKUP,
        MAP_UPDATE,
        MAP_DELETE,
        MAP_NEXT_KEY,
        MAP_LOOKUP_AND_DELETE,
    ];
    // Longer than any key or value that these maps have.
    let mut key = [random.below(80); 8];
    let mut value = [random.odd(); 64];
    let (key, value) = (key.as_mut_ptr() as u64, value.as_mut_ptr() as u64);
    let mut argument = [0u64; 10];
    argument[..4].copy_from_slice(&[pair(fd, 0), key, value, random.below(8)]);
    match command {
        command if ON_ELEMENTS.contains(&command) => {}
        // The target, the program, and the kind of attachment.
        PROG_ATTACH | PROG_DETACH | LINK_CREATE => {
            argument = [0; 10];
            argument[0] = pair(fd, fd);
            argument[1] = pair(random.below(60) as u32, 0);
        }
        RAW_TRACEPOINT_OPEN => argument = [0, pair(fd, 0), 0, 0, 0, 0, 0, 0, 0, 0],
        _ => {
            // Numbers, not addresses: what they point to would be ours to answer for.
            for word in &mut argument[1..] {
                *word = random.below(3);
            }
        }
    }
    let result = bpf(command, &mut argument);
    let attaches = [PROG_ATTACH, RAW_TRACEPOINT_OPEN, LINK_CREATE].contains(&command);
    assert!(
        !attaches || result.is_err(),
        "command {command} attaches something"
    );
    if let Ok(made @ 3..) = result
        && !ON_ELEMENTS.contains(&command)
    {
        close(made);
    }
}

fn close(fd: i64) {
    let Ok(fd) = i32::try_from(fd) else { return };
    // SAFETY: the kernel has just made this descriptor for us.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

fn open_others(stage: &mut Stage) {
    let _client = Loop::open(&raw::ring(64));
    // Ids are no secret; opening by id is not for everybody.
    for id in 1..20_000u32 {
        for command in [PROG_BY_ID, MAP_BY_ID, BTF_BY_ID, LINK_BY_ID] {
            let opened = bpf(command, &mut [pair(id, 0), 0]);
            assert!(opened.is_err(), "command {command} opens {id}");
        }
    }
    for command in [PROG_NEXT_ID, MAP_NEXT_ID] {
        assert!(
            bpf(command, &mut [0, 0]).is_err(),
            "command {command} lists ids"
        );
    }
    stage.say("done");
}

/// Pins its segments in a bpf file system of its own, in a user namespace of its own.
fn pin(stage: &mut Stage) {
    let mut client = Loop::open(&raw::ring(64));
    let pinned = mount_bpf().and_then(|()| {
        for (name, map) in [("up", &client.channel.up), ("wake", &client.channel.wake)] {
            let path = CString::new(format!("/tmp/{name}"))?;
            bpf(OBJ_PIN, &mut [path.as_ptr() as u64, pair(number(map), 0)])?;
        }
        Ok(())
    });
    if let Err(error) = pinned {
        stage.say(error);
        stage.hear();
        return;
    }
    for request in [
        Request::Unsubscribe(number_of(client.subscription)),
        Request::CloseChannel(number_of(client.channel.id)),
    ] {
        client.raw.value(&request).expect("its own");
    }
    let Loop { raw, channel, .. } = client;
    drop(channel);
    stage.say("pinned");
    stage.hear();
    for name in ["up", "wake"] {
        std::fs::remove_file(format!("/tmp/{name}")).expect("its own pin");
    }
    stage.say("unpinned");
    stage.hear();
    drop(raw);
}

/// A request's body.
pub(crate) fn number_of(number: u32) -> Number {
    Number { number, pad: 0 }
}

fn mount_bpf() -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    raw::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", uid.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", gid.as_raw()))?;
    raw::mount(c"bpf", c"/tmp", c"bpf")
}
