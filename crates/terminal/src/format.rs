//! Formats durations, counts and excerpts of texts for people.

use std::time::Duration;

/// Formats a duration: `320 ms`, `8.4 s` or `2 min 05 s`.
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

/// Formats an age in one unit: `45 s`, `12 min`, `5 h` or `3 d`.
pub fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Formats a number of bytes in one decimal unit: `512 B`, `1.5 MB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    let unit = UNITS.into_iter().find(|(_, size)| bytes >= *size);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(name, size)| format!("{}.{} {name}", bytes / size, (bytes % size) / (size / 10)),
    )
}

/// Formats a count with separators: `1,912`.
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

/// Formats a count with its noun: `1 step`, `2 steps`.
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Joins the words of a text to one line.
pub fn join_words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cuts a text with an ellipsis to at most this many characters.
pub fn cut(text: String, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text;
    }
    text.chars().take(chars_max - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_counts_are_formatted_for_people() {
        for (ms, text) in [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (8_449, "8.4 s"), (125_000, "2 min 05 s")] {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (seconds, text) in [(59, "59 s"), (60, "1 min"), (7_199, "1 h"), (200_000, "2 d")] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
        for (number, text) in [(999, "999 B"), (1_500, "1.5 kB"), (12_345_678, "12.3 MB"), (7_000_000_000, "7.0 GB")] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!((plural(1, "step").as_str(), plural(0, "step").as_str()), ("1 step", "0 steps"));
    }
}
