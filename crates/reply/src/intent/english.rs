//! What an English sentence says about going on. The phrases are in `words/en.txt`.

use super::Stance;
use super::lexicon::{Section, Tags, Words};
use super::sentence::{End, Place, SPAN, Sentence};

const FUTURE: Tags = 1 << 0;
const ADVERBS: Tags = 1 << 1;
const IDLE: Tags = 1 << 2;
const IDLE_TOGETHER: Tags = 1 << 3;
const TELL: Tags = 1 << 4;
const ASKS: Tags = 1 << 5;
const WAITS: Tags = 1 << 6;
const WHEN: Tags = 1 << 7;
const DECIDES: Tags = 1 << 8;
const AT_ONCE: Tags = 1 << 9;
const UNFINISHED: Tags = 1 << 10;
const DONE: Tags = 1 << 11;
const FINITE: Tags = 1 << 12;
const SUBORDINATE: Tags = 1 << 13;
const NO_GERUND: Tags = 1 << 14;
const BEHAVES: Tags = 1 << 15;
const NAMES_WORK: Tags = 1 << 16;
const LABELS: Tags = 1 << 17;
const STEPS: Tags = 1 << 18;
const INTERJECTIONS: Tags = 1 << 19;
const DOING: Tags = 1 << 20;
const RESUMES: Tags = 1 << 21;
pub(super) const AFTERWARDS: Tags = 1 << 22;
const WORKS: Tags = 1 << 23;

/// The sections of `words/en.txt`.
pub(super) const SECTIONS: &[Section] = &[
    ("future", FUTURE),
    ("adverbs", ADVERBS),
    ("idle", IDLE),
    ("idle_together", IDLE_TOGETHER),
    ("tell", TELL),
    ("asks", ASKS),
    ("waits", WAITS),
    ("when", WHEN),
    ("decides", DECIDES),
    ("at_once", AT_ONCE),
    ("unfinished", UNFINISHED),
    ("done", DONE),
    ("finite", FINITE),
    ("subordinate", SUBORDINATE),
    ("no_gerund", NO_GERUND),
    ("behaves", BEHAVES),
    ("names_work", NAMES_WORK),
    ("labels", LABELS),
    ("steps", STEPS),
    ("interjections", INTERJECTIONS),
    ("doing", DOING),
    ("resumes", RESUMES),
    ("afterwards", AFTERWARDS),
    ("works", WORKS),
];

/// What the sentence says. `is_under_way`: whether a sentence before it says that some work is done.
pub(super) fn stance(sentence: &Sentence, text: &str, words: &Words<'_>, is_under_way: bool) -> Stance {
    let all = &words.all;
    if all.is_empty() {
        return Stance::Neutral;
    }
    if sentence.end == End::Question {
        return Stance::Asks;
    }
    let lead = (0..all.len() - 1).take_while(|at| words.alone(*at, INTERJECTIONS)).count();
    let asks_for_a_moment = all[0] == "please" && words.has(AT_ONCE);
    let at_once = words.places(AT_ONCE).any(|at| at <= lead || matches!(all[at - 1], "so" | "and" | "then" | "now"));
    // "One sec while I open it."
    let while_i = words.places(AT_ONCE).any(|at| words.all[at..].windows(2).any(|pair| pair == ["while", "i"]));
    if at_once || asks_for_a_moment || while_i {
        return Stance::Announces;
    }
    if is_up_to_the_reader(words) || waits(words) {
        return Stance::Asks;
    }
    let futures: Vec<Stance> = futures(words).collect();
    if futures.contains(&Stance::Announces) {
        return Stance::Announces;
    }
    if let Some(tells) = futures.iter().find(|stance| **stance == Stance::Tells) {
        return *tells;
    }
    if !futures.is_empty() {
        return Stance::Neutral;
    }
    if all.contains(&"please") {
        return Stance::Requests;
    }
    // "Streaming:" is the name of something.
    let is_name = sentence.end == End::Colon && all.len() == 1;
    let names_work = is_done_to(words)
        || is_doing(words)
        || acts_now(words)
        || moves_on(text, words)
        || puts_first(words)
        || is_label(sentence, words, lead)
        || sentence.place != Place::Item && is_named_work(words, lead);
    if names_work
        || is_gerund(words, lead) && !is_name && !sentence.is_ticked
        || [["starting", "now"], ["come", "now"], ["comes", "now"]].iter().any(|end| all.ends_with(end))
        || sentence.end == End::Colon && is_under_way && is_step(words, lead)
    {
        return Stance::Announces;
    }
    if is_unfinished(words) && sentence.place != Place::Heading && sentence.end != End::Colon {
        return Stance::Unfinished;
    }
    if words.has(DONE) { Stance::Done } else { Stance::Neutral }
}

