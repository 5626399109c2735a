//! User-level threads of ordinary users: the daemon tells when they block; and clients that lie
//! about who blocks, where, and whose page it is.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use std::io::{Read, Write};

use ecalls_abi::activation as abi;
use ecalls_abi::message::{
    Answer, Number, QUOTA_BYTES, QUOTA_CHANNELS, REFUSED_QUOTA, Refused, Request,
};
use ecalls_threads::{KernelSide, Runtime, scheduling_point, sleep};

use crate::actor::{Roles, Stage, start};
use crate::daemon::{self, SMALL};
use crate::messages::Random;
use crate::raw::{self, Pages, Raw, tell};
use crate::running::{PATIENCE, wait_until};
use crate::scene::{Scene, clear, new_user};
use crate::tests;

tests! {
    threads_of_an_ordinary_user_are_seen_to_block
    garbage_in_the_page_of_activations_hurts_its_owner_only
    only_the_owner_of_a_page_becomes_an_activation_of_it
    a_thread_of_a_former_owner_changes_nothing_in_the_next_ones_page
    a_thread_that_executes_another_program_is_no_activation
    pages_of_activations_count_as_channels_and_are_given_back
    a_runtime_outlives_the_daemon
}

pub(crate) const ROLES: Roles = &[
    ("runtime", run_threads),
    ("page scribbler", scribble),
    ("impostor", pretend),
    ("heir", inherit),
    ("another program", become_another_program),
    ("hoarder of pages", hoard),
];

/// How long garbage is written.
const TIME: Duration = Duration::from_millis(600);

/// Commands of bpf(2).
const PROG_TEST_RUN: u32 = 10;
const PROG_BIND_MAP: u32 = 35;

fn threads_of_an_ordinary_user_are_seen_to_block() {
    let scene = Scene::begin();
    let mut actor = scene.attacker("runtime", &[]);
    assert_eq!(actor.ask("told"), "told");
    actor.end();
    scene.end();
}

fn garbage_in_the_page_of_activations_hurts_its_owner_only() {
    let scene = Scene::begin();
    let mut honest = scene.attacker("runtime", &[]);
    let mut attacker = scene.attacker("page scribbler", &[]);
    while attacker.ask("again") != "done" {
        assert_eq!(honest.ask("told"), "told");
    }
    attacker.end();
    honest.end();
    scene.end();
}

fn only_the_owner_of_a_page_becomes_an_activation_of_it() {
    Scene::begin().attack("impostor", &[]);
}

fn a_thread_of_a_former_owner_changes_nothing_in_the_next_ones_page() {
    Scene::begin().attack("heir", &[]);
}

fn a_thread_that_executes_another_program_is_no_activation() {
    Scene::begin().attack("another program", &[]);
}

fn pages_of_activations_count_as_channels_and_are_given_back() {
    let scene = Scene::begin();
    // Twice: the first one leaves room for the second.
    for _ in 0..2 {
        let mut hoarder = start("hoarder of pages", SMALL.start, &[]);
        hoarder.expect("channels 3");
        hoarder.end();
        wait_until("they are given back", || {
            let user = crate::scene::user(SMALL.start);
            user.is_none_or(|user| {
                [QUOTA_CHANNELS, QUOTA_BYTES]
                    .iter()
                    .all(|at| user.used[*at] == 0)
            })
        });
    }
    scene.end();
}

fn a_runtime_outlives_the_daemon() {
    clear();
    let mut daemon = daemon::start(&daemon::metrics());
    let mut actor = start("runtime", new_user(), &[]);
    assert_eq!(actor.ask("told"), "told");
    let counters = daemon::counters();
    assert!(
        counters.contains("\necalls_threads_runtimes 1\n"),
        "{counters}"
    );
    assert!(
        !counters.contains("\necalls_threads_told_total 0\n"),
        "{counters}"
    );
    daemon.kill();
    // Nobody tells any more, and its blocks block a processor; but all of its threads end.
    assert_eq!(actor.ask("round"), "not told");
    actor.end();
}

/// A runtime on one processor. "told": rounds until one was told; "round": one.
fn run_threads(stage: &mut Stage) {
    let builder = Runtime::builder().processors(1).pinned(false);
    let runtime = builder.kernel(KernelSide::Required).start();
    let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
    while let Some(wish) = stage.hear() {
        let before = runtime.stats().told;
        round(&runtime);
        // On a busy machine the first spare can be late, and a block is not told.
        let start = Instant::now();
        while wish == "told" && runtime.stats().told == before {
            assert!(start.elapsed() < PATIENCE, "{runtime:?}");
            round(&runtime);
        }
        stage.say(if runtime.is_told() {
            "told"
        } else {
            "not told"
        });
    }
}

