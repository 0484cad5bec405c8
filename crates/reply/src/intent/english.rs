//! What an English sentence says about going on. The phrases are in `words/en.txt`.

use super::Stance;
use super::lexicon::{Section, Tags, Words};
use super::sentence::{End, Place, SPAN, Sentence};

const FUTURE: Tags = 1 << 0;
const ADVERBS: Tags = 1 << 1;
const IDLE: Tags = 1 << 2;
const IDLE_TOGETHER: Tags = 1 << 3;
const REPORT: Tags = 1 << 4;
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
const AFTERWARDS: Tags = 1 << 22;
const WORKS: Tags = 1 << 23;

/// The sections of `words/en.txt`.
pub(super) const SECTIONS: &[Section] = &[
    ("future", FUTURE),
    ("adverbs", ADVERBS),
    ("idle", IDLE),
    ("idle_together", IDLE_TOGETHER),
    ("tell", REPORT),
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
    // "Please hold on", but not "please call them right away".
    let begins_polite = all[lead] == "please";
    let asks_for_a_moment = begins_polite && words.has_at(lead + 1, AT_ONCE);
    let at_once = !begins_polite
        && words.places(AT_ONCE).any(|at| at <= lead || matches!(all[at - 1], "so" | "and" | "then" | "now"));
    // "One sec while I open it."
    let while_i = words.places(AT_ONCE).any(|at| words.all[at..].windows(2).any(|pair| pair == ["while", "i"]));
    if at_once || asks_for_a_moment || while_i {
        return Stance::Announces;
    }
    if is_up_to_the_reader(text, words) || waits(words) {
        return Stance::Asks;
    }
    let futures: Vec<Stance> = futures(words).collect();
    // "Now let's divide by m, which gives a = g."
    let is_formula = text.contains(" = ") && !all.iter().any(|word| *word == "i" || word.starts_with("i'"));
    if is_formula && !all.contains(&"me") && !all.contains(&"call") {
        return Stance::Neutral;
    }
    if futures.contains(&Stance::Announces) {
        return Stance::Announces;
    }
    if let Some(reports) = futures.iter().find(|stance| **stance == Stance::Reports) {
        return *reports;
    }
    if !futures.is_empty() {
        // "I need to know that, so I am reading it", "Looking it up now, and then I'll answer".
        let acts = is_doing(words) || is_gerund(words, lead) && all.contains(&"now");
        return if acts { Stance::Announces } else { Stance::Neutral };
    }
    if all.contains(&"please") {
        return Stance::Requests;
    }
    // "Streaming:" is the name of something.
    let is_name = sentence.end == End::Colon && all.len() == 1;
    if is_done_to(words) || is_doing(words) || acts_now(words) {
        return Stance::Announces;
    }
    let names_work = moves_on(text, words)
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
    if is_unfinished(words) && sentence.place == Place::Text && sentence.end != End::Colon {
        return Stance::Unfinished;
    }
    if words.has(DONE) { Stance::Done } else { Stance::Neutral }
}

/// Whether nobody acts in the text: it begins with a form in -ing, and nothing is said of when.
pub(super) fn is_fragment(text: &str) -> bool {
    let first = text.split(' ').next().unwrap_or_default();
    first.ends_with("ing") && !text.ends_with(" now") && !text.ends_with(" next")
}

/// Whether the sentence is about what comes after something else. "I'll look at it first and then write" begins at once.
pub(super) fn is_afterwards(words: &Words<'_>) -> bool {
    words.has(AFTERWARDS) && !words.all.contains(&"first")
}

/// Whether something of the work at hand is left to do. "A job that is not finished after ten minutes is killed" is about
/// any job, and "the cycle, which comes next" about the order of things.
fn is_unfinished(words: &Words<'_>) -> bool {
    let Some((at, _)) = words.first(UNFINISHED) else { return false };
    let before = &words.all[..at];
    let denies = words.all.iter().any(|word| matches!(*word, "nothing" | "no" | "none" | "didn't"))
        || words.all.windows(2).any(|pair| matches!(pair[0], "for" | "to") && matches!(pair[1], "you" | "your"));
    let relates =
        matches!(before.last(), Some(&("which" | "what"))) || words.all.windows(2).any(|pair| pair == ["next", "to"]);
    let any = matches!(before, ["a" | "an", ..] | ["in" | "for" | "with", _, "a" | "an", ..]);
    !denies && !relates && !any
}

/// Verbs by which a reader hands something over.
const GIVES: &[&str] = &[
    "drop", "send", "put", "give", "paste", "upload", "tell", "forward", "share", "leave", "attach", "reply", "say",
    "type", "answer", "confirm", "press", "click", "pick",
];

