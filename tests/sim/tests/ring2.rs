//! Ring 2: many lives, and the proof that planted bugs are found.

use simulation::plant::Bug;
use simulation::world::live;

#[test]
fn no_life_breaks_a_rule() {
    for seed in 0..4_000 {
        if let Err(why) = live(seed, Bug::None) {
            panic!("{why}");
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = (0..10_000).any(|seed| live(seed, *bug).is_err());
        assert!(found, "{bug:?} was not found");
    }
}
