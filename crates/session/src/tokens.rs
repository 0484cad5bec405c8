//! Tokens of a request: how many there may be, and how many there are.

use contract::event::Spent;

/// Bytes of a token, times ten, while the provider has not counted any yet.
const BYTES_PER_TEN_TOKENS: u64 = 36;
/// Bytes of a token at most, whatever a provider reports; at least it is one.
const BYTES_PER_TOKEN_MAX: u64 = 12;

/// Tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenBudget {
    /// There must not be more.
    pub(crate) most: u64,
    /// Target if something is left out, so that the next step need not leave out more.
    pub(crate) wanted: u64,
}

impl TokenBudget {
    /// Returns the budget of a context window, less the share of the reply.
    pub(crate) fn of(window: u64, max_output: Option<u64>) -> Self {
        let reply = max_output.unwrap_or(window / 4).min(window / 2);
        let most = window - reply;
        Self { most, wanted: most / 4 * 3 }
    }

    pub(crate) fn half_of(tokens: u64) -> Self {
        Self { most: tokens / 2, wanted: tokens / 2 }
    }
}

/// Tokens that a provider counted for a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct TokenMeasurement {
    bytes: u64,
    tokens: u64,
}

impl TokenMeasurement {
    /// `None` where the provider counted nothing.
    pub(crate) fn new(bytes: usize, spent: Spent) -> Option<Self> {
        let bytes = bytes as u64;
        let tokens = spent.usage.input.clamp(bytes / BYTES_PER_TOKEN_MAX, bytes);
        (spent.usage.input > 0 && tokens > 0).then_some(Self { bytes, tokens })
    }

    pub(crate) fn tokens(measured: Option<Self>, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        match measured {
            Some(Self { bytes: of, tokens }) => bytes.saturating_mul(tokens).div_ceil(of.max(1)),
            None => (bytes * 10).div_ceil(BYTES_PER_TEN_TOKENS),
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::model::Usage;

    use super::*;

    #[test]
    fn token_budget_is_the_window_without_the_reply() {
        for (window, max_output, most, wanted) in [
            (8_000, Some(1_000), 7_000, 5_250),
            (8_000, None, 6_000, 4_500),
            // A reply never takes more than half of it, whatever output limit the model has.
            (8_000, Some(7_000), 4_000, 3_000),
        ] {
            assert_eq!(TokenBudget::of(window, max_output), TokenBudget { most, wanted });
        }
        assert_eq!(TokenBudget::half_of(9_001), TokenBudget { most: 4_500, wanted: 4_500 });
    }

    #[test]
    fn tokens_are_estimated_until_the_provider_counts() {
        let counted = |input| Spent { usage: Usage { input, ..Usage::default() }, ..Spent::default() };
        assert_eq!(TokenMeasurement::tokens(None, 3_600), 1_000);
        assert_eq!(TokenMeasurement::tokens(None, 3_601), 1_001, "rounded up");
        assert_eq!(TokenMeasurement::new(4_000, counted(0)), None);
        let measured = TokenMeasurement::new(4_000, counted(2_000));
        assert_eq!(measured, Some(TokenMeasurement { bytes: 4_000, tokens: 2_000 }));
        assert_eq!(
            (TokenMeasurement::tokens(measured, 6_000), TokenMeasurement::tokens(measured, 6_001)),
            (3_000, 3_001)
        );
        // A provider that counts nonsense is believed within limits: a token is one byte to twelve.
        assert_eq!(TokenMeasurement::new(4_800, counted(1)), Some(TokenMeasurement { bytes: 4_800, tokens: 400 }));
        assert_eq!(
            TokenMeasurement::new(4_800, counted(9_000)),
            Some(TokenMeasurement { bytes: 4_800, tokens: 4_800 })
        );
        assert_eq!(TokenMeasurement::new(11, counted(1)), Some(TokenMeasurement { bytes: 11, tokens: 1 }));
        assert_eq!(TokenMeasurement::new(0, counted(1)), None);
    }
}
