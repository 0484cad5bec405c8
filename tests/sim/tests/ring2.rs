//! Ring 2: many lives, and the proof that planted bugs are found.

use simulation::plant::Bug;
use simulation::world::{Seen, live};

#[test]
fn no_life_breaks_a_rule() {
    let mut seen = Seen::default();
    for seed in 0..4_000 {
        match live(seed, Bug::None) {
            Ok(life) => seen = seen.plus(life.seen),
            Err(why) => panic!("{why}"),
        }
    }
    assert!(seen.least() >= 20, "a world in which something never happens proves nothing about it: {seen:?}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = (0..10_000).any(|seed| live(seed, *bug).is_err());
        assert!(found, "{bug:?} was not found");
    }
}
