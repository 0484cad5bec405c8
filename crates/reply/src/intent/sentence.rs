//! The end of a reply as sentences: what the model itself says to its reader, without code, quotations and thinking.

use std::ops::Range;

use crate::prose::plain;

/// Bytes of a reply that are read, from its end.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Sentences that are read, from the end.
const SENTENCES_MAX: usize = 80;
/// Stands for a span of code or a quotation: a noun that says nothing.
pub(super) const SPAN: char = '\u{1}';
/// Tags around a thought; what stands between them is not meant for the reader.
const THOUGHTS: &[&str] = &["think", "thinking", "thought", "reasoning"];

/// Lines with which a letter begins, and with which it ends: what stands between is not said to the reader.
const SALUTATIONS: &[&str] = &[
    "dear ",
    "hi ",
    "hello ",
    "sehr geehrte",
    "liebe ",
    "lieber ",
    "hallo ",
    "guten tag",
    "bonjour",
    "cher ",
    "chère ",
    "madame",
    "monsieur",
    "estimad",
    "querid",
    "hola ",
    "buenos días",
    "subject:",
    "betreff:",
    "objet :",
    "asunto:",
    "件名",
    "主题：",
    "尊敬的",
];
const CLOSINGS: &[&str] = &[
    "best regards",
    "kind regards",
    "sincerely",
    "yours",
    "best,",
    "thanks,",
    "mit freundlichen",
    "viele grüße",
    "beste grüße",
    "liebe grüße",
    "cordialement",
    "bien à vous",
    "bien cordialement",
    "saludos",
    "un saludo",
    "atentamente",
    "敬具",
    "此致",
    "よろしくお願い",
    "何とぞ",
    "祝好",
    "cheers,",
    "regards,",
    "warm regards",
    "un cordial saludo",
];

/// What a sentence ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Full,
    Question,
    Colon,
    /// Three dots.
    Dots,
    /// The end of its line.
    Line,
}

/// Where a sentence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Text,
    Heading,
    /// An item of a list.
    Item,
}

/// A sentence in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sentence {
    range: Range<usize>,
    pub(super) end: End,
    pub(super) place: Place,
    /// An item that is marked as done.
    pub(super) is_ticked: bool,
    /// Counts paragraphs.
    pub(super) paragraph: usize,
}

/// The sentences of a reply's end.
#[derive(Debug, Default)]
pub(super) struct Sentences {
    text: String,
    all: Vec<Sentence>,
    /// Whether code or a quotation follows the last sentence.
    pub(super) is_followed: bool,
}

/// A line in which the model speaks to its reader.
#[derive(Debug)]
struct Line<'a> {
    text: &'a str,
    paragraph: usize,
    /// Whether code, a quotation or a text for somebody else comes before the next such line.
    is_followed: bool,
}

/// The lines of a reply's end in which the model speaks to its reader.
#[derive(Debug, Default)]
pub(super) struct Lines<'a>(Vec<Line<'a>>);

