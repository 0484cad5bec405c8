//! Ring 3: many runs of a small fleet, and a test that each planted mistake is found.

use simulation::seeds::run_seeds;
use simulation::shell::{PlantedMistake, simulate};

#[test]
fn fleets_of_many_seeds_break_no_rule() {
    let runs = run_seeds(0..80, || true, |seed| simulate(seed, PlantedMistake::None));
    if let Some((_, why)) = runs.failed {
        panic!("{why}");
    }
    let replacements: u64 = runs.passed.iter().map(|run| run.replacements).sum();
    assert!(replacements > 40, "streams went back {replacements} times");
    // Runs without tool calls would break no rule.
    let (tools, children) = runs.passed.iter().fold((0, 0), |sum, run| (sum.0 + run.tools, sum.1 + run.children));
    let compactions: u64 = runs.passed.iter().map(|run| run.compactions).sum();
    assert!(compactions > 80, "only {compactions} logs were compacted");
    assert!(tools > 400 && children > 60, "only {tools} tool calls and {children} children ran");
}

#[test]
fn mistake_planted_between_services_and_server_is_found() {
    for mistake in PlantedMistake::ALL {
        let found = run_seeds(0..1_000, || true, |seed| simulate(seed, *mistake)).failed.is_some();
        assert!(found, "planted mistake {mistake:?} was not found");
    }
}
