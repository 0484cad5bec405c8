//! Tests that measure or watch their whole process.

/// Runs this test again in a process where no other test runs; returns whether this is that process.
pub(crate) fn is_alone(test: &str) -> bool {
    const ALONE: &str = "AILOOP_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