/// Whether something of the work at hand is left to do. "A job that is not finished after ten minutes is killed" is about
/// any job, and "the cycle, which comes next" about the order of things.
fn is_unfinished(words: &Words<'_>) -> bool {
    let Some((at, _)) = words.first(UNFINISHED) else { return false };
    let before = &words.all[..at];
    let denies = words.all.iter().any(|word| matches!(*word, "nothing" | "no" | "none" | "didn't"));
    let relates =
        matches!(before.last(), Some(&("which" | "what"))) || words.all.windows(2).any(|pair| pair == ["next", "to"]);
    let any = matches!(before, ["a" | "an", ..] | ["in" | "for" | "with", _, "a" | "an", ..]);
    !denies && !relates && !any
}

/// Whether it is up to the reader what happens.
fn is_up_to_the_reader(words: &Words<'_>) -> bool {
    let offers =
        [&["i", "can", "also"][..], &["i", "could", "also"], &["say"]].iter().any(|it| words.all.starts_with(it));
    let decides = words.first(WHEN).is_some_and(|(at, length)| {
        // "I'll see if you have flour" asks nobody.
        let looks = at > 0 && matches!(words.all[at - 1], "see" | "check" | "verify" | "know" | "determine" | "test");
        // "The crash that appears when you resize the window" is what the model works on.
        let about = |from: usize| words.all[from..at].iter().any(|word| matches!(*word, "that" | "which" | "who"));
        let is_about = words.first(FUTURE).is_some_and(|(future, _)| future < at && about(future));
        let end = (at + length + 3).min(words.all.len());
        !is_about && !looks && words.has_word(at + length..end, DECIDES)
    });
    // "Just drop it in the folder, and I'll take care of it."
    let begins = &words.all[usize::from(words.all[0] == "just")..];
    let gives = matches!(
        begins.first(),
        Some(
            &("drop"
                | "send"
                | "put"
                | "give"
                | "paste"
                | "upload"
                | "tell"
                | "forward"
                | "share"
                | "leave"
                | "attach"
                | "reply"
                | "say"
                | "type"
                | "answer"
                | "confirm"
                | "press"
                | "click"
                | "pick")
        )
    ) && words.all.windows(2).any(|pair| matches!(pair, ["and", "i'll" | "i"] | ["then", "i'll"]));
    // "No input is needed from you."
    let needs_nobody = words.all.windows(2).any(|pair| pair == ["from", "you"]) && words.all.contains(&"no");
    words.has(ASKS) && !needs_nobody || offers || decides || gives
}

/// Whether the model waits for somebody or needs something. "I need the rate, so let me look it up" does not wait, nor
/// does "I won't delete anything while doing so".
fn waits(words: &Words<'_>) -> bool {
    let Some((at, length)) = words.first(WAITS) else { return false };
    if words.all[at + length - 1] == "won't" && words.all.contains(&"while") {
        return false;
    }
    let follows = (at + length + 1..words.all.len())
        .any(|next| words.has_at(next, FUTURE | DOING) && matches!(words.all[next - 1], "so" | "but" | "and"));
    !follows && !waits_a_moment(words)
}

/// "I'll wait a few seconds and try once more."
fn waits_a_moment(words: &Words<'_>) -> bool {
    let has = |wanted: &[&str]| words.all.iter().any(|word| wanted.contains(word));
    let people = [
        "you",
        "your",
        "approval",
        "confirmation",
        "decision",
        "review",
        "answer",
        "reply",
        "feedback",
        "you've",
        "you're",
    ];
    has(&["and", "then"]) && !has(&people) && words.all.contains(&"wait")
}

/// What each "I'll" and "let me" announces.
fn futures(words: &Words<'_>) -> impl Iterator<Item = Stance> {
    let places = (0..words.all.len()).filter_map(|at| Some((at, words.longest_at(at, FUTURE)?)));
    places.map(|(at, length)| future(words, at, length))
}

