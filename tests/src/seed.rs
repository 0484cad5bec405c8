//! Seeds of randomised tests: fixed unless an environment variable sets another one, and always printed, so that a
//! failure can be reproduced.

use std::io::Write;

/// Variable with the path of a file that lists the seeds of a run: the output of a test that passes is not shown.
const LIST: &str = "AILOOP_SEED_LIST";
/// Seed where the variable is not set.
const FIXED: u64 = 20_260_101;

/// Reads the seed from an environment variable and prints it: a number, or `random` for a new one in each run. A fixed
/// one if the variable is not set.
pub fn of(variable: &str) -> u64 {
    let seed = chosen(configuration::env(variable).as_deref());
    #[allow(clippy::print_stderr, reason = "a failure is reproduced with it")]
    {
        eprintln!("seed {seed}; {variable}={seed} repeats it");
    }
    if let Some(path) = configuration::env(LIST) {
        let list = std::fs::File::options().create(true).append(true).open(path);
        // One write, so that lines of tests that run at the same time stay whole.
        let _ = list.and_then(|mut list| list.write_all(format!("{variable}={seed}\n").as_bytes()));
    }
    seed
}

fn chosen(value: Option<&str>) -> u64 {
    match value {
        None => FIXED,
        Some("random") => uuid::Uuid::now_v7().as_u64_pair().1 >> 16,
        Some(number) => number.parse().unwrap_or(FIXED),
    }
}

#[test]
fn seed_without_variable_is_fixed_and_random_differs() {
    assert_eq!([chosen(None), chosen(Some("4711"))], [FIXED, 4711]);
    assert_ne!(chosen(Some("random")), chosen(Some("random")));
}
