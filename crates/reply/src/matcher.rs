//! Finds the matches of one pattern in time that is linear in the text, whatever the pattern and the text are.
//!
//! A search that starts anew behind each match is quadratic: an engine may read to the end of the text to learn that
//! the longer match is not there, and does so again for the next one. Here one pass from the end marks, for each place
//! and each state of the pattern's automaton, whether a match can still be completed from there. A second pass from the
//! front then never takes a way that leads nowhere, so that it reads each character once. The matches are those of the
//! `regex` crate: leftmost, by preference of the pattern, without overlap.

use std::ops::Range;

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::look::{Look, LookMatcher, LookSet};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::Hir;

/// A pattern, compiled to an automaton for linear search.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    nfa: NFA,
    /// For each state the transitions on a byte that lead to it.
    bytes: Incoming<ByteEdge>,
    /// For each state the transitions without a byte that lead to it.
    empty: Incoming<EmptyEdge>,
    matches: Vec<u32>,
}

/// Transitions from one state to another, on any of some bytes.
#[derive(Debug, Clone, Copy)]
struct ByteEdge {
    from: u32,
    /// A bit for each byte.
    on: [u64; 4],
}

impl ByteEdge {
    fn add(&mut self, low: u8, high: u8) {
        for byte in low..=high {
            self.on[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
    }

    fn takes(&self, byte: u8) -> bool {
        self.on[usize::from(byte / 64)] & (1 << (byte % 64)) != 0
    }
}

/// A transition without a byte, perhaps under a condition on the place.
#[derive(Debug, Clone, Copy)]
struct EmptyEdge {
    from: u32,
    look: Option<Look>,
}

/// Transitions by the state that they lead to, one list behind the other.
#[derive(Debug, Clone)]
struct Incoming<T> {
    begins: Vec<u32>,
    edges: Vec<T>,
}

impl<T: Copy> Incoming<T> {
    fn new(states: usize, mut edges: Vec<(u32, T)>) -> Self {
        edges.sort_by_key(|(to, _)| *to);
        let mut begins = vec![0; states + 1];
        for (to, _) in &edges {
            begins[index(*to) + 1] += 1;
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        Self { begins, edges: edges.into_iter().map(|(_, edge)| edge).collect() }
    }

    fn of(&self, state: u32) -> &[T] {
        let at = index(state);
        &self.edges[index(self.begins[at])..index(self.begins[at + 1])]
    }

    fn bytes(&self) -> usize {
        self.begins.capacity() * size_of::<u32>() + self.edges.capacity() * size_of::<T>()
    }
}

impl Matcher {
    /// Compiles a parsed pattern; `None` where its automaton takes more bytes than these.
    pub(crate) fn new(pattern: &Hir, bytes_max: usize) -> Option<Self> {
        let config = Config::new().nfa_size_limit(Some(bytes_max)).which_captures(WhichCaptures::None);
        let nfa = Compiler::new().configure(config).build_from_hir(pattern).ok()?;
        let (mut bytes, mut empty, mut matches) = (Vec::new(), Vec::new(), Vec::new());
        for (state, from) in nfa.states().iter().zip(0_u32..) {
            let first = bytes.len();
            // A state of a class has many ranges of bytes for few states that follow.
            let mut byte = |low, high, to: StateID| {
                let known = bytes[first..].iter().position(|(known, _)| *known == id(to));
                let at = known.map_or(bytes.len(), |known| first + known);
                if at == bytes.len() {
                    bytes.push((id(to), ByteEdge { from, on: [0; 4] }));
                }
                bytes[at].1.add(low, high);
            };
            match state {
                State::ByteRange { trans } => byte(trans.start, trans.end, trans.next),
                State::Sparse(sparse) => {
                    sparse.transitions.iter().for_each(|trans| byte(trans.start, trans.end, trans.next));
                }
                State::Dense(dense) => {
                    for (at, to) in (0..=u8::MAX).filter_map(|at| Some((at, dense.matches_byte(at)?))) {
                        byte(at, at, to);
                    }
                }
                State::Look { look, next } => empty.push((id(*next), EmptyEdge { from, look: Some(*look) })),
                State::Union { alternates } => {
                    empty.extend(alternates.iter().map(|to| (id(*to), EmptyEdge { from, look: None })));
                }
                State::BinaryUnion { alt1, alt2 } => {
                    empty.extend([alt1, alt2].map(|to| (id(*to), EmptyEdge { from, look: None })));
                }
                State::Capture { next, .. } => empty.push((id(*next), EmptyEdge { from, look: None })),
                State::Fail => {}
                State::Match { .. } => matches.push(from),
            }
        }
        let states = nfa.states().len();
        Some(Self { bytes: Incoming::new(states, bytes), empty: Incoming::new(states, empty), matches, nfa })
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.nfa.memory_usage() + self.bytes.bytes() + self.empty.bytes()
    }

    /// All matches within a part of a text, in order. What is behind the part does not exist for them; what is before
    /// it can be looked at and is not part of a match. Each step is taken from `steps`; `None` where they do not
    /// suffice.
    pub(crate) fn find_all(&self, text: &str, part: Range<usize>, steps: &mut usize) -> Option<Vec<Range<usize>>> {
        let text = &text[..part.end];
        let mut looks = LookCache::new(self.nfa.look_matcher(), text.as_bytes());
        let live = self.live(&mut looks, part.start, steps)?;
        let mut search =
            Search { matcher: self, text: text.as_bytes(), looks, live: &live, visited: VisitedStates::new(self) };
        let start = id(self.nfa.start_anchored());
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut from = part.start;
        let next = |from: usize| (from..=text.len()).find(|at| live.has(*at, start) && text.is_char_boundary(*at));
        while let Some(begin) = next(from) {
            let end = search.end(begin).unwrap_or(begin);
            // An empty match just behind another one is none.
            if begin == end && found.last().is_some_and(|last| last.end == end) {
                from = begin + 1;
                continue;
            }
            from = end;
            found.push(begin..end);
            if begin == end {
                from += 1;
            }
        }
        Some(found)
    }

    /// From which states a match can be completed, for each place from `from` on. The way of the matches, which
    /// follows, visits no transition that is not visited here, and none of them twice.
    fn live(&self, looks: &mut LookCache<'_>, from: usize, steps: &mut usize) -> Option<LiveStates> {
        let text = looks.text;
        let words = self.nfa.states().len().div_ceil(64);
        let mut live = LiveStates { from, words, bits: vec![0; (text.len() - from + 1) * words] };
        let (mut now, mut behind): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for at in (from..=text.len()).rev() {
            std::mem::swap(&mut now, &mut behind);
            now.clear();
            for state in &self.matches {
                live.add(at, *state, &mut now);
            }
            let mut taken = words;
            if let Some(byte) = text.get(at) {
                for edges in behind.iter().map(|state| self.bytes.of(*state)) {
                    taken += edges.len();
                    for edge in edges.iter().filter(|edge| edge.takes(*byte)) {
                        live.add(at, edge.from, &mut now);
                    }
                }
            }
            let mut next = 0;
            while let Some(state) = now.get(next) {
                let edges = self.empty.of(*state);
                taken += 1 + edges.len();
                for EmptyEdge { from, look } in edges {
                    if !live.has(at, *from) && look.is_none_or(|look| looks.holds(look, at)) {
                        live.add(at, *from, &mut now);
                    }
                }
                next += 1;
            }
            *steps = steps.checked_sub(taken)?;
        }
        Some(live)
    }
}

/// Conditions on places of a text. What holds at a place is found out once.
struct LookCache<'a> {
    matcher: &'a LookMatcher,
    text: &'a [u8],
    at: usize,
    known: LookSet,
    holding: LookSet,
}

impl<'a> LookCache<'a> {
    fn new(matcher: &'a LookMatcher, text: &'a [u8]) -> Self {
        Self { matcher, text, at: 0, known: LookSet::empty(), holding: LookSet::empty() }
    }

    fn holds(&mut self, look: Look, at: usize) -> bool {
        if self.at != at {
            (self.at, self.known, self.holding) = (at, LookSet::empty(), LookSet::empty());
        }
        if !self.known.contains(look) {
            self.known = self.known.insert(look);
            if self.matcher.matches(look, self.text, at) {
                self.holding = self.holding.insert(look);
            }
        }
        self.holding.contains(look)
    }
}

/// A set of states for each place.
struct LiveStates {
    from: usize,
    words: usize,
    bits: Vec<u64>,
}

impl LiveStates {
    fn has(&self, at: usize, state: u32) -> bool {
        self.bits[(at - self.from) * self.words + index(state) / 64] & (1 << (state % 64)) != 0
    }

    fn add(&mut self, at: usize, state: u32, list: &mut Vec<u32>) {
        let word = &mut self.bits[(at - self.from) * self.words + index(state) / 64];
        let bit = 1 << (state % 64);
        if *word & bit == 0 {
            *word |= bit;
            list.push(state);
        }
    }
}

/// The way of one match after the other through the automaton.
struct Search<'a> {
    matcher: &'a Matcher,
    text: &'a [u8],
    looks: LookCache<'a>,
    live: &'a LiveStates,
    visited: VisitedStates,
}

impl Search<'_> {
    /// Returns the end of the match that begins at `begin`.
    fn end(&mut self, begin: usize) -> Option<usize> {
        let Self { matcher: Matcher { nfa, .. }, text, looks, live, visited } = self;
        let (mut at, mut stack) = (begin, vec![nfa.start_anchored()]);
        visited.clear();
        // By preference: what was pushed last is tried first, and what can lead to no match is left out.
        while let Some(state) = stack.pop() {
            if !live.has(at, id(state)) || !visited.add(id(state)) {
                continue;
            }
            let next = match nfa.state(state) {
                State::ByteRange { trans } => trans.matches(text, at).then_some(trans.next),
                State::Sparse(sparse) => sparse.matches(text, at),
                State::Dense(dense) => dense.matches(text, at),
                State::Look { look, next } => {
                    if looks.holds(*look, at) {
                        stack.push(*next);
                    }
                    None
                }
                State::Union { alternates } => {
                    stack.extend(alternates.iter().rev());
                    None
                }
                State::BinaryUnion { alt1, alt2 } => {
                    stack.extend([alt2, alt1]);
                    None
                }
                State::Capture { next, .. } => {
                    stack.push(*next);
                    None
                }
                State::Fail => None,
                State::Match { .. } => return Some(at),
            };
            if let Some(next) = next.filter(|next| live.has(at + 1, id(*next))) {
                at += 1;
                stack.clear();
                stack.push(next);
                visited.clear();
            }
        }
        None
    }
}

/// The states that were tried at one place.
struct VisitedStates {
    marks: Vec<u32>,
    mark: u32,
}

impl VisitedStates {
    fn new(matcher: &Matcher) -> Self {
        Self { marks: vec![0; matcher.nfa.states().len()], mark: 0 }
    }

    fn clear(&mut self) {
        // There are fewer places in a text than marks.
        self.mark = self.mark.saturating_add(1);
    }

    fn add(&mut self, state: u32) -> bool {
        std::mem::replace(&mut self.marks[index(state)], self.mark) != self.mark
    }
}

fn id(state: StateID) -> u32 {
    u32::try_from(state.as_usize()).unwrap_or(u32::MAX)
}

fn index(state: u32) -> usize {
    usize::try_from(state).unwrap_or(usize::MAX)
}
