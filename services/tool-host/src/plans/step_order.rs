//! The order in which the steps of a plan can be done, and which steps can run side by side. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::PlanDocument;

/// Order of the steps of a plan, from their dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepOrder {
    /// All steps, each after those that it depends on, else by number; without those of cycles and what depends on
    /// them.
    pub(super) steps: Vec<u32>,
    /// The steps that are not done, in rounds: those of a round depend only on steps that are done or in earlier
    /// rounds, so they can be done side by side. The first round is what can be done now.
    pub(super) rounds: Vec<Vec<u32>>,
    /// Steps that depend on each other, each group ascending: none of them can ever be done.
    pub(super) cycles: Vec<Vec<u32>>,
    /// Steps that are not done and wait for others, with the steps that they wait for.
    pub(super) waiting: BTreeMap<u32, Vec<u32>>,
}

impl StepOrder {
    /// Computes the order of the steps of a plan.
    pub(super) fn from_plan(plan: &PlanDocument) -> Self {
        let depends: BTreeMap<u32, BTreeSet<u32>> =
            plan.steps.iter().map(|step| (step.number, step.depends_on.iter().copied().collect())).collect();
        let done: BTreeSet<u32> = plan.steps.iter().filter(|step| step.done).map(|step| step.number).collect();
        let all = group_rounds(&depends, BTreeSet::new());
        let open: BTreeMap<u32, BTreeSet<u32>> =
            depends.iter().filter(|(number, _)| !done.contains(number)).map(|(n, on)| (*n, on.clone())).collect();
        let waiting = open.iter().map(|(number, on)| (*number, on.difference(&done).copied().collect::<Vec<_>>()));
        let waiting = waiting.filter(|(_, on)| !on.is_empty()).collect();
        Self {
            steps: sort_steps(&depends),
            rounds: group_rounds(&open, done),
            cycles: find_cycles(&depends, &all),
            waiting,
        }
    }

    /// The steps that can be done now.
    pub(super) fn ready(&self) -> Vec<u32> {
        self.rounds.first().cloned().unwrap_or_default()
    }
}

/// Sorts the steps: always the least number of those whose dependencies are satisfied.
fn sort_steps(depends: &BTreeMap<u32, BTreeSet<u32>>) -> Vec<u32> {
    let (mut order, mut satisfied) = (Vec::new(), BTreeSet::new());
    while let Some((number, _)) =
        depends.iter().find(|(number, on)| !satisfied.contains(*number) && on.is_subset(&satisfied))
    {
        satisfied.insert(*number);
        order.push(*number);
    }
    order
}

/// Groups steps into rounds: the dependencies of a round are in `satisfied` or in the rounds before.
fn group_rounds(depends: &BTreeMap<u32, BTreeSet<u32>>, mut satisfied: BTreeSet<u32>) -> Vec<Vec<u32>> {
    let mut rounds = Vec::new();
    loop {
        let fits = |(number, on): &(&u32, &BTreeSet<u32>)| !satisfied.contains(*number) && on.is_subset(&satisfied);
        let round: Vec<u32> = depends.iter().filter(fits).map(|(number, _)| *number).collect();
        if round.is_empty() {
            return rounds;
        }
        satisfied.extend(&round);
        rounds.push(round);
    }
}

/// Finds groups of steps that depend on each other, among those that are in no round.
fn find_cycles(depends: &BTreeMap<u32, BTreeSet<u32>>, rounds: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let placed: BTreeSet<u32> = rounds.iter().flatten().copied().collect();
    let mut reached: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for number in depends.keys().filter(|number| !placed.contains(number)) {
        let (mut visited, mut left) = (BTreeSet::new(), vec![*number]);
        while let Some(on) = left.pop().and_then(|at| depends.get(&at)) {
            left.extend(on.iter().copied().filter(|on| visited.insert(*on)));
        }
        reached.insert(*number, visited);
    }
    let leads = |from: &u32, to: &u32| reached.get(from).is_some_and(|reached| reached.contains(to));
    let groups = reached.keys().filter(|number| leads(number, number)).map(|number| {
        let group: Vec<u32> =
            reached.keys().filter(|other| leads(number, other) && leads(other, number)).copied().collect();
        group
    });
    groups.collect::<BTreeSet<_>>().into_iter().collect()
}
