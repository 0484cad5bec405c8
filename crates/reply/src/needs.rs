//! What a text must hold so that a pattern can match: words, as far as they can be told from the pattern.
//!
//! It may be told too little, never too much: a match without what is told here does not exist. Case does not count, and
//! texts with the two characters beyond ASCII that are ASCII letters in another case are not to be asked at all: see
//! [`BEYOND`].

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

/// The long s and the sign for Kelvin: other cases of `s` and `k`, which is not heeded here.
pub(crate) const BEYOND: [char; 2] = ['\u{17F}', '\u{212A}'];
/// Words of which one is needed, that are told one by one.
const TOLD_MAX: usize = 16;
/// Words of which one is needed, put together from the branches of an alternation.
const ANY_MAX: usize = 64;
/// Bytes of a word. A shorter one is in every text, and what follows in a longer one tells little more.
const WORD_BYTES: std::ops::RangeInclusive<usize> = 3..=8;

/// Words in lower case; one of them is needed.
pub(crate) type AnyOf = BTreeSet<Vec<u8>>;

/// What every match of a pattern holds.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// All that it matches, in lower case, where that is little: then the rest says nothing.
    all: Option<AnyOf>,
    /// Whether a match may hold the end of a line.
    breaks: bool,
    /// What it holds before the first end of a line, behind the last one, and in lines between or nobody knows where.
    first: Vec<AnyOf>,
    last: Vec<AnyOf>,
    other: Vec<Vec<AnyOf>>,
}

impl Needs {
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

    /// What is needed: each of these lists within one line of the text.
    pub(crate) fn lines(self) -> Vec<Vec<AnyOf>> {
        let Self { first, last, mut other, .. } = self.known();
        other.extend([first, last]);
        other.retain(|line| !line.is_empty());
        other
    }

    /// What is needed where all that it matches is not of use.
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
        let count: usize = ranges.iter().map(|(from, to)| (*from..=*to).take(TOLD_MAX + 1).count()).sum();
        if count > TOLD_MAX {
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
        // What the line holds that goes on, and the texts of the parts just before, one behind the other.
        let (mut line, mut run) = (Vec::new(), Some(AnyOf::from([Vec::new()])));
        let mut exact = true;
        for part in parts.iter().map(Self::of) {
            if let (Some(before), Some(texts), false) = (&run, &part.all, part.breaks)
                && before.len() * texts.len() <= TOLD_MAX
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
            if all.len() <= TOLD_MAX {
                return Self { all: Some(all), breaks, ..Self::default() };
            }
        }
        let branches: Vec<Self> = branches.into_iter().map(Self::known).collect();
        // Of each branch the words that tell most: the longest.
        let best = |of: &dyn Fn(&Self) -> Vec<AnyOf>| {
            let longest = |any: &AnyOf| (any.iter().map(Vec::len).min(), std::cmp::Reverse(any.len()));
            let each = branches.iter().map(|branch| of(branch).into_iter().max_by_key(longest));
            each.collect::<Option<Vec<_>>>().and_then(|each| usable(each.into_iter().flatten().collect()))
        };
        let first = best(&|branch| branch.first.clone());
        // Without the end of a line, the first line is the last one.
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

/// Words that tell something; none where one of them is in every text, or where there are too many.
fn usable(words: AnyOf) -> Option<AnyOf> {
    let fits = words.len() <= ANY_MAX && words.iter().all(|word| word.len() >= *WORD_BYTES.start());
    let cut = |word: Vec<u8>| word.into_iter().take(*WORD_BYTES.end()).collect();
    (fits && !words.is_empty()).then(|| words.into_iter().map(cut).collect())
}
