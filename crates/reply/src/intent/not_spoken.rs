//! Texts within a reply that the model does not say to its reader: letters, drafts, poems, dialogues, quotations.

use super::script::is_cjk;

/// Lines that begin a letter, and lines that end it, by language: what stands between is not said to the reader.
const SALUTATIONS: &[&[&str]] = &[
    &["dear ", "hi ", "hello "],
    &["sehr geehrte", "liebe ", "lieber ", "hallo ", "guten tag"],
    &["bonjour", "cher ", "chère ", "madame", "monsieur"],
    &["estimad", "querid", "hola ", "buenos días"],
    &["尊敬的"],
];
const CLOSINGS: &[&[&str]] = &[
    &["best regards", "kind regards", "warm regards", "regards,", "sincerely", "yours", "best,", "thanks,", "cheers,"],
    &["mit freundlichen", "viele grüße", "beste grüße", "liebe grüße"],
    &["cordialement", "bien à vous", "bien cordialement"],
    &["saludos", "un saludo", "un cordial saludo", "atentamente"],
    &["敬具", "よろしくお願い", "何とぞ", "此致", "祝好"],
];
/// Labels before the subject of a letter.
const HEADINGS: &[&str] = &["subject:", "betreff:", "objet :", "asunto:", "件名", "主题："];

/// The lines of dialogues, poems and quotations of several lines: nobody says them to the reader.
pub(super) fn staged(text: &str) -> Vec<usize> {
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

/// Phrases that hand over a text for somebody else, and below them the nouns for such a text; by language.
const HERE: &[&[&str]] = &[
    &["here is ", "here's ", "here are "],
    &["voici "],
    &["hier ist ", "hier sind "],
    &["aqu\u{ED} tiene", "aqu\u{ED} est\u{E1} ", "aqu\u{ED} va "],
    &["\u{4EE5}\u{4E0B}\u{662F}", "\u{8FD9}\u{662F}"],
];
const TALES: &[&[&str]] = &[
    &["poem", "joke", "haiku", "limerick", "story", "song", "stanza", "lyrics", "ballad"],
    &["po\u{E8}me", "gedicht", "poema", "\u{8BD7}", "\u{6545}\u{4E8B}"],
];
const LETTERS: &[&[&str]] = &[
    &["letter", "speech", "toast", "email", "e-mail", "draft", "scene", "dialogue", "monologue"],
    &["lettre", "discours", "brouillon", "histoire"],
    &["brief", "rede", "entwurf", "geschichte"],
    &["carta", "discurso", "borrador", "historia"],
    &["\u{4FE1}", "\u{6587}\u{6848}", "\u{8349}\u{7A3F}"],
    &["\u{6848}\u{3067}\u{3059}", "\u{4E0B}\u{66F8}\u{304D}\u{3067}\u{3059}"],
];

/// Finds the end of a sentence that hands over a poem or a letter, and whether it is the whole line: then the text
/// follows below.
pub(super) fn introduces_draft(line: &str) -> Option<(usize, bool)> {
    let is_japanese = !line.is_ascii()
        && (line.contains("\u{6848}\u{3067}\u{3059}") || line.contains("\u{4E0B}\u{66F8}\u{304D}\u{3067}\u{3059}"));
    // Nearly all lines hand nothing over: they are neither copied nor searched for each phrase.
    if !is_japanese && !may_hand_over(line) {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let begin = HERE.iter().copied().flatten().find_map(|here| {
        let at = lower.find(here)?;
        (at == 0 || lower[..at].trim_end().ends_with(['.', '!', '?', ','])).then_some(at)
    });
    let begin = begin.or_else(|| is_japanese.then_some(0))?;
    let stop = lower[begin..].find([':', '.', '!', '\u{3002}', '\u{FF1A}']).map_or(lower.len(), |at| begin + at);
    let end = lower.ceil_char_boundary((stop + 1).min(lower.len()));
    let named = &lower[begin..stop];
    let holds = |words: &[&[&str]]| words.iter().copied().flatten().any(|word| names(named, word));
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
        let begins = |here: &&str| text.get(..here.len()).is_some_and(|it| it.eq_ignore_ascii_case(here.as_bytes()));
        matches!(first, b'h' | b'H' | b'v' | b'V' | b'a' | b'A' | 0x80..) && HERE.iter().copied().flatten().any(begins)
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

/// Returns the speaker of a line of a dialogue: "ANNA: ...", "[HOST] ...".
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
pub(super) fn begins_letter(line: &str) -> bool {
    let line = line.trim().trim_matches('*');
    let is_heading = HEADINGS.iter().any(|head| begins_with(line, head));
    let salutes = SALUTATIONS.iter().copied().flatten().any(|word| begins_with(line, word))
        || line.ends_with('様') && line.chars().count() < 12;
    is_heading
        || salutes
            && line.len() <= 80
            && (line.ends_with([',', ':', '：', '，', '様'])
                || !line.ends_with(['.', '!', '?', ';']) && line.split(' ').count() <= 5)
}

pub(super) fn ends_letter(line: &str) -> bool {
    CLOSINGS.iter().copied().flatten().any(|word| begins_with(line.trim(), word))
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
