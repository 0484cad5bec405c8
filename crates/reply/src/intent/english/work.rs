//! Work that a sentence names without a future: "Reading the log.", "Next: the tests."

use crate::intent::lexicon::Words;
use crate::intent::sentence::{End, LineKind, SPAN, Sentence};
use crate::intent::tags::english::{
    BEHAVES, DOING, FINITE, LABELS, NAMES_WORK, NO_GERUND, RESUMES, STEPS, SUBORDINATE, WORKS,
};

/// "I'm updating the components now."
pub(super) fn is_doing(words: &Words<'_>) -> bool {
    let places = (0..words.all.len()).filter_map(|at| Some((at, words.longest_at(at, DOING)?)));
    places.into_iter().any(|(at, length)| is_own_work(words, at, length))
}

fn is_own_work(words: &Words<'_>, at: usize, length: usize) -> bool {
    let skipped = ["now", "also", "currently", "next", "then", "still", "just", "already"];
    let Some(verb) = words.all[at + length..].iter().find(|word| !skipped.contains(word)) else { return false };
    let is_fine = words.all.iter().any(|word| matches!(*word, "well" | "fine" | "great" | "good" | "okay"));
    if *verb == "doing" && is_fine {
        return false;
    }
    let thinks = ["assuming", "hoping", "wondering", "missing", "seeing", "getting", "having", "thinking", "being"];
    let talks = ["asking", "talking", "suggesting", "proposing"];
    let stops = ["waiting", "stopping", "leaving", "handing", "ending", "closing", "pausing"];
    let is_idle = thinks.contains(verb) || talks.contains(verb) || stops.contains(verb);
    let to_reader = words.all.windows(2).any(|pair| pair[0] == *verb && matches!(pair[1], "you" | "here" | "at"));
    let clause = words.all[..at].iter().rposition(|word| *word == "so").unwrap_or_default();
    verb.ends_with("ing")
        && !to_reader
        && !is_idle
        && !words.all.windows(2).any(|pair| pair == ["looking", "forward"])
        && !words.all[clause..at].iter().any(|word| matches!(*word, "if" | "when" | "once" | "whether"))
}

/// "Index 5 will be rebuilt now."
pub(super) fn is_passive_work(words: &Words<'_>) -> bool {
    let is_state =
        |word: &str| matches!(word, "right" | "fine" | "good" | "ready" | "there" | "here" | "better" | "correct");
    let will = words
        .all
        .windows(3)
        .any(|three| three[0] == "will" && (three[1] == "be" && !is_state(three[2]) || three[2] == "be"));
    let being = words.all.windows(2).any(|pair| {
        matches!(pair[0], "is" | "are" | "gets" | "get") && (pair[1] == "being" || pair[1].ends_with("ed"))
    });
    // "The kitchen will be just as ugly next year."
    let times = ["year", "month", "week", "day", "time", "season", "summer", "winter", "spring", "autumn", "morning"];
    let is_soon = |at: usize| match words.all[at] {
        "now" | "remaining" => true,
        "next" => words.all.get(at + 1).is_none_or(|time| !times.contains(time)),
        _ => false,
    };
    let soon = (0..words.all.len()).any(is_soon);
    let last_next = words.all.last() == Some(&"next");
    let going = words.all.windows(3).any(|three| three == ["going", "to", "be"]);
    ((will || going) && soon || being && last_next || words.all.windows(2).any(|pair| pair == ["being", "started"]))
        && !words.all.iter().any(|word| matches!(*word, "you" | "your" | "when" | "if"))
}

/// Whether it has a date of its own: "Next renewal: 14 March."
fn is_dated(word: &str) -> bool {
    let event = ["steps", "meeting", "appointment", "review", "delivery", "maintenance", "visit", "backup"];
    let term = ["deadline", "date", "due", "expiry", "expiration", "renewal", "payment", "invoice"];
    event.contains(&word) || term.contains(&word)
}

/// Whether it is a label such as "Next:" or "Next step:".
pub(super) fn is_label(sentence: &Sentence, words: &Words<'_>, lead: usize) -> bool {
    let rest = &words.all[lead..];
    let is_last = |at: usize| lead + at == words.all.len();
    let named = words.longest_at(lead, LABELS).is_some_and(is_last) || words.all.last() == Some(&"next");
    let is_date = rest.iter().any(|word| is_dated(word));
    let other = rest[0] == "next" && rest.len() <= 3 && !is_date;
    // "## Next", and below it what the model does.
    let is_heading = sentence.kind == LineKind::Heading && rest == ["next"];
    sentence.end == End::Colon && (named || other) || is_heading
}

/// "Step 2", "now phase two".
pub(super) fn names_step(words: &Words<'_>, lead: usize) -> bool {
    let at = lead + usize::from(matches!(words.all[lead], "now" | "next"));
    words.alone(at, STEPS) && words.all.len() > at + 1
}

