//! Ring 2: many runs, and a test that each planted bug is found.

use simulation::planted_bug::PlantedBug;
use simulation::seeds::run_seeds;
use simulation::world::{RareEvents, simulate};

#[test]
fn runs_of_many_seeds_break_no_rule() {
    let runs = run_seeds(0..2_500, || true, |seed| simulate(seed, PlantedBug::None));
    if let Some((_, why)) = runs.failed {
        panic!("{why}");
    }
    let rare = runs.passed.iter().fold(RareEvents::default(), |rare, run| rare.plus(run.rare));
    assert!(rare.least() >= 20, "a rare event occurred less than 20 times: {rare:?}");
}

#[test]
fn bug_planted_in_the_loop_is_found() {
    for bug in PlantedBug::ALL {
        let found = run_seeds(0..10_000, || true, |seed| simulate(seed, *bug)).failed.is_some();
        assert!(found, "planted bug {bug:?} was not found");
    }
}