/// One thread reads, in a call that blocks, what another one writes later.
fn round(runtime: &Runtime) {
    let (mut reader, mut writer) = UnixStream::pair().expect("a pair");
    // If nobody tells of it, the writer has no processor.
    let time = Some(Duration::from_millis(200));
    reader.set_read_timeout(time).expect("a time");
    let reads = move || {
        let _ = reader.read(&mut [0]);
        scheduling_point();
    };
    let writes = move || {
        sleep(Duration::from_millis(5));
        let _ = writer.write_all(&[7]);
    };
    let reads = runtime.spawn(reads).expect("a thread");
    let writes = runtime.spawn(writes).expect("a thread");
    reads.join().expect("no panic");
    writes.join().expect("no panic");
}

/// A page, by requests alone.
struct Page {
    index: u32,
    page: OwnedFd,
    join: OwnedFd,
}

impl Page {
    fn open(raw: &mut Raw) -> Result<Page, Box<Refused>> {
        let request = Request::OpenActivations(Number { number: 0, pad: 0 });
        let (answer, fds) = raw.ask(&request, &[]).expect("an answer");
        match answer {
            Answer::Done(done) => {
                let [page, join] = fds.try_into().expect("two descriptors");
                let index = u32::try_from(done.value).expect("an index");
                Ok(Page { index, page, join })
            }
            Answer::Refused(refused) => Err(Box::new(refused)),
            other => panic!("{}", raw::describe(&other)),
        }
    }

    fn map(&self) -> Pages {
        Pages::map(&self.page, size_of::<abi::Activations>(), 0, true).expect("our memory")
    }

    /// The calling thread becomes activation `number` of page `index`; the result of the program.
    fn join(&self, index: u32, number: u32) -> i32 {
        let context = [raw::pair(index, number)];
        let mut argument = [0_u64; 10];
        // The program; its result; sizes; addresses; how often, and how long it takes; its context.
        argument[0] = raw::pair(raw::number(&self.join), 0);
        argument[5] = raw::pair(8, 0);
        argument[6] = (&raw const context).addr() as u64;
        raw::bpf(PROG_TEST_RUN, &mut argument).expect("our program");
        (argument[0] >> 32) as u32 as i32
    }
}

/// The word at a place in the page, as a 32-bit number in its lower half.
fn activation_word(number: u32) -> usize {
    abi::PROCESSORS_MAX as usize * 8 + number as usize
}

/// Blocks, as activation 1 of a page in which processor 0 has it, and a spare waits.
fn block(pages: &Pages) {
    pages.words()[activation_word(1)].store(0, Ordering::SeqCst);
    pages.words()[0].store(raw::pair(1, 1), Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(2));
}

/// Writes odd numbers everywhere, while its threads, which are activations of any number, block.
fn scribble(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let page = Arc::new(Page::open(&mut raw).unwrap_or_else(|no| panic!("{}", tell(&no))));
    let stop = Arc::new(AtomicBool::new(false));
    let blockers: Vec<_> = (0..4)
        .map(|seed| {
            let (page, stop) = (Arc::clone(&page), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut random = Random(seed + 1);
                while !stop.load(Ordering::Relaxed) {
                    page.join(page.index, random.odd() as u32);
                    page.join(page.index, 1 + random.below(16_000) as u32);
                    std::thread::sleep(Duration::from_micros(50));
                }
            })
        })
        .collect();
    let pages = page.map();
    let until = Instant::now() + TIME;
    let mut random = Random(31);
    while stage.hear().is_some() && Instant::now() < until {
        for _ in 0..2000 {
            let words = pages.words();
            let place = random.below(words.len() as u64) as usize;
            words[place].store(random.odd(), Ordering::Relaxed);
            words[random.below(512) as usize].store(random.odd(), Ordering::Relaxed);
        }
        stage.say("more");
    }
    stop.store(true, Ordering::Relaxed);
    blockers
        .into_iter()
        .for_each(|one| one.join().expect("no panic"));
    // The page still works for who writes what is right.
    assert_eq!(page.join(page.index, 1), 0);
    block(&pages);
    assert_eq!(pages.words()[0].load(Ordering::SeqCst) & 0xffff_ffff, 0);
    stage.say("done");
}

