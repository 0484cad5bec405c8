//! Extracts the literals that a text must contain so that a pattern can match.
//!
//! The set may be too small but never too large: each match contains all these literals. Case is ignored. Texts that
//! contain one of the two characters outside ASCII whose other case is an ASCII letter cannot be filtered: see
//! [`BEYOND`].

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

/// The long s and the Kelvin sign: other cases of `s` and `k`, which the prefilter does not fold.
pub(crate) const BEYOND: [char; 2] = ['\u{17F}', '\u{212A}'];
/// Literals of a set that are enumerated from classes and concatenations.
const EXACT_MAX: usize = 16;
/// Literals of a set that is merged from the branches of an alternation.
const ANY_MAX: usize = 64;
/// Bytes of a literal. A shorter one is in almost every text, and a longer one is cut since it filters little more.
const WORD_BYTES: std::ops::RangeInclusive<usize> = 3..=8;

/// Literals in lower case, of which a match contains at least one.
pub(crate) type AnyOf = BTreeSet<Vec<u8>>;

/// The literals that every match of a pattern contains.
#[derive(Debug, Default)]
pub(crate) struct RequiredLiterals {
    /// All texts that it matches, in lower case, if they are few. Then the other fields are empty.
    all: Option<AnyOf>,
    /// Whether a match may contain a line break.
    breaks: bool,
    /// Literals before the first line break, after the last one, and in lines between or at an unknown position.
    first: Vec<AnyOf>,
    last: Vec<AnyOf>,
    other: Vec<Vec<AnyOf>>,
}

impl RequiredLiterals {
    pub(crate) fn of(pattern: &Hir) -> Self {
        match pattern.kind() {
            HirKind::Empty | HirKind::Look(_) => Self::exactly(AnyOf::from([Vec::new()])),
            HirKind::Literal(literal) => Self::exactly(AnyOf::from([literal.0.to_ascii_lowercase()])),
            HirKind::Class(class) => Self::class(class),
            HirKind::Capture(capture) => Self::of(&capture.sub),
            HirKind::Repetition(repetition) => Self::repetition(repetition),
            HirKind::Concat(parts) => Self::concat(parts),
            HirKind::Alternation(branches) => Self::alternation(branches.iter().map(Self::of).collect()),
        }
    }

    /// Lists of literals; those of each list are within one line of the text.
    pub(crate) fn lines(self) -> Vec<Vec<AnyOf>> {
        let Self { first, last, mut other, .. } = self.known();
        other.extend([first, last]);
        other.retain(|line| !line.is_empty());
        other
    }

    /// Turns the exact texts into required literals.
    fn known(mut self) -> Self {
        let word = self.all.take().and_then(usable);
        if self.breaks {
            self.other.extend(word.map(|word| vec![word]));
        } else {
            self.first.extend(word);
        }
        self
    }

    fn exactly(all: AnyOf) -> Self {
        let breaks = all.iter().any(|text| text.contains(&b'\n'));
        Self { all: Some(all), breaks, ..Self::default() }
    }

    fn class(class: &Class) -> Self {
        let ranges: Vec<(char, char)> = match class {
            Class::Unicode(class) => class.iter().map(|range| (range.start(), range.end())).collect(),
            Class::Bytes(class) => class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
        };
        let count: usize = ranges.iter().map(|(from, to)| (*from..=*to).take(EXACT_MAX + 1).count()).sum();
        if count > EXACT_MAX {
            let breaks = ranges.iter().any(|(from, to)| (*from..=*to).contains(&'\n'));
            return Self { breaks, ..Self::default() };
        }
        let lower = |c: char| match c {
            '\u{17F}' => 's',
            '\u{212A}' => 'k',
            c => c.to_ascii_lowercase(),
        };
        let chars = ranges.into_iter().flat_map(|(from, to)| from..=to);
        Self::exactly(chars.map(|c| lower(c).to_string().into_bytes()).collect())
    }

