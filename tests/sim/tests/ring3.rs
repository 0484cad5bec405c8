//! Ring 3: many lives of a small fleet, and the proof that planted mistakes are found.

use simulation::shell::{Mistake, live};

#[test]
fn no_fleet_breaks_a_rule() {
    for seed in 0..60 {
        if let Err(why) = live(seed, Mistake::None) {
            panic!("{why}");
        }
    }
}

#[test]
fn every_planted_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found = (0..300).any(|seed| live(seed, *mistake).is_err());
        assert!(found, "{mistake:?} was not found");
    }
}
