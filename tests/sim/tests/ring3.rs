//! Ring 3: many lives of a small fleet, and the proof that planted mistakes are found.

use simulation::shell::{Mistake, live};

#[test]
fn no_fleet_breaks_a_rule() {
    let (mut tools, mut children) = (0, 0);
    for seed in 0..60 {
        match live(seed, Mistake::None) {
            Ok(life) => {
                tools += life.tools;
                children += life.children;
            }
            Err(why) => panic!("{why}"),
        }
    }
    // A script that asks for no tool would keep every rule.
    assert!(tools > 300 && children > 50, "only {tools} tool calls and {children} children ran");
}

#[test]
fn every_planted_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found = (0..300).any(|seed| live(seed, *mistake).is_err());
        assert!(found, "{mistake:?} was not found");
    }
}
