//! Parts of a text in which matches are looked for one by one.

use std::ops::Range;

/// Splits off the parts that hold all matches of a pattern whose words are always of one line, the last part first.
///
/// `lines` are where the lines begin, in order, in which such words can be. A match may go on from there over what is
/// no word, up to the words of other lines. Neighbours are one part: there a match may take what the next one would
/// begin with. A part ends behind the first letter of the words that follow, which the last match may look at and
/// cannot hold.
pub(crate) fn windows<'a>(text: &'a str, lines: &'a [usize]) -> impl Iterator<Item = Range<usize>> + 'a {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut rest = lines;
    std::iter::from_fn(move || {
        let (last, before) = rest.split_last()?;
        let end = text[*last..].find('\n').map_or(text.len(), |at| last + at);
        let end = text[end..].find(is_word).map_or(text.len(), |at| end + at + 1);
        rest = before;
        let mut begin = *last;
        loop {
            let Some(word) = text[..begin].rfind(is_word) else { return Some(0..end) };
            match rest.split_last() {
                Some((neighbour, before)) if text[..word].rfind('\n').map_or(0, |at| at + 1) == *neighbour => {
                    begin = *neighbour;
                    rest = before;
                }
                Some(_) | None => return Some(word + 1..end),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_ends_at_the_words_of_other_lines() {
        for (text, lines, parts) in [
            ("one", &[0][..], &[(0, 3)][..]),
            ("", &[], &[]),
            ("one.\n\n- two: \n\nthree", &[6], &[(3, 16)]),
            ("one.\n\n- two: \n\nthree", &[15], &[(11, 20)]),
            ("one\ntwo\nthree", &[0, 4], &[(0, 9)]),
            ("one\n.\ntwo\nthree\nfour", &[0, 6, 16], &[(15, 20), (0, 11)]),
            ("\n\none", &[2], &[(0, 5)]),
        ] {
            let found: Vec<(usize, usize)> = windows(text, lines).map(|part| (part.start, part.end)).collect();
            assert_eq!(found, parts, "{text:?}");
        }
    }
}