    fn repetition(repetition: &Repetition) -> Self {
        let mut once = Self::of(&repetition.sub);
        match (repetition.min, repetition.max, &mut once.all) {
            (1, Some(1), _) => once,
            (0, Some(1), Some(all)) => {
                all.insert(Vec::new());
                once
            }
            (0, _, _) => Self { breaks: once.breaks, ..Self::default() },
            _ => once.known(),
        }
    }

    fn concat(parts: &[Hir]) -> Self {
        let mut whole = Self::default();
        // The literals of the current line, and the concatenated texts of the last parts.
        let (mut line, mut run) = (Vec::new(), Some(AnyOf::from([Vec::new()])));
        let mut exact = true;
        for part in parts.iter().map(Self::of) {
            if let (Some(before), Some(texts), false) = (&run, &part.all, part.breaks)
                && before.len() * texts.len() <= EXACT_MAX
            {
                run = Some(before.iter().flat_map(|a| texts.iter().map(move |b| [&a[..], b].concat())).collect());
                continue;
            }
            exact = false;
            line.extend(run.take().and_then(usable));
            if let (Some(texts), false) = (&part.all, part.breaks) {
                run = Some(texts.clone());
                continue;
            }
            run = Some(AnyOf::from([Vec::new()]));
            let Self { breaks, first, last, other, .. } = part.known();
            line.extend(first);
            if breaks {
                let ended = std::mem::replace(&mut line, last);
                if whole.breaks {
                    whole.other.push(ended);
                } else {
                    (whole.breaks, whole.first) = (true, ended);
                }
                whole.other.extend(other);
            }
        }
        if let (true, Some(run)) = (exact, &run) {
            return Self::exactly(run.clone());
        }
        line.extend(run.and_then(usable));
        if whole.breaks {
            whole.last = line;
        } else {
            whole.first = line;
        }
        whole
    }

    fn alternation(branches: Vec<Self>) -> Self {
        let breaks = branches.iter().any(|branch| branch.breaks);
        if let Some(all) = branches.iter().map(|branch| branch.all.clone()).collect::<Option<Vec<_>>>() {
            let all: AnyOf = all.into_iter().flatten().collect();
            if all.len() <= EXACT_MAX {
                return Self { all: Some(all), breaks, ..Self::default() };
            }
        }
        let branches: Vec<Self> = branches.into_iter().map(Self::known).collect();
        // The most selective literals of each branch: the longest ones.
        let best = |of: &dyn Fn(&Self) -> Vec<AnyOf>| {
            let longest = |any: &AnyOf| (any.iter().map(Vec::len).min(), std::cmp::Reverse(any.len()));
            let each = branches.iter().map(|branch| of(branch).into_iter().max_by_key(longest));
            each.collect::<Option<Vec<_>>>().and_then(|each| usable(each.into_iter().flatten().collect()))
        };
        let first = best(&|branch| branch.first.clone());
        // Without a line break the first line is the last one.
        let last = best(&|branch| if branch.breaks { branch.last.clone() } else { branch.first.clone() });
        let any =
            best(&|branch| [&branch.first, &branch.last].into_iter().chain(&branch.other).flatten().cloned().collect());
        let is_placed = first.is_some() || last.is_some();
        Self {
            all: None,
            breaks,
            first: first.into_iter().collect(),
            last: last.filter(|_| breaks).into_iter().collect(),
            other: any.filter(|_| !is_placed).map(|any| vec![any]).into_iter().collect(),
        }
    }
}

/// Cuts the literals to their longest length. Returns `None` if one of them is too short, or if there are too many.
fn usable(words: AnyOf) -> Option<AnyOf> {
    let fits = words.len() <= ANY_MAX && words.iter().all(|word| word.len() >= *WORD_BYTES.start());
    let cut = |word: Vec<u8>| word.into_iter().take(*WORD_BYTES.end()).collect();
    (fits && !words.is_empty()).then(|| words.into_iter().map(cut).collect())
}
