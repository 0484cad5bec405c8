//! Decodes a JSON string while it comes, character by character.

/// The state within a string.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// An escape that is not whole yet.
    escape: String,
    /// The first half of a character outside the basic plane.
    high: Option<u16>,
}

impl Decoder {
    /// Takes a character of the string's source in. What is no valid escape stays as it stands.
    pub(crate) fn push(&mut self, c: char, out: &mut String) {
        if self.escape.is_empty() {
            if c == '\\' {
                self.escape.push(c);
            } else {
                self.lone(out);
                out.push(c);
            }
            return;
        }
        self.escape.push(c);
        let unit = match (self.escape.len(), c) {
            (2, 'u') | (3..6, '0'..='9' | 'a'..='f' | 'A'..='F') => return,
            (6, '0'..='9' | 'a'..='f' | 'A'..='F') => u16::from_str_radix(&self.escape[2..], 16).ok(),
            (2, 'n') => Some(0x0A),
            (2, 'r') => Some(0x0D),
            (2, 't') => Some(0x09),
            (2, 'b') => Some(0x08),
            (2, 'f') => Some(0x0C),
            (2, '"' | '\\' | '/') => u16::try_from(u32::from(c)).ok(),
            _ => None,
        };
        let escape = std::mem::take(&mut self.escape);
        if let Some(unit) = unit {
            self.unit(unit, out);
        } else {
            self.lone(out);
            out.push_str(&escape);
        }
    }

    fn unit(&mut self, unit: u16, out: &mut String) {
        let units: &[u16] = match self.high.take() {
            None if (0xD800..0xDC00).contains(&unit) => {
                self.high = Some(unit);
                return;
            }
            None => &[unit],
            Some(high) => &[high, unit],
        };
        out.extend(char::decode_utf16(units.iter().copied()).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
    }

    /// A first half without its second one.
    fn lone(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_what_is_none_stays() {
        for (source, text) in [
            ("plain \u{e4}", "plain \u{e4}"),
            (r#"a \"b\" \\ \/ \n\t"#, "a \"b\" \\ / \n\t"),
            (r"\u00e4 \ud83e\udd80!", "\u{e4} \u{1f980}!"),
            (r"\ud83e! \ud83e\n", "\u{fffd}! \u{fffd}\n"),
            (r"\x \u12g", r"\x \u12g"),
            (r"half \u00", "half "),
        ] {
            let (mut decoder, mut out) = (Decoder::default(), String::new());
            source.chars().for_each(|c| decoder.push(c, &mut out));
            assert_eq!(out, text, "{source}");
        }
    }
}
