//! Seeds of randomised tests: fixed unless an environment variable sets another one, and always printed, so that a
//! failure can be reproduced.

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
