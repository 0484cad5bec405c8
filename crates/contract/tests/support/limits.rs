//! Reads `contract::limits` as text, so that no constant can be forgotten, and writes values as people do.

/// Every constant: its name, and its value as the page shows it.
pub(crate) fn all(source: &str) -> Vec<(String, String)> {
    let constants = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    constants
        .map(|line| {
            let (name, rest) = line.split_once(": ").unwrap();
            let value = rest.split_once(" = ").unwrap().1.trim_end_matches(';');
            (name.to_owned(), shown(name, value))
        })
        .collect()
}

fn shown(name: &str, value: &str) -> String {
    let Some(call) = value.strip_prefix("Duration::from_") else {
        let number = number(value);
        return if name.contains("BYTES") { bytes(number) } else { grouped(number) };
    };
    let (unit, argument) = call.trim_end_matches(')').split_once('(').unwrap();
    let millis = match unit {
        "hours" => 3_600_000,
        "mins" => 60_000,
        "secs" => 1_000,
        "millis" => 1,
        other => panic!("an unknown unit: {other}"),
    };
    time(number(argument) * millis)
}

/// A literal, a product or a shift.
fn number(text: &str) -> u64 {
    let literal = |text: &str| text.replace('_', "").trim().parse::<u64>().unwrap();
    if let Some((a, b)) = text.split_once("<<") {
        literal(a) << literal(b)
    } else if let Some((a, b)) = text.split_once('*') {
        literal(a) * literal(b)
    } else {
        literal(text)
    }
}

fn bytes(number: u64) -> String {
    if number.is_multiple_of(1 << 20) { format!("{} MiB", number >> 20) } else { format!("{} KiB", number >> 10) }
}

fn time(millis: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let unit = units.iter().find(|(unit, name)| millis.is_multiple_of(*unit) && (*name != "d" || millis > *unit));
    unit.map_or_else(|| format!("{millis} ms"), |(unit, name)| format!("{} {name}", millis / unit))
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
