//! Shows: a subscription read through shared memory without a system call, sleeping when there is
//! nothing, and a deferred downcall.
//! Needs: the daemon (ecallsd), or root: then this program hosts the core itself.
//! Run:   cargo run --release --example hello
//! Expect: ten lines, one for each process of this user (root: of anyone) that starts, forks or
//! ends.

use ecalls::downcall::Call;
use ecalls::{Ecalls, Result};

fn main() -> Result<()> {
    let ecalls = Ecalls::open()?;
    let mut channel = ecalls.channel().open()?;
    let _subscription = ecalls.subscribe("task")?.memory(&channel).install()?;
    for count in 1..=10 {
        // Looks into shared memory, and sleeps only when there is nothing.
        let event = channel.recv()?;
        println!("{count}: {}", ecalls.describe(&event));
        // Tells the kernel side how far we are, by a store: no system call.
        channel.caller().defer(Call::Set {
            attribute: 0,
            value: count,
        })?;
    }
    println!("deferred calls waiting: {}", channel.caller().pending());
    // The next fast call handles them all first.
    let count = channel.caller().fast(Call::Get { attribute: 0 })?;
    println!("the kernel side knows of {count} events");
    Ok(())
}