impl<'a> Lines<'a> {
    pub(super) fn of(reply: &'a str) -> Self {
        let from = reply.ceil_char_boundary(reply.len().saturating_sub(TEXT_BYTES_MAX));
        let (mut from, mut reply) = (from, reply);
        if reply[from..].contains('<') {
            let thoughts = thoughts_end(&reply[from..]);
            reply = without_open_thought(reply, from);
            from = (from + thoughts).min(reply.len());
        }
        let begin = reply[..from].rfind('\n').map_or(0, |end| end + 1);
        let mut fenced = reply[..begin].lines().filter(|line| is_fence(line)).count() % 2 == 1;
        let mut lines = Self::default();
        let stated = staged(&reply[begin..]);
        let (mut paragraph, mut skipped, mut is_letter) = (0, from - begin, false);
        // Up to which paragraph the lines are those of a text for somebody else, and whether a rule ends it.
        let (mut draft, mut is_ruled) = (None, false);
        for (number, whole) in reply[begin..].lines().enumerate() {
            let line = whole.get(std::mem::take(&mut skipped)..).unwrap_or_default();
            if is_fence(whole) {
                fenced = !fenced;
                lines.skip();
            } else if fenced || is_quoted(whole) || stated.contains(&number) {
                lines.skip();
            } else if line.trim().is_empty() {
                paragraph += 1;
            } else if is_rule(line) && (is_ruled || draft.is_some_and(|last| paragraph <= last)) {
                // A rule that no other one closes is no frame.
                let is_closed = is_ruled || reply[begin..].lines().skip(number + 1).any(is_rule);
                (draft, is_ruled) = (None, !is_ruled && is_closed);
            } else if is_ruled || draft.is_some_and(|last| paragraph <= last) {
                lines.skip();
            } else if let Some((end, is_whole)) = introduces_draft(line) {
                lines.0.push(Line { text: &line[..end], paragraph, is_followed: true });
                // Behind a blank line the draft is the next paragraph.
                let is_apart = reply[begin..].lines().nth(number + 1).is_none_or(|next| next.trim().is_empty());
                draft = Some(paragraph + usize::from(is_whole && is_apart));
            } else if is_letter || begins_letter(line) {
                is_letter = !ends_letter(line);
                lines.skip();
            } else {
                lines.0.push(Line { text: line, paragraph, is_followed: false });
            }
        }
        lines
    }

