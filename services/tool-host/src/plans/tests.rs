//! Plans as people and models write them: read, put into an order, marked.

use super::plan::{PLAN_BYTES_MAX, PlanDocument, PlanError, STEPS_MAX};
use super::step_order::StepOrder;

const PLAN: &str = "\
# Build the house

**Goal:** A family can live in it
by the summer.

## Steps

1. Dig the pit.
   - check: it is 2 m deep
   - mind the *old well*

     1. a list of its own
2. [x] Buy bricks (depends on: none)
3. [ ] Lay the walls
   - **Depends on:** step 1 and 2
   ```text
   4. this is code
   - depends on: 99
   ```
10) [X] Paint (Depends on: 3.)

   * CHECK: no wet spots

## Out of scope

1. The garden
";

fn plan(text: &str) -> PlanDocument {
    PlanDocument::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A plan whose steps have these dependencies; the number of one that is done is negative.
fn graph(steps: &[(i32, &[u32])]) -> PlanDocument {
    let mut text = "# Graph\n\n".to_owned();
    for (number, on) in steps {
        let mark = if *number < 0 { "[x] " } else { "" };
        let on: Vec<String> = on.iter().map(u32::to_string).collect();
        text.push_str(
            &[&number.abs().to_string(), ". ", mark, "Do it\n   - depends on: ", &on.join(", "), "\n"].concat(),
        );
    }
    plan(&text)
}

#[test]
fn plan_is_read_with_steps_details_checks_and_dependencies() {
    let plan = plan(PLAN);
    assert_eq!(
        (plan.title.as_str(), plan.goal.as_str()),
        ("Build the house", "A family can live in it by the summer.")
    );
    let steps: Vec<_> = plan
        .steps
        .iter()
        .map(|step| (step.number, step.title.as_str(), step.check.as_deref(), step.depends_on.clone(), step.done))
        .collect();
    assert_eq!(
        steps,
        [
            (1, "Dig the pit.", Some("it is 2 m deep"), vec![], false),
            (2, "Buy bricks", None, vec![], true),
            (3, "Lay the walls", None, vec![1, 2], false),
            (10, "Paint", Some("no wet spots"), vec![3], true),
        ]
    );
    assert_eq!(plan.steps[0].details, "- mind the *old well*\n\n  1. a list of its own");
    assert_eq!(plan.steps[2].details, "```text\n4. this is code\n- depends on: 99\n```");
    assert_eq!((plan.count_done(), plan.revision.len()), (2, 8));
}

#[test]
fn text_that_is_no_plan_is_refused_with_what_to_write() {
    let long = format!("# T\n\n1. {}\n", "x".repeat(PLAN_BYTES_MAX));
    let many = (0..=STEPS_MAX).fold("# T\n".to_owned(), |text, n| format!("{text}{n}. Do\n"));
    let unreadable = |text: &str| PlanError::DependencyUnreadable { step: 1, text: text.to_owned() };
    for (text, error) in [
        ("", PlanError::NoTitle),
        ("1. Do", PlanError::NoTitle),
        ("#  \n1. Do", PlanError::NoTitle),
        ("```\n# T\n```\n1. Do", PlanError::NoTitle),
        ("# T\n\nNo steps, 1. here\n", PlanError::NoSteps),
        ("# T\n- Do\n", PlanError::NoSteps),
        ("# T\n1.Do\n", PlanError::NoSteps),
        ("# T\n12345. Do\n", PlanError::NoSteps),
        ("# T\n1. Do\n1. Do more\n", PlanError::NumberTwice(1)),
        ("# T\n1.\n", PlanError::NoStepTitle(1)),
        ("# T\n1. [x]\n", PlanError::NoStepTitle(1)),
        ("# T\n1. (depends on: none)\n", PlanError::NoStepTitle(1)),
        ("# T\n1. Do\n   - depends on: the first one\n", unreadable("the first one")),
        ("# T\n1. Do (depends on: 1-3)\n", unreadable("1-3")),
        ("# T\n1. Do\n   depends on: 99999999999\n", unreadable("99999999999")),
        ("# T\n1. Do\n   depends on step 7\n", PlanError::DependencyUnknown { step: 1, on: 7 }),
        ("# T\n1. Do\n~~~\n2. Do\n", PlanError::OpenCodeBlock(3)),
        ("# T\n1. Do\n2. D\u{1b}[31mo\n", PlanError::ControlCharacter(3)),
        (&long, PlanError::TooLong(long.len())),
        (&many, PlanError::TooManySteps),
    ] {
        assert_eq!(PlanDocument::parse(text), Err(error.clone()), "{text}");
        // What is wrong, then what to write.
        assert!(error.to_string().contains(": "), "{error}");
    }
}

#[test]
fn damaged_plan_is_read_or_refused_and_never_panics() {
    let cuts = PLAN.char_indices().flat_map(|(at, _)| [PLAN[..at].to_owned(), PLAN[at..].to_owned()]);
    let swaps = ["[", "(", "ä", "\t", "\r\n", "```", "depends on", "1. ", "\0"];
    let swapped = PLAN
        .char_indices()
        .step_by(3)
        .flat_map(|(at, _)| swaps.map(|swap| format!("{}{swap}{}", &PLAN[..at], &PLAN[at..])));
    for text in cuts.chain(swapped) {
        let Ok(plan) = PlanDocument::parse(&text) else { continue };
        for step in &plan.steps {
            let marked = PlanDocument::parse(&step.mark_done(&text)).unwrap();
            assert!(marked.step(step.number).unwrap().done, "{text}");
            assert_eq!(marked.revision, plan.revision, "{text}");
        }
    }
}

#[test]
fn mark_changes_one_step_and_not_the_revision() {
    let before = plan(PLAN);
    let first = before.step(1).unwrap().mark_done(PLAN);
    assert_eq!(first, PLAN.replacen("1. Dig", "1. [x] Dig", 1));
    let both = plan(&first).step(3).unwrap().mark_done(&first);
    assert_eq!(both, first.replacen("3. [ ] Lay", "3. [x] Lay", 1));
    let after = plan(&both);
    assert_eq!((&after.revision, after.count_done()), (&before.revision, 4));
    assert_eq!(after.step(3).unwrap().mark_done(&both), both, "again");
    assert_ne!(plan(&PLAN.replace("Paint", "Plaster")).revision, before.revision);
    // A link is no mark.
    let link = plan("# T\n1. [x](https://example.org) is read\n");
    assert!(!link.steps[0].done);
}

#[test]
fn longest_plan_can_be_marked_to_its_end() {
    let steps = (1..=STEPS_MAX).fold("# T\n".to_owned(), |text, n| format!("{text}{n}. Do\n"));
    let mut text = steps.clone() + &"x".repeat(PLAN_BYTES_MAX - steps.len());
    for n in 1..=u32::try_from(STEPS_MAX).unwrap() {
        text = plan(&text).step(n).unwrap().mark_done(&text);
    }
    assert_eq!(plan(&text).count_done(), STEPS_MAX);
}

#[test]
fn order_rounds_and_cycles_follow_from_the_dependencies() {
    for (steps, order, rounds, cycles) in [
        (&[(1, &[][..]), (2, &[]), (3, &[])][..], &[1, 2, 3][..], &[&[1, 2, 3][..]][..], &[][..]),
        (&[(1, &[2]), (2, &[3]), (3, &[])], &[3, 2, 1], &[&[3], &[2], &[1]], &[]),
        (&[(1, &[]), (2, &[1]), (3, &[1]), (4, &[2, 3])], &[1, 2, 3, 4], &[&[1], &[2, 3], &[4]], &[]),
        (&[(-1, &[]), (2, &[1]), (3, &[1]), (4, &[2, 3])], &[1, 2, 3, 4], &[&[2, 3], &[4]], &[]),
        (&[(-1, &[]), (-2, &[1])], &[1, 2], &[], &[]),
        (&[(1, &[1])], &[], &[], &[&[1][..]]),
        (&[(1, &[2]), (2, &[1]), (3, &[2]), (4, &[])], &[4], &[&[4]], &[&[1, 2]]),
        (&[(1, &[2]), (2, &[1]), (3, &[4]), (4, &[3, 1])], &[], &[], &[&[1, 2], &[3, 4]]),
        // Somebody has marked a step of a cycle by hand: the others can be done.
        (&[(-1, &[2]), (2, &[1])], &[], &[&[2]], &[&[1, 2]]),
    ] {
        let found = StepOrder::from_plan(&graph(steps));
        assert_eq!(
            (&found.steps[..], &found.rounds[..], &found.cycles[..]),
            (order, &owned(rounds)[..], &owned(cycles)[..])
        );
        assert_eq!(found.ready(), rounds.first().map(|round| round.to_vec()).unwrap_or_default());
    }
    let waiting = StepOrder::from_plan(&graph(&[(-1, &[]), (2, &[1]), (3, &[1, 2]), (4, &[2, 3])])).waiting;
    assert_eq!(waiting.into_iter().collect::<Vec<_>>(), [(3, vec![2]), (4, vec![2, 3])]);
}

fn owned(lists: &[&[u32]]) -> Vec<Vec<u32>> {
    lists.iter().map(|list| list.to_vec()).collect()
}

#[test]
fn random_dependencies_keep_the_order_and_lose_no_step() {
    let mut state = 0x9e37_79b9_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let count = 1 + random(12);
        let steps: Vec<(i32, Vec<u32>)> = (1..=count)
            .map(|number| {
                let on = (0..random(4)).map(|_| u32::try_from(1 + random(count)).unwrap()).collect();
                (i32::try_from(number).unwrap(), on)
            })
            .collect();
        let rows: Vec<(i32, &[u32])> = steps.iter().map(|(number, on)| (*number, on.as_slice())).collect();
        let plan = graph(&rows);
        let found = StepOrder::from_plan(&plan);
        for (at, number) in found.steps.iter().enumerate() {
            let on = &plan.step(*number).unwrap().depends_on;
            assert!(on.iter().all(|on| found.steps[..at].contains(on)), "{plan:?}");
        }
        let mut in_rounds = found.rounds.concat();
        in_rounds.sort_unstable();
        let mut ordered = found.steps.clone();
        ordered.sort_unstable();
        assert_eq!(in_rounds, ordered);
        // What has no place in the order leads into a cycle.
        let stuck: Vec<u32> = plan.steps.iter().map(|step| step.number).filter(|n| !ordered.contains(n)).collect();
        assert_eq!(stuck.is_empty(), found.cycles.is_empty(), "{plan:?}");
        for number in stuck {
            let on = &plan.step(number).unwrap().depends_on;
            assert!(on.iter().any(|on| !ordered.contains(on)), "{plan:?}");
        }
    }
}
