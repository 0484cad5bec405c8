//! Durations and counts as people read them.

use std::time::Duration;

/// `320 ms`, `8.4 s` or `2 min 05 s`.
pub fn duration(time: Duration) -> String {
    let ms = time.as_millis();
    if ms < 1_000 {
        format!("{ms} ms")
    } else if ms < 60_000 {
        format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
    } else {
        format!("{} min {:02} s", ms / 60_000, ms / 1_000 % 60)
    }
}

/// `1,912`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 step`, `2 steps`
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        for (ms, text) in [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (8_449, "8.4 s"), (125_000, "2 min 05 s")] {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!((plural(1, "step").as_str(), plural(0, "step").as_str()), ("1 step", "0 steps"));
    }
}