fn future(words: &Words<'_>, at: usize, length: usize) -> Stance {
    let all = &words.all;
    let mut verb = at + length;
    while verb + 1 < all.len() && words.alone(verb, ADVERBS) {
        verb += 1;
    }
    let Some(first) = all.get(verb) else { return Stance::Neutral };
    let goes = matches!(*first, "get" | "see")
        && all
            .get(verb + 1)
            .is_some_and(|word| matches!(*word, "started" | "going" | "what" | "if" | "how" | "whether"));
    let together = (all[at].starts_with("we") || all[at] == "let's") && !goes;
    let is_doing = *first == "be" && all.get(verb + 1).is_some_and(|word| word.ends_with("ing"));
    // "I'll have `main()` take arguments" gives work to a thing.
    let has_done = *first == "have" && all.get(verb + 1).is_some_and(|word| word.contains(SPAN));
    let calls_again = *first == "call" && all[verb..].contains(&"again");
    if words.has_at(verb, IDLE) && !is_doing && !has_done && !calls_again
        || together && words.alone(verb, IDLE_TOGETHER)
    {
        let goes_on = all[verb + 1..].iter().any(|word| matches!(*word, "and" | "then"));
        let to_reader = all.iter().any(|word| matches!(*word, "you" | "your" | "you're" | "you've"));
        let moves = goes_on && !to_reader && matches!(*first, "wait" | "stop" | "assume");
        return if moves { Stance::Announces } else { Stance::Neutral };
    }
    // "Once all tests pass it is complete, so I'll continue" depends on nothing.
    let clause = all[..at].iter().rposition(|word| *word == "so").unwrap_or_default();
    let depends = all[clause..at].iter().any(|word| matches!(*word, "if" | "unless" | "once" | "when"));
    if depends || is_condition(&all[verb..]) {
        return Stance::Neutral;
    }
    if (at + length..=verb).any(|place| words.has_at(place, TELL)) { Stance::Tells } else { Stance::Announces }
}

/// Whether something else must happen first: "if nobody objects", but not "and if not, restart it".
fn is_condition(behind: &[&str]) -> bool {
    let Some(at) = behind.iter().position(|word| matches!(*word, "if" | "unless")) else { return false };
    let is_own = matches!(behind.get(at + 1), Some(&("not" | "so" | "any" | "it" | "they" | "there")));
    let looks =
        behind[..at].iter().any(|word| matches!(*word, "see" | "check" | "verify" | "test" | "what" | "happens"));
    !is_own && !looks
}

/// "I'm updating the components now."
fn is_doing(words: &Words<'_>) -> bool {
    let places = (0..words.all.len()).filter_map(|at| Some((at, words.longest_at(at, DOING)?)));
    places.into_iter().any(|(at, length)| does(words, at, length))
}

fn does(words: &Words<'_>, at: usize, length: usize) -> bool {
    let skipped = ["now", "also", "currently", "next", "then", "still", "just", "already"];
    let Some(verb) = words.all[at + length..].iter().find(|word| !skipped.contains(word)) else { return false };
    let is_fine = words.all.iter().any(|word| matches!(*word, "well" | "fine" | "great" | "good" | "okay"));
    if *verb == "doing" && is_fine {
        return false;
    }
    let idle = [
        "assuming",
        "hoping",
        "wondering",
        "missing",
        "seeing",
        "getting",
        "having",
        "waiting",
        "looking forward",
        "asking",
        "talking",
        "thinking",
        "being",
        "suggesting",
        "proposing",
        "stopping",
        "leaving",
        "handing",
        "ending",
        "closing",
        "pausing",
    ];
    let to_reader = words.all.windows(2).any(|pair| pair[0] == *verb && matches!(pair[1], "you" | "here" | "at"));
    verb.ends_with("ing")
        && !to_reader
        && !idle.contains(verb)
        && !words.all.windows(2).any(|pair| pair == ["looking", "forward"])
        && !words.all[..at].iter().any(|word| matches!(*word, "if" | "when" | "once" | "whether"))
}

/// "Index 5 will be rebuilt now."
fn is_done_to(words: &Words<'_>) -> bool {
    let is_state =
        |word: &str| matches!(word, "right" | "fine" | "good" | "ready" | "there" | "here" | "better" | "correct");
    let will = words
        .all
        .windows(3)
        .any(|three| three[0] == "will" && (three[1] == "be" && !is_state(three[2]) || three[2] == "be"));
    let being = words.all.windows(2).any(|pair| {
        matches!(pair[0], "is" | "are" | "gets" | "get") && (pair[1] == "being" || pair[1].ends_with("ed"))
    });
    let soon = ["now", "next", "remaining"].iter().any(|when| words.all.contains(when));
    let last_next = words.all.last() == Some(&"next");
    (will && soon || being && last_next || words.all.windows(2).any(|pair| pair == ["being", "started"]))
        && !words.all.iter().any(|word| matches!(*word, "you" | "your" | "when" | "if"))
}