    /// A line is not said to the reader.
    fn skip(&mut self) {
        if let Some(line) = self.0.last_mut() {
            line.is_followed = true;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The sentences of the last lines.
    pub(super) fn sentences(&self, last: usize) -> Sentences {
        let lines = &self.0[self.0.len().saturating_sub(last)..];
        let capacity = lines.iter().map(|line| line.text.len()).sum();
        let mut sentences = Sentences { text: String::with_capacity(capacity), ..Sentences::default() };
        for line in lines {
            let before = sentences.all.len();
            sentences.line(line.text, line.paragraph);
            // A line without a word is none.
            sentences.is_followed &= sentences.all.len() == before;
            sentences.is_followed |= line.is_followed;
        }
        let spare = sentences.all.len().saturating_sub(SENTENCES_MAX);
        sentences.all.drain(..spare);
        sentences
    }
}

impl Sentences {
    pub(super) fn all(&self) -> &[Sentence] {
        &self.all
    }

    pub(super) fn text(&self, sentence: &Sentence) -> &str {
        &self.text[sentence.range.clone()]
    }

    fn line(&mut self, line: &str, paragraph: usize) {
        let (place, line) = marks(line);
        let is_ticked = place == Place::Item && is_ticked(line);
        let line = if place == Place::Item { without_box(line) } else { line };
        let mut begin = self.text.len();
        let mut rest = line;
        loop {
            // Most of a text is letters and blanks.
            let run = rest.bytes().position(|byte| SIGNS[usize::from(byte)]).unwrap_or(rest.len());
            let from = self.text.len();
            self.text.push_str(&rest[..run]);
            self.text[from..].make_ascii_lowercase();
            rest = &rest[run..];
            let Some(c) = rest.chars().next() else { break };
            let length = c.len_utf8();
            let next = rest[length..].chars().next();
            if let Some(skip) = span(rest, c) {
                self.text.push(SPAN);
                let (span, behind) = rest.split_at(skip);
                rest = behind;
                // "It ends with \u{201C}We are done.\u{201D} Moving to scene two."
                let is_whole =
                    span.trim_end_matches(['"', '\u{201C}', '\u{201D}', '\u{BB}']).ends_with(['.', '!', '?']);
                let mut after = behind.chars();
                if is_whole && after.next() == Some(' ') && after.next().is_some_and(char::is_uppercase) {
                    self.push(begin, End::Full, place, is_ticked, paragraph);
                    begin = self.text.len();
                }
                continue;
            }
            rest = &rest[length..];
            let end = match c {
                '.' if next == Some('.') => continue,
                '.' if line[..line.len() - rest.len()].ends_with("...") && !next.is_some_and(char::is_alphanumeric) => {
                    Some(End::Dots)
                }
                '\u{2026}' => Some(End::Dots),
                '.' | '!' | ';' if next.is_none_or(|next| !next.is_alphanumeric() && next != '/') => Some(End::Full),
                '?' if next.is_none_or(|next| !next.is_alphanumeric() || is_cjk(next)) => Some(End::Question),
                '!' if next.is_some_and(is_cjk) => Some(End::Full),
                // "(owner: IT)" is one remark.
                ':' if next.is_none_or(|next| next.is_whitespace() || matches!(next, '*' | '_'))
                    && !is_in_parentheses(&self.text[begin..]) =>
                {
                    Some(End::Colon)
                }
                // "Built fine \u{2705} Now on to the next one."
                '\u{2705}' | '\u{2714}' | '\u{2611}' | '\u{274C}' | '\u{1F300}'..='\u{1FAFF}'
                    if rest
                        .trim_start_matches(|c: char| !c.is_alphanumeric())
                        .starts_with(|c: char| c.is_uppercase() || is_cjk(c)) =>
                {
                    Some(End::Full)
                }
                '\u{3002}' | '\u{FF01}' | '\u{FF1B}' => Some(End::Full),
                '\u{FF1F}' => Some(End::Question),
                '\u{FF1A}' => Some(End::Colon),
                _ => None,
            };
            if let Some(end) = end {
                // "1." and "e.g." end no sentence.
                if end == End::Full && c == '.' && is_abbreviation(&self.text[begin..]) {
                    self.text.push(c);
                    continue;
                }
                self.push(begin, end, place, is_ticked, paragraph);
                begin = self.text.len();
            } else if matches!(c, '*' | '_' | '~') && (c != '_' || !is_within_word(&self.text, next)) {
                // Emphasis.
            } else {
                match plain(c) {
                    c if c.is_ascii() => self.text.push(c.to_ascii_lowercase()),
                    c => self.text.extend(c.to_lowercase()),
                }
            }
        }
        self.push(begin, End::Line, place, is_ticked, paragraph);
    }

    fn push(&mut self, begin: usize, end: End, place: Place, is_ticked: bool, paragraph: usize) {
        let text = &self.text[begin..];
        let from = begin + text.len() - text.trim_start_matches(is_decoration).len();
        let to = begin + text.trim_end_matches(is_decoration).len();
        if from < to {
            self.all.push(Sentence { range: from..to, end, place, is_ticked, paragraph });
        } else if end == End::Question
            && let Some(last) = self.all.last_mut()
        {
            // "?!" and "??".
            last.end = End::Question;
        }
    }
}

/// Bytes that end or begin something, or belong to a character of more bytes.
static SIGNS: [bool; 256] = {
    let mut table = [false; 256];
    let signs = b".!?;:*_~`\"";
    let mut at = 0;
    while at < signs.len() {
        table[signs[at] as usize] = true;
        at += 1;
    }
    at = 0x80;
    while at < 256 {
        table[at] = true;
        at += 1;
    }
    table
};

/// Where the text begins behind the last thought, also behind one that began earlier.
fn thoughts_end(end: &str) -> usize {
    let close = |tag: &&'static str| Some(end.rfind(&format!("</{tag}>"))? + tag.len() + 3);
    THOUGHTS.iter().filter_map(close).max().unwrap_or(0)
}

/// The reply without a thought at its end that was cut off.
fn without_open_thought(reply: &str, from: usize) -> &str {
    let open = |tag: &&'static str| {
        let at = from + reply[from..].rfind(&format!("<{tag}>"))?;
        (!reply[at..].contains(&format!("</{tag}>"))).then_some(at)
    };
    &reply[..THOUGHTS.iter().filter_map(open).min().unwrap_or(reply.len())]
}

/// The lines of dialogues, poems and quotations of several lines: nobody says them to the reader.
fn staged(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let mut staged = quoted_lines(&lines);
    // A dialogue: speakers before colons, each again and again.
    let names: Vec<Option<&str>> = lines.iter().map(|line| speaker(line)).collect();
    for (at, name) in names.iter().enumerate().filter(|(_, name)| name.is_some()) {
        if names.iter().filter(|other| *other == name).count() > 1 {
            staged.push(at);
        }
    }
    // A poem: four short lines or more, most of which end without a full stop.
    let mut from = 0;
    for at in 0..=lines.len() {
        if at < lines.len() && !lines[at].trim().is_empty() {
            continue;
        }
        // "*Verse 2*" stands over a verse.
        let is_title = |line: &&str| {
            line.trim().len() <= 24 && line.trim().starts_with(['*', '[']) && line.trim().ends_with(['*', ']', ':'])
        };
        let begin = from + usize::from(lines[from..at].first().is_some_and(is_title));
        if is_verse(&lines[begin..at]) {
            staged.extend(from..at);
        }
        from = at + 1;
    }
    staged
}

/// The lines of quotations that begin at the beginning of a line and end in a later one.
fn quoted_lines(lines: &[&str]) -> Vec<usize> {
    let mut quoted = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].trim_start();
        let close: &[char] = match line.chars().next() {
            Some('\u{201C}') => &['\u{201D}'],
            Some('\u{201E}') => &['\u{201C}', '\u{201D}'],
            Some('\u{AB}') => &['\u{BB}'],
            Some('\u{300C}') => &['\u{300D}'],
            _ => &[],
        };
        let ends = |line: &str| line.contains(close);
        let begins = !close.is_empty() && !line.chars().skip(1).any(|c| close.contains(&c));
        let end = begins.then(|| lines[at + 1..].iter().position(|line| ends(line))).flatten();
        if let Some(length) = end {
            quoted.extend(at..=at + 1 + length);
            at += length + 1;
        }
        at += 1;
    }
    quoted
}