/// Nouns that name repeated work: "same query again", but not "same error again".
const REPEATED_NOUNS: &[&str] =
    &["query", "search", "command", "request", "test", "check", "step", "call", "procedure", "thing", "approach"];

/// "Now the second half.", "On to chapter 3.", "Time to write the tests."
pub(super) fn is_named_work(words: &Words<'_>, lead: usize) -> bool {
    if words.has_at(lead, RESUMES) {
        return true;
    }
    // "One more search.", "Slide 7 next."
    let counts = matches!(
        words.all[lead..],
        ["one", "more" | "last", _] | ["one", "more" | "last", _, _] | ["one", "more" | "last", _, "to", "go", ..]
    );
    let is_talk = |word: &&str| {
        ["thing", "point", "option", "detail", "idea", "suggestion", "question"].contains(word)
            || ["note", "tip", "caveat", "remark", "comment", "word", "hint", "warning"].contains(word)
    };
    let ends_next = words.all.last() == Some(&"next") && words.all.len() <= 4 && !words.has(FINITE);
    if (counts && !words.all.iter().any(is_talk) || ends_next) && !words.all.contains(&"you") {
        return true;
    }
    // "Same query again with the other number."
    if words.all[lead] == "same"
        && words.all.contains(&"again")
        && words.all.get(lead + 1).is_some_and(|word| REPEATED_NOUNS.contains(word))
    {
        return true;
    }
    // "Next, clippy."
    let rest = &words.all[lead..];
    if rest[0] == "next"
        && (2..=3).contains(&rest.len())
        && !words.has_word(lead + 1..words.all.len(), WORKS | FINITE | BEHAVES)
    {
        return !rest.iter().any(|word| {
            matches!(*word, "time" | "week" | "month" | "year" | "day" | "question" | "you") || is_dated(word)
        });
    }
    // "Now 2017.", "Now chapter 4."
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    match rest {
        ["now" | "next", number] if is_number(number) => return true,
        ["now" | "next", _, number] if is_number(number) && words.alone(lead + 1, STEPS) => return true,
        _ => {}
    }
    let named = matches!(words.all[lead], "now" | "next" | "first")
        && words.all.get(lead + 1).is_some_and(|word| words.alone(lead + 1, NAMES_WORK) || word.contains(SPAN))
        && (words.all.len() <= lead + 6 || words.all.len() <= lead + 9 && words.all.contains(&"look"));
    named
        && !words.has_word(lead + 1..words.all.len(), FINITE | BEHAVES)
        && !words.all[lead..].iter().any(|word| matches!(*word, "you" | "your"))
}

/// "Retrying with the local directory.", but not "Running it twice is safe."
pub(super) fn is_gerund(words: &Words<'_>, lead: usize) -> bool {
    let is_now = matches!(words.all[lead], "now" | "next") && words.all.len() > lead + 1;
    let lead = lead + usize::from(is_now);
    let first = words.all[lead].rsplit('-').next().unwrap_or_default();
    // "Waiting ten seconds and then retrying."
    let waits_a_moment = first == "waiting"
        && words.all.windows(2).any(|pair| matches!(pair[0], "and" | "then") && pair[1].ends_with("ing"));
    if waits_a_moment {
        return true;
    }
    if !first.ends_with("ing") || first.len() < 5 || words.alone(lead, NO_GERUND) {
        return false;
    }
    // "Processing complete.", "Writing it resolves it."
    let rest = &words.all[lead + 1..];
    let is_name = matches!(rest.first(), Some(&("complete" | "completed" | "done" | "finished")));
    let acts = rest.len() > 1
        && rest.windows(2).any(|pair| {
            pair[0].ends_with('s')
                && pair[0].len() > 4
                && !matches!(pair[0], "across" | "versus" | "towards" | "besides" | "always" | "perhaps")
                && matches!(pair[1], "it" | "this" | "that" | "them" | "you" | "the")
        });
    if is_name || acts {
        return false;
    }
    if is_now || words.all.last() == Some(&"now") {
        return !words.all.contains(&"you");
    }
    let end = (lead + 1..words.all.len()).find(|at| words.alone(*at, SUBORDINATE)).unwrap_or(words.all.len());
    !words.has_word(lead + 1..end, FINITE) && !words.all[..end].contains(&"you")
}

