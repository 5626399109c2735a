//! Everything at once.

use crate::actor::Actor;
use crate::scene::Scene;
use crate::tests;

tests! {
    everything_at_once_from_four_users_hurts_nobody_else
}

/// The attacks of each of the four, one after the other.
const ATTACKS: [&[(&str, &[&str])]; 4] = [
    &[
        ("scribbler", &["up", "ring"]),
        ("random messages", &["5"]),
        ("freezes", &[]),
    ],
    &[
        ("scribbler", &["down", "ring", "0", "1"]),
        ("every command", &[]),
        ("raises", &[]),
    ],
    &[
        ("holds", &[]),
        ("in flight", &[]),
        ("scribbler", &["flip", "ring"]),
    ],
    &[
        ("threads", &[]),
        ("descriptors", &[]),
        ("lying calls", &[]),
        ("timers", &[]),
    ],
];

fn everything_at_once_from_four_users_hurts_nobody_else() {
    let mut scene = Scene::begin();
    let rounds = ATTACKS.iter().map(|attacks| attacks.len()).max();
    for round in 0..rounds.unwrap_or(0) {
        let attacks = ATTACKS.iter().filter_map(|attacks| attacks.get(round));
        let mut attackers: Vec<Actor> = attacks
            .map(|(role, arguments)| scene.attacker(role, arguments))
            .collect();
        for attacker in &mut attackers {
            attacker.expect("done");
        }
        attackers.into_iter().for_each(Actor::end);
        scene.check_victim();
    }
    scene.end();
}
