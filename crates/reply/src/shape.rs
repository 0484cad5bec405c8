//! Whether the words of a match stand in one line.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Upper bound of the words and line ends that matches of a pattern may contain.
#[allow(clippy::struct_excessive_bools, reason = "five independent things that may be so")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Letters or digits of ASCII.
    word: bool,
    /// Whether a line may end there.
    end: bool,
    /// The end of a line somewhere before a letter or digit.
    before: bool,
    /// The end of a line somewhere behind a letter or digit.
    behind: bool,
    /// The end of a line between letters or digits.
    between: bool,
}

impl Shape {
    pub(crate) fn of(pattern: &Hir) -> Self {
        match pattern.kind() {
            HirKind::Empty | HirKind::Look(_) => Self::default(),
            HirKind::Literal(literal) => {
                let each = literal.0.iter().map(|byte| Self::holds(byte.is_ascii_alphanumeric(), *byte == b'\n'));
                each.fold(Self::default(), Self::then)
            }
            HirKind::Class(class) => {
                let has = |wanted: char| match class {
                    Class::Unicode(class) => class.iter().any(|r| (r.start()..=r.end()).contains(&wanted)),
                    Class::Bytes(class) => class.iter().any(|r| (r.start()..=r.end()).any(|b| char::from(b) == wanted)),
                };
                Self::holds(('0'..='z').filter(char::is_ascii_alphanumeric).any(has), has('\n'))
            }
            HirKind::Capture(capture) => Self::of(&capture.sub),
            HirKind::Repetition(repetition) => {
                let once = Self::of(&repetition.sub);
                if repetition.max.is_some_and(|max| max <= 1) { once } else { once.then(once).then(once) }
            }
            HirKind::Concat(parts) => parts.iter().map(Self::of).fold(Self::default(), Self::then),
            HirKind::Alternation(branches) => branches.iter().map(Self::of).fold(Self::default(), Self::or),
        }
    }

    /// Whether no match holds words of two lines.
    pub(crate) fn is_of_one_line(self) -> bool {
        !self.between
    }

    fn holds(word: bool, end: bool) -> Self {
        Self { word, end, ..Self::default() }
    }

    fn then(self, next: Self) -> Self {
        let between = self.behind && next.word || self.word && next.before;
        Self { before: self.end && next.word, behind: self.word && next.end, between, ..Self::default() }
            .or(self)
            .or(next)
    }

    fn or(self, other: Self) -> Self {
        Self {
            word: self.word || other.word,
            end: self.end || other.end,
            before: self.before || other.before,
            behind: self.behind || other.behind,
            between: self.between || other.between,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_syntax::parse;

    #[test]
    fn pattern_over_two_lines_is_detected() {
        for (pattern, one_line) in [
            ("all done", true),
            (r"(^|[.!?]\s+)\W*next\W*", true),
            (r"now|\s+next\s*", true),
            (r"(a+b?)\W", true),
            (r"all\s+done", false),
            (r"(now\s|so) done", false),
            (r"now (\s+done|so)", false),
            (r"(done\s)+", false),
            (r"(\sdone){2}", false),
            (r"(?s)all.*", false),
            (r"(?s)a.b", false),
            (r"a[^b]c", false),
            ("a\nb", false),
            (r"\W*\s", true),
        ] {
            assert_eq!(Shape::of(&parse(pattern).unwrap()).is_of_one_line(), one_line, "{pattern}");
        }
    }
}
