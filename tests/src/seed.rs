//! Seeds of tests that draw at random: fixed unless the environment says otherwise, and always printed, so that a failure
//! can be repeated.

/// The seed of every test whose variable is not set.
const FIXED: u64 = 20_260_101;

/// The seed that a variable names: a number, or `random` for another one in each run; a fixed one where it is not set.
/// It is printed.
pub fn of(variable: &str) -> u64 {
    let seed = chosen(configuration::env(variable).as_deref());
    #[allow(clippy::print_stderr, reason = "whoever looks into a failure needs it")]
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
fn seed_not_set_is_fixed_and_random_differs() {
    assert_eq!([chosen(None), chosen(Some("4711"))], [FIXED, 4711]);
    assert_ne!(chosen(Some("random")), chosen(Some("random")));
}