/// How a text for somebody else is handed over, and what it is.
const HERE: &[&str] = &[
    "here is ",
    "here's ",
    "here are ",
    "voici ",
    "hier ist ",
    "hier sind ",
    "aqu\u{ED} tiene",
    "aqu\u{ED} est\u{E1} ",
    "aqu\u{ED} va ",
    "\u{4EE5}\u{4E0B}\u{662F}",
    "\u{8FD9}\u{662F}",
];
const TALES: &[&str] = &[
    "poem",
    "joke",
    "haiku",
    "limerick",
    "story",
    "song",
    "stanza",
    "lyrics",
    "ballad",
    "po\u{E8}me",
    "gedicht",
    "poema",
    "\u{8BD7}",
    "\u{6545}\u{4E8B}",
];
const LETTERS: &[&str] = &[
    "letter",
    "speech",
    "toast",
    "email",
    "e-mail",
    "draft",
    "scene",
    "dialogue",
    "monologue",
    "lettre",
    "discours",
    "brouillon",
    "histoire",
    "brief",
    "rede",
    "entwurf",
    "geschichte",
    "carta",
    "discurso",
    "borrador",
    "historia",
    "\u{4FE1}",
    "\u{6587}\u{6848}",
    "\u{8349}\u{7A3F}",
    "\u{6848}\u{3067}\u{3059}",
    "\u{4E0B}\u{66F8}\u{304D}\u{3067}\u{3059}",
];

