//! A check that fails with a text.

/// Returns `Err` with a formatted text unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)*) => {
        if !$condition {
            return Err(format!($($why)*));
        }
    };
}

pub(crate) use ensure;