/// Another process, and another page's index.
fn pretend(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let page = Page::open(&mut raw).unwrap_or_else(|no| panic!("{}", tell(&no)));
    let refused = |result: i32| [-libc::EPERM, -libc::EINVAL].contains(&result);
    assert_eq!(page.join(page.index, 1), 0);
    for index in (0..1100)
        .chain([u32::MAX])
        .filter(|index| *index != page.index)
    {
        assert!(refused(page.join(index, 1)), "page {index}");
    }
    for number in [0, abi::ACTIVATIONS_MAX, u32::MAX] {
        assert_eq!(page.join(page.index, number), -libc::EINVAL);
    }
    let child = raw::fork(|| i32::from(page.join(page.index, 1) != -libc::EPERM));
    assert_eq!(
        raw::wait_for(child),
        0,
        "another process has become an activation"
    );
    // After the connection nobody is one, and nobody becomes one.
    let pages = page.map();
    block(&pages);
    let told = pages.words()[1].load(Ordering::SeqCst);
    assert!(told > 0, "the page works");
    drop(raw);
    wait_until("the page is revoked", || {
        page.join(page.index, 1) == -libc::EPERM
    });
    block(&pages);
    assert_eq!(pages.words()[1].load(Ordering::SeqCst), told);
    stage.done();
}

/// Its thread stays what it was in a page that has another owner now.
fn inherit(stage: &mut Stage) {
    let (mut former, ..) = Raw::open().expect("the daemon");
    let old = Page::open(&mut former).unwrap_or_else(|no| panic!("{}", tell(&no)));
    assert_eq!(old.join(old.index, 1), 0);
    drop(former);
    let (mut raw, ..) = Raw::open().expect("the daemon");
    // Its index is free when the kernel no longer uses the page.
    let mut pages = Vec::new();
    wait_until("the index is given again", || {
        std::thread::sleep(Duration::from_millis(20));
        pages.clear();
        let (again, ..) = Raw::open().expect("the daemon");
        raw = again;
        pages.push(Page::open(&mut raw).unwrap_or_else(|no| panic!("{}", tell(&no))));
        pages[0].index == old.index
    });
    let new = pages[0].map();
    block(&new);
    let words = [0, 1, 2].map(|word| new.words()[word].load(Ordering::SeqCst));
    assert_eq!(
        words,
        [raw::pair(1, 1), 0, 0],
        "a thread of the former page changed it"
    );
    // It is not blind:
    assert_eq!(pages[0].join(pages[0].index, 1), 0);
    block(&new);
    assert_eq!(new.words()[1].load(Ordering::SeqCst), 1);
    stage.done();
}

/// Its child, which has its page and its connection, looks whether it sees a program block that may
/// have more rights.
fn become_another_program(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let page = Page::open(&mut raw).unwrap_or_else(|no| panic!("{}", tell(&no)));
    let pages = page.map();
    assert_eq!(page.join(page.index, 1), 0);
    block(&pages);
    let comm = format!("/proc/{}/comm", std::process::id());
    raw::fork(|| {
        let is_other = || std::fs::read_to_string(&comm).is_ok_and(|name| name == "sh\n");
        wait_until("it is another program", is_other);
        pages.words()[0].store(raw::pair(1, 1), Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        let counts = [1, 2].map(|word| pages.words()[word].load(Ordering::SeqCst));
        stage.say(if counts == [1, 0] {
            "done"
        } else {
            "it was seen"
        });
        0
    });
    let script = "for i in $(seq 20); do sleep 0.05; done";
    let error = Command::new("sh").args(["-c", script]).exec();
    panic!("{error}");
}

/// As many as it may have.
fn hoard(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let mut pages = Vec::new();
    let refused = loop {
        match Page::open(&mut raw) {
            Ok(page) => {
                // The program lives no longer than who has it, and so nothing that is bound to it.
                let bound = [&page.page, &pages.first().unwrap_or(&page).page];
                for map in bound {
                    let mut argument = [raw::pair(raw::number(&page.join), raw::number(map)), 0];
                    raw::bpf(PROG_BIND_MAP, &mut argument).expect("it may");
                }
                pages.push(page);
            }
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.error, REFUSED_QUOTA, "{}", tell(&refused));
    stage.say(format_args!("{} {}", refused.subject(), pages.len()));
    stage.hear();
}
