//! "Did you mean": the known word that is closest to one that is not known.

/// Longest word that is compared, in characters; a longer one was not mistyped.
const WORD_CHARS_MAX: usize = 64;
/// Characters at the beginning that a name must share with a known one to be taken for it.
const PREFIX_CHARS_MIN: usize = 2;

/// The candidate that differs from `word` by the fewest edits, if these are at most a third of its characters.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = folded(word)?;
    // Of one or two characters every other word of that length would be close.
    let edits_max = word.len() / 3;
    let distance = |candidate: &'a str| Some((edits(&word, &folded(candidate)?), candidate));
    let found = candidates.into_iter().filter_map(distance).filter(|(edits, _)| *edits <= edits_max);
    found.min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// As [`closest`], else the only candidate that begins with the same characters: `paula` for `patricia`.
pub fn closest_name<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    closest(word, candidates.iter().copied()).or_else(|| {
        let begin: String = word.to_lowercase().chars().take(PREFIX_CHARS_MIN).collect();
        let mut alike = candidates.iter().filter(|candidate| {
            begin.chars().count() == PREFIX_CHARS_MIN && candidate.to_lowercase().starts_with(&begin)
        });
        alike.next().filter(|_| alike.next().is_none()).copied()
    })
}

/// ` (did you mean "x"?)` for the [`closest`], or nothing: to be put behind the word.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, candidates).map_or_else(String::new, |found| format!(" (did you mean {found:?}?)"))
}

/// Lower case; none where the word is too long to be compared.
fn folded(word: &str) -> Option<Vec<char>> {
    let folded: Vec<char> = word.chars().take(WORD_CHARS_MAX + 1).flat_map(char::to_lowercase).collect();
    (1..=WORD_CHARS_MAX).contains(&folded.len()).then_some(folded)
}

/// Insertions, deletions, replacements and exchanges of neighbours that make one word of the other.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest_mistyped_word_is_found_and_other_words_are_not() {
        let known = ["model", "tools", "features", "continuation_config", "m"];
        for (word, expect) in [
            ("modle", Some("model")),
            ("Model", Some("model")),
            ("feature", Some("features")),
            ("continuation", None),
            ("zzz", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(closest(word, known), expect, "{word}");
        }
        assert_eq!(closest(&"m".repeat(1_000), known), None);
    }

    #[test]
    fn closest_name_same_beginning_is_found_if_unique() {
        let agents = ["alice", "patricia", "tessa", "debbie", "eamonn"];
        assert_eq!(closest_name("Paula", agents), Some("patricia"));
        assert_eq!(closest_name("eamon", agents), Some("eamonn"));
        assert_eq!(closest_name("x", agents), None);
        assert_eq!(closest_name("Paula", ["patricia", "paul", "pavel"]), Some("paul"));
        assert_eq!(closest_name("Padme", ["patricia", "pavel"]), None);
    }
}
