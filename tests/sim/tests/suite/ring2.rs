//! Ring 2: many lives, and the proof that planted bugs are found.

use simulation::plant::Bug;
use simulation::seeds::over_cores;
use simulation::world::{Seen, live};

#[test]
fn no_life_breaks_a_rule() {
    let lives = over_cores(0..2_500, || true, |seed| live(seed, Bug::None));
    if let Some((_, why)) = lives.bad {
        panic!("{why}");
    }
    let seen = lives.good.iter().fold(Seen::default(), |seen, life| seen.plus(life.seen));
    assert!(seen.least() >= 20, "a world in which something never happens proves nothing about it: {seen:?}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = over_cores(0..10_000, || true, |seed| live(seed, *bug)).bad.is_some();
        assert!(found, "{bug:?} was not found");
    }
}