/// Where the sentence ends that hands over a poem or a letter, and whether it is the whole line: then the text comes below.
fn introduces_draft(line: &str) -> Option<(usize, bool)> {
    let is_japanese = !line.is_ascii()
        && (line.contains("\u{6848}\u{3067}\u{3059}") || line.contains("\u{4E0B}\u{66F8}\u{304D}\u{3067}\u{3059}"));
    // Nearly all lines hand nothing over: they are neither copied nor searched for each phrase.
    if !is_japanese && !may_hand_over(line) {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let begin = HERE.iter().find_map(|here| {
        let at = lower.find(here)?;
        (at == 0 || lower[..at].trim_end().ends_with(['.', '!', '?', ','])).then_some(at)
    });
    let begin = begin.or_else(|| is_japanese.then_some(0))?;
    let stop = lower[begin..].find([':', '.', '!', '\u{3002}', '\u{FF1A}']).map_or(lower.len(), |at| begin + at);
    let end = lower.ceil_char_boundary((stop + 1).min(lower.len()));
    let named = &lower[begin..stop];
    let holds = |words: &[&str]| words.iter().any(|word| names(named, word));
    let is_whole = lower[end..].trim().is_empty();
    let below =
        is_whole && (is_japanese || lower[stop..].starts_with([':', '\u{FF1A}'])) && (holds(TALES) || holds(LETTERS));
    (below || !is_whole && holds(TALES)).then_some((end, is_whole))
}

/// Whether one of [`HERE`] begins the line, or stands behind a sign that ends a sentence or a clause.
fn may_hand_over(line: &str) -> bool {
    let is_here = |text: &str| {
        let text = text.trim_start().as_bytes();
        let first = text.first().copied().unwrap_or_default();
        matches!(first, b'h' | b'H' | b'v' | b'V' | b'a' | b'A' | 0x80..)
            && HERE
                .iter()
                .any(|here| text.get(..here.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(here.as_bytes())))
    };
    is_here(line) || line.match_indices(['.', '!', '?', ',']).any(|(at, _)| is_here(&line[at + 1..]))
}

/// Whether a text has this word as a whole. Chinese and Japanese have no blanks between words.
fn names(text: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphabetic() && !is_cjk(c));
    text.match_indices(word).any(|(at, word)| {
        let (before, behind) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        // "Messages", and "information" in Chinese, which begins as "letter" does.
        let is_information = word == "\u{4FE1}" && behind == Some('\u{606F}');
        let is_whole = !is_letter(before) && (!is_letter(behind) || behind == Some('s'));
        is_whole && !is_information
    })
}

/// A line between two texts.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.bytes().all(|byte| matches!(byte, b'-' | b'*' | b'_'))
}

/// Who speaks in a line of a dialogue: "ANNA: ...", "[HOST] ...".
fn speaker(line: &str) -> Option<&str> {
    if let Some((name, stated)) = line.trim().strip_prefix('[').and_then(|line| line.split_once(']')) {
        return (name.len() <= 20 && name.starts_with(char::is_uppercase) && stated.starts_with(' ')).then_some("[]");
    }
    let (name, _) = line.split_once(':')?;
    let name = name.trim_matches(['*', ' ']);
    (name.starts_with(char::is_uppercase) && name.len() <= 20 && name.split(' ').count() <= 3).then_some(name)
}

fn is_verse(lines: &[&str]) -> bool {
    // Poems in Chinese have no blanks, and each line is short.
    let is_short = |line: &&&str| {
        let line = line.trim();
        line.chars().count() <= 16
            && line.chars().next().is_some_and(is_cjk)
            && line.ends_with(['\u{FF0C}', '\u{3002}'])
    };
    if lines.len() >= 4 && lines.iter().all(|line| is_short(&line)) {
        return true;
    }
    let fits = |line: &&&str| {
        let line = line.trim().trim_matches(['*', '_']);
        (12..=70).contains(&line.len())
            && line.starts_with(char::is_alphabetic)
            && !line.contains(['`', '|', '=', '{', '/'])
    };
    let open = lines
        .iter()
        .filter(|line| line.trim_end().ends_with([',', ';', '\u{2014}', 'y', 'e', 'n', 't', 'd', 's', 'r']))
        .count();
    lines.len() >= 4
        && lines.iter().all(|line| fits(&line))
        && open * 2 >= lines.len()
        && !lines.iter().any(|line| line.contains(':'))
}

/// Whether a line is the salutation of a letter: short, and with a comma or nothing at its end.
fn begins_letter(line: &str) -> bool {
    let line = line.trim().trim_matches('*');
    let is_heading =
        ["subject:", "betreff:", "objet :", "asunto:", "件名", "主题："].iter().any(|head| begins_with(line, head));
    let salutes =
        SALUTATIONS.iter().any(|word| begins_with(line, word)) || line.ends_with('様') && line.chars().count() < 12;
    is_heading
        || salutes
            && line.len() <= 80
            && (line.ends_with([',', ':', '：', '，', '様'])
                || !line.ends_with(['.', '!', '?', ';']) && line.split(' ').count() <= 5)
}