/// "Just drop it in the folder, and I'll take care of it.", "Should it differ, paste it here and I will find the gap."
fn gives(text: &str) -> bool {
    text.split([',', ';']).any(|clause| {
        let mut words = clause.trim_start().split(' ').skip_while(|word| matches!(*word, "just" | "please" | "then"));
        words.next().is_some_and(|verb| GIVES.contains(&verb))
    })
}

/// Whether it is up to the reader what happens.
fn is_up_to_the_reader(text: &str, words: &Words<'_>) -> bool {
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
    let is_own = words.all[0] == "i" || words.all[0].starts_with("i'");
    let gives = !is_own
        && gives(text)
        && words.all.windows(2).any(|pair| matches!(pair, ["and", "i'll" | "i"] | ["then", "i'll"]));
    // "No input is needed from you."
    let needs_nobody = words.all.windows(2).any(|pair| pair == ["from", "you"])
        && words.all.iter().any(|word| matches!(*word, "no" | "none" | "nothing"));
    words.has(ASKS) && !needs_nobody || offers || decides || gives
}

/// Whether the model waits for somebody or needs something. "I need the rate, so let me look it up" does not wait, nor
/// does "I won't delete anything while doing so".
fn waits(words: &Words<'_>) -> bool {
    let Some((at, length)) = words.first(WAITS) else { return false };
    if words.all[at + length - 1] == "won't" && words.all.contains(&"while") {
        return false;
    }
    // "Next I need the survey so I can compare the two."
    let is_step = matches!(words.all[0], "next" | "now") && words.all[1..].starts_with(&["i", "need"]);
    if is_step && words.all.windows(3).any(|three| three == ["so", "i", "can"]) {
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
            .is_some_and(|word| matches!(*word, "started" | "going" | "what" | "if" | "how" | "whether" | "the"));
    let together = (all[at].starts_with("we") || all[at] == "let's") && !goes;
    // "There is nothing further I'll do.", "No key that would let me look at it."
    let would_let =
        all[at] == "let" && at > 0 && matches!(all[at - 1], "would" | "will" | "could" | "doesn't" | "didn't");
    if all[..at].contains(&"nothing") || would_let {
        return Stance::Neutral;
    }
    let is_doing = *first == "be" && all.get(verb + 1).is_some_and(|word| word.ends_with("ing"));
    // "I'll have `main()` take arguments" gives work to a thing.
    let has_done = *first == "have" && all.get(verb + 1).is_some_and(|word| word.contains(SPAN))
        || all[verb..].windows(3).any(|three| three[0] == "have" && matches!(three[2], "look" | "try" | "go"));
    // "Let's call the weather tool": no name is given.
    let calls = *first == "call"
        && all[verb..].iter().any(|word| matches!(*word, "again" | "tool" | "function" | "api" | "endpoint"));
    if words.has_at(verb, IDLE) && !is_doing && !has_done && !calls
        || together && words.alone(verb, IDLE_TOGETHER) && !calls
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
    // "I'll go through those before I write the conclusions."
    let goes_on = all[verb..].windows(2).any(|pair| pair == ["before", "i"]);
    if !goes_on && (at + length..=verb).any(|place| words.has_at(place, REPORT)) {
        Stance::Reports
    } else {
        Stance::Announces
    }
}

/// Words for what other people give or do.
const OTHERS_GIVE: &[&str] = &[
    "confirmation",
    "approval",
    "reply",
    "answer",
    "response",
    "sign-off",
    "go-ahead",
    "permission",
    "access",
    "feedback",
    "somebody",
    "someone",
    "their",
    "his",
    "her",
    "approves",
    "confirms",
    "replies",
    "answers",
];

/// Whether something else must happen first: "if nobody objects", but not "and if not, restart it".
fn is_condition(behind: &[&str]) -> bool {
    // "When the last two have answered", "once I have them".
    // "As soon as that's there", "when their confirmation comes in".
    let behind_when = behind.iter().position(|word| matches!(*word, "when" | "once" | "until" | "after"));
    let others_give = behind_when.is_some_and(|at| behind[at..].iter().take(8).any(|word| OTHERS_GIVE.contains(word)));
    let soon =
        behind.windows(4).any(|four| four[..3] == ["as", "soon", "as"] && !matches!(four[3], "i" | "i've" | "it"));
    if others_give || soon {
        return true;
    }
    let waits_for = behind.windows(3).any(|three| {
        matches!(three[0], "when" | "once")
            && (matches!(three[1], "they" | "both" | "all" | "everyone" | "everybody" | "he" | "she")
                || matches!(
                    (three[1], three[2]),
                    ("i", "have" | "get" | "hear") | ("i've", _) | ("the", "last" | "others")
                ))
    });
    if waits_for {
        return true;
    }
    let Some(at) = behind.iter().position(|word| matches!(*word, "if" | "unless")) else { return false };
    let is_own = matches!(behind.get(at + 1), Some(&("not" | "so" | "any" | "it" | "they" | "there")));
    let looks = behind[..at]
        .iter()
        .any(|word| matches!(*word, "see" | "look" | "check" | "verify" | "test" | "what" | "happens"));
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
    let clause = words.all[..at].iter().rposition(|word| *word == "so").unwrap_or_default();
    verb.ends_with("ing")
        && !to_reader
        && !idle.contains(verb)
        && !words.all.windows(2).any(|pair| pair == ["looking", "forward"])
        && !words.all[clause..at].iter().any(|word| matches!(*word, "if" | "when" | "once" | "whether"))
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

/// What has a date of its own: "Next renewal: 14 March."
const DATED: &[&str] = &[
    "steps",
    "meeting",
    "appointment",
    "deadline",
    "date",
    "expiry",
    "expiration",
    "renewal",
    "payment",
    "invoice",
    "review",
    "delivery",
    "maintenance",
    "visit",
    "due",
    "backup",
];

/// "Next:", "Next step:".
fn is_label(sentence: &Sentence, words: &Words<'_>, lead: usize) -> bool {
    let rest = &words.all[lead..];
    let is_last = |at: usize| lead + at == words.all.len();
    let named = words.longest_at(lead, LABELS).is_some_and(is_last) || words.all.last() == Some(&"next");
    let is_date = rest.iter().any(|word| DATED.contains(word));
    let other = rest[0] == "next" && rest.len() <= 3 && !is_date;
    // "## Next", and below it what the model does.
    let is_heading = sentence.place == Place::Heading && rest == ["next"];
    sentence.end == End::Colon && (named || other) || is_heading
}

/// "Step 2", "now phase two".
fn is_step(words: &Words<'_>, lead: usize) -> bool {
    let at = lead + usize::from(matches!(words.all[lead], "now" | "next"));
    words.alone(at, STEPS) && words.all.len() > at + 1
}

/// What is done again: "same query again", but not "same error again".
const REPEATED: &[&str] =
    &["query", "search", "command", "request", "test", "check", "step", "call", "procedure", "thing", "approach"];

/// "Now the second half.", "On to chapter 3.", "Time to write the tests."
fn is_named_work(words: &Words<'_>, lead: usize) -> bool {
    if words.has_at(lead, RESUMES) {
        return true;
    }
    // "One more search.", "Slide 7 next."
    let counts = matches!(
        words.all[lead..],
        ["one", "more" | "last", _] | ["one", "more" | "last", _, _] | ["one", "more" | "last", _, "to", "go", ..]
    );
    let is_talk = |word: &&str| {
        matches!(
            *word,
            "thing"
                | "note"
                | "question"
                | "point"
                | "tip"
                | "idea"
                | "option"
                | "detail"
                | "caveat"
                | "remark"
                | "comment"
                | "word"
                | "suggestion"
                | "hint"
                | "warning"
        )
    };
    let ends_next = words.all.last() == Some(&"next") && words.all.len() <= 4 && !words.has(FINITE);
    if (counts && !words.all.iter().any(is_talk) || ends_next) && !words.all.contains(&"you") {
        return true;
    }
    // "Same query again with the other number."
    if words.all[lead] == "same"
        && words.all.contains(&"again")
        && words.all.get(lead + 1).is_some_and(|word| REPEATED.contains(word))
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
            matches!(*word, "time" | "week" | "month" | "year" | "day" | "question" | "you") || DATED.contains(word)
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
fn acts_now(words: &Words<'_>) -> bool {
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
fn puts_first(words: &Words<'_>) -> bool {
    let Some(at @ 1..=3) = words.all.iter().position(|word| *word == "first") else { return false };
    let begin = words.all[0];
    let other = matches!(
        begin,
        "the"
            | "at"
            | "my"
            | "your"
            | "on"
            | "in"
            | "a"
            | "its"
            | "love"
            | "their"
            | "his"
            | "her"
            | "our"
            | "i"
            | "let"
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
    if is_work && length <= 8 && !OTHERS.contains(&words.all[0]) && !words.all.contains(&"you") {
        return true;
    }
    let last = before.rsplit(' ').next().unwrap_or_default();
    let is_over = last.ends_with("ed") || OVER.contains(&last);
    let goes_on = is_now || matches!(first, "starting" | "beginning" | "turning" | "trying" | "next");
    let is_amiss = matches!(last, "missing" | "wrong" | "broken" | "off");
    is_over && (is_work || goes_on) && length <= 6 && !words.has(FINITE) || is_amiss && is_work
}