/// "Next:", "Next step:".
fn is_label(sentence: &Sentence, words: &Words<'_>, lead: usize) -> bool {
    let rest = &words.all[lead..];
    let is_last = |at: usize| lead + at == words.all.len();
    let named = words.longest_at(lead, LABELS).is_some_and(is_last) || words.all.last() == Some(&"next");
    let other = rest[0] == "next" && rest.len() <= 3 && rest.last() != Some(&"steps");
    // "## Next", and below it what the model does.
    let is_heading = sentence.place == Place::Heading && rest == ["next"];
    sentence.end == End::Colon && (named || other) || is_heading
}

/// "Step 2", "now phase two".
fn is_step(words: &Words<'_>, lead: usize) -> bool {
    let at = lead + usize::from(matches!(words.all[lead], "now" | "next"));
    words.alone(at, STEPS) && words.all.len() > at + 1
}

/// "Now the second half.", "On to chapter 3.", "Time to write the tests."
fn is_named_work(words: &Words<'_>, lead: usize) -> bool {
    if words.has_at(lead, RESUMES) {
        return true;
    }
    // "Next, clippy."
    let rest = &words.all[lead..];
    if rest[0] == "next"
        && (2..=3).contains(&rest.len())
        && !words.has_word(lead + 1..words.all.len(), WORKS | FINITE | BEHAVES)
    {
        return !rest
            .iter()
            .any(|word| matches!(*word, "time" | "week" | "month" | "year" | "steps" | "day" | "question" | "you"));
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
fn is_gerund(words: &Words<'_>, lead: usize) -> bool {
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
fn acts_now(words: &Words<'_>) -> bool {
    let places = words.all.iter().enumerate().filter(|(_, word)| **word == "i").map(|(at, _)| at);
    let is_when = |word: &str| matches!(word, "now" | "next" | "first" | "then" | "again");
    // "Here I check each file.", but "here I use a map" explains code.
    let here = matches!(words.all.as_slice(), ["here", "i", "check" | "test" | "verify" | "compare" | "inspect", ..]);
    let tells_when =
        (here || words.all.iter().any(|word| is_when(word))) && !words.all.iter().any(|word| word.ends_with("ed"));
    let mut acts = places.filter(|at| {
        let next = words.all.get(at + 1).copied().unwrap_or_default();
        words.alone(at + 1, WORKS) || is_when(next) && words.alone(at + 2, WORKS)
    });
    tells_when && acts.next().is_some()
}

/// "Hook first, since it decides the rest."
fn puts_first(words: &Words<'_>) -> bool {
    let Some(at @ 1..=3) = words.all.iter().position(|word| *word == "first") else { return false };
    let begin = words.all[0];
    let other = matches!(
        begin,
        "the" | "at" | "my" | "your" | "on" | "in" | "a" | "its" | "love" | "their" | "his" | "her" | "our" | "i"
    );
    let ends = words.all.get(at + 1).is_none_or(|next| matches!(*next, "since" | "because" | "as" | "then" | "so"));
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
const OTHERS: &[&str] = &[
    "the", "it", "this", "they", "each", "a", "an", "which", "he", "she", "you", "these", "that", "its", "your",
    "when", "if", "by", "to",
];
/// Last words of clauses that say that something is over.
const OVER: &[&str] = &["done", "complete", "empty", "down", "out", "ready", "through", "nothing"];

/// "Chapter 1 summarized, moving to chapter 2.", "The abstract isn't enough, fetching the PDF."
fn moves_on(text: &str, words: &Words<'_>) -> bool {
    let dash = ["\u{2014} ", "\u{2013} ", "\u{2192} ", " - "].iter().find_map(|dash| text.rsplit_once(dash));
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
    if is_work && length <= 8 && !OTHERS.contains(&words.all[0]) && !words.all.contains(&"you") {
        return true;
    }
    let last = before.rsplit(' ').next().unwrap_or_default();
    let is_over = last.ends_with("ed") || OVER.contains(&last);
    let goes_on = is_now || matches!(first, "starting" | "beginning" | "turning" | "trying" | "next");
    let is_amiss = matches!(last, "missing" | "wrong" | "broken" | "off");
    is_over && (is_work || goes_on) && length <= 6 && !words.has(FINITE) || is_amiss && is_work
}