/// "Now I check the logs.", as models write it that know little grammar.
pub(super) fn acts_in_present(words: &Words<'_>) -> bool {
    let places = words.all.iter().enumerate().filter(|(_, word)| **word == "i").map(|(at, _)| at);
    let is_when = |word: &str| matches!(word, "now" | "next" | "first" | "then" | "again");
    // "Here I check each file.", but "here I use a map" explains code.
    let here = matches!(words.all.as_slice(), ["here", "i", "check" | "test" | "verify" | "compare" | "inspect", ..]);
    let reports_when =
        (here || words.all.iter().any(|word| is_when(word))) && !words.all.iter().any(|word| word.ends_with("ed"));
    // "I run the test.", "I go look in the other folder."
    match words.all.as_slice() {
        ["i", _, "the" | "it" | "again" | "next", ..] if words.all.len() <= 4 && words.alone(1, WORKS) => return true,
        ["i", "go", _, ..] if words.alone(2, WORKS) => return true,
        _ => {}
    }
    // "Now I calculate again and the number is 284" has the result already.
    let is_over = words.all.iter().position(|word| *word == "and").is_some_and(|at| {
        words.all[at + 1..].iter().any(|word| matches!(*word, "is" | "are" | "was")) && !words.all[at..].contains(&"i")
    });
    if is_over {
        return false;
    }
    let mut acts = places.filter(|at| {
        // "I am do the second step now."
        let at = at + usize::from(words.all.get(at + 1) == Some(&"am"));
        let next = words.all.get(at + 1).copied().unwrap_or_default();
        words.alone(at + 1, WORKS) || is_when(next) && words.alone(at + 2, WORKS)
    });
    reports_when && acts.next().is_some()
}

/// "Hook first, since it decides the rest."
pub(super) fn names_first_step(words: &Words<'_>) -> bool {
    let Some(at @ 1..=3) = words.all.iter().position(|word| *word == "first") else { return false };
    let begin = words.all[0];
    let other = ["the", "at", "my", "your", "on", "in", "a", "its", "love", "their", "his", "her", "our", "i", "let"];
    let ends = words.all.get(at + 1).is_none_or(|next| matches!(*next, "since" | "because" | "as" | "then" | "so"));
    let other = other.contains(&begin);
    let names = !other && !begin.ends_with("ly") && !begin.starts_with("i'") && !words.has_word(0..at, FINITE | WORKS);
    ends && names && !words.all.contains(&"you")
}

/// Stems of forms in -ing that name work.
const GERUNDS: &[&str] = &[
    "fetch", "try", "retry", "check", "look", "search", "pull", "read", "runn", "open", "switch", "mov", "query",
    "scann", "pars", "download", "add", "fix", "updat", "writ", "rewrit", "test", "rerunn", "restart", "reload",
    "work", "compar", "verify", "apply", "load", "install", "continu", "proceed", "resum",
];

/// First words of sentences about things and other people, which may act as well.
const OTHER_SUBJECTS: &[&str] = &[
    "the", "it", "this", "they", "each", "a", "an", "which", "he", "she", "you", "these", "that", "its", "your",
    "when", "if", "by", "to",
];

/// Last words of clauses that say that something is over.
const ENDINGS: &[&str] = &["done", "complete", "empty", "down", "out", "ready", "through", "nothing"];

/// "Chapter 1 summarized, moving to chapter 2.", "The abstract isn't enough, fetching the PDF."
pub(super) fn starts_next_step(text: &str, words: &Words<'_>) -> bool {
    let dash =
        ["\u{2014} ", "\u{2013} ", "\u{2190} ", "\u{2192} ", " - "].iter().find_map(|dash| text.rsplit_once(dash));
    let Some((before, behind)) = dash.or_else(|| text.rsplit_once(", ")) else { return false };
    let (before, behind) = (before.trim_end(), behind.strip_prefix("then ").unwrap_or(behind));
    if ["on to ", "onto ", "time to "].iter().any(|start| behind.starts_with(start)) {
        return !words.all.contains(&"you");
    }
    let is_now = behind.starts_with("now ");
    let first = behind.strip_prefix("now ").unwrap_or(behind).split(' ').next().unwrap_or_default();
    let is_work = first.strip_suffix("ing").is_some_and(|stem| GERUNDS.contains(&stem));
    if is_now && is_work {
        return !words.all.contains(&"you");
    }
    let length = before.split(' ').count();
    // Behind a dash another clause begins.
    if dash.is_some() && (is_work || first == "starting") {
        return !words.all.contains(&"you");
    }
    if is_work && length <= 8 && !OTHER_SUBJECTS.contains(&words.all[0]) && !words.all.contains(&"you") {
        return true;
    }
    let last = before.rsplit(' ').next().unwrap_or_default();
    let is_over = last.ends_with("ed") || ENDINGS.contains(&last);
    let goes_on = is_now || matches!(first, "starting" | "beginning" | "turning" | "trying" | "next");
    let is_amiss = matches!(last, "missing" | "wrong" | "broken" | "off");
    is_over && (is_work || goes_on) && length <= 6 && !words.has(FINITE) || is_amiss && is_work
}
