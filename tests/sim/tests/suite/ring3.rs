//! Ring 3: many lives of a small fleet, and the proof that planted mistakes are found.

use simulation::seeds::over_cores;
use simulation::shell::{Mistake, live};

#[test]
fn no_fleet_breaks_a_rule() {
    let lives = over_cores(0..80, || true, |seed| live(seed, Mistake::None));
    if let Some((_, why)) = lives.bad {
        panic!("{why}");
    }
    // A script that asks for no tool would keep every rule.
    let (tools, children) = lives.good.iter().fold((0, 0), |sum, life| (sum.0 + life.tools, sum.1 + life.children));
    assert!(tools > 400 && children > 60, "only {tools} tool calls and {children} children ran");
}

#[test]
fn every_planted_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found = over_cores(0..300, || true, |seed| live(seed, *mistake)).bad.is_some();
        assert!(found, "{mistake:?} was not found");
    }
}