fn ends_letter(line: &str) -> bool {
    CLOSINGS.iter().any(|word| begins_with(line.trim(), word))
}

/// Whether a text begins with a word in lower case.
fn begins_with(text: &str, word: &str) -> bool {
    let (first, wanted) = (text.bytes().next().unwrap_or_default(), word.bytes().next().unwrap_or_default());
    if first.is_ascii() && first.to_ascii_lowercase() != wanted {
        return false;
    }
    let mut lower = text.chars().flat_map(char::to_lowercase);
    word.chars().all(|c| lower.next() == Some(c))
}

fn is_fence(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("```") || line.starts_with("~~~")
}

/// A quotation, a row of a table, or what somebody says in a story.
fn is_quoted(line: &str) -> bool {
    let line = line.trim_start();
    let is_statement =
        || line.strip_prefix(['\u{2014}', '\u{2013}']).is_some_and(|stated| stated.starts_with(char::is_alphabetic));
    line.starts_with(['>', '|']) || is_statement()
}

/// Where a line stands, and what of it is text.
fn marks(line: &str) -> (Place, &str) {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix('#') {
        return (Place::Heading, rest.trim_start_matches('#').trim_start());
    }
    let item = line.strip_prefix(['-', '*', '+', '\u{2022}']).filter(|rest| rest.starts_with(' ')).or_else(|| {
        let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
        (digits.len() < line.len()).then(|| digits.strip_prefix(['.', ')']))?.filter(|rest| rest.starts_with(' '))
    });
    match item {
        Some(rest) => (Place::Item, rest.trim_start()),
        None => (Place::Text, line),
    }
}

/// Whether an item is marked as done.
fn is_ticked(item: &str) -> bool {
    item.starts_with(['\u{2705}', '\u{2714}', '\u{2611}', '\u{2713}'])
        || item.starts_with("[x]")
        || item.starts_with("[X]")
}

/// An item without the box before it.
fn without_box(item: &str) -> &str {
    ["[x]", "[X]", "[ ]"].iter().find_map(|mark| item.strip_prefix(mark)).unwrap_or(item).trim_start()
}

/// Whether a character is of a script without blanks between words.
fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30FF}' | '\u{4E00}'..='\u{9FFF}')
}

/// How long a span of code or a quotation is that begins here.
fn span(rest: &str, c: char) -> Option<usize> {
    let close: &[char] = match c {
        '`' => &['`'],
        '"' => &['"'],
        '\u{201C}' => &['\u{201D}'],
        '\u{201E}' => &['\u{201C}', '\u{201D}'],
        '\u{AB}' => &['\u{BB}'],
        '\u{300C}' => &['\u{300D}'],
        '\u{300E}' => &['\u{300F}'],
        _ => return None,
    };
    let inner = &rest[c.len_utf8()..];
    let at = inner.find(close)?;
    let end = inner[at..].chars().next().map_or(0, char::len_utf8);
    Some(c.len_utf8() + at + end)
}

/// Whether what a dot follows is shortened by it: one letter, or a number at the beginning.
fn is_abbreviation(sentence: &str) -> bool {
    let word = sentence.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default();
    let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
    (is_number && word.len() == sentence.trim_start().len())
        || matches!(word, "e.g" | "i.e" | "etc" | "z.b" | "vs" | "approx")
}

fn is_in_parentheses(sentence: &str) -> bool {
    sentence.rfind('(') > sentence.rfind(')')
}

fn is_within_word(before: &str, next: Option<char>) -> bool {
    before.chars().next_back().is_some_and(char::is_alphanumeric) && next.is_some_and(char::is_alphanumeric)
}

/// White space, dashes, emoji and other signs around a sentence.
fn is_decoration(c: char) -> bool {
    !c.is_alphanumeric() && !matches!(c, SPAN | '\'' | ')' | '(' | '\u{BF}' | '\u{A1}' | '%' | '/' | '$' | '#')
}
