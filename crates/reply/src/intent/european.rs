//! What a sentence in German, French or Spanish says about going on. The phrases are in `words/de.txt` and so on.

use super::Stance;
use super::lexicon::{Section, Tags, Words};
use super::sentence::{End, Place, Sentence};

const MARKS: Tags = 1 << 24;
const ASKS: Tags = 1 << 25;
const REQUESTS: Tags = 1 << 26;
const ANNOUNCES: Tags = 1 << 27;
const BEGINS: Tags = 1 << 28;
const WHO: Tags = 1 << 29;
const IDLE: Tags = 1 << 30;
const PAST: Tags = 1 << 31;
const DONE: Tags = 1 << 32;
const UNFINISHED: Tags = 1 << 33;
const SUBORDINATE: Tags = 1 << 34;
/// Bits from one language to the next.
const LANGUAGE_BITS: u32 = 11;
pub(super) const GERMAN: u32 = 0;
pub(super) const FRENCH: u32 = LANGUAGE_BITS;
pub(super) const SPANISH: u32 = 2 * LANGUAGE_BITS;

/// The sections of each of the three files.
pub(super) const SECTIONS: &[Section] = &[
    ("marks", MARKS),
    ("asks", ASKS),
    ("requests", REQUESTS),
    ("announces", ANNOUNCES),
    ("begins", BEGINS),
    ("who", WHO),
    ("idle", IDLE),
    ("past", PAST),
    ("done", DONE),
    ("unfinished", UNFINISHED),
    ("subordinate", SUBORDINATE),
];

pub(super) fn stance(sentence: &Sentence, words: &Words<'_>) -> Stance {
    let mut languages = [GERMAN, FRENCH, SPANISH]
        .into_iter()
        .filter(|language| is_it(*language, words) || words.has((MARKS | ANNOUNCES | ASKS | BEGINS) << language));
    languages.find_map(|language| stance_in(language, sentence, words)).unwrap_or(Stance::Neutral)
}

/// Whether the first word is of this language alone.
fn is_it(language: u32, words: &Words<'_>) -> bool {
    match language {
        FRENCH => {
            words.all.iter().any(|word| word.starts_with("j'") || word.starts_with("l'") || word.starts_with("d'"))
        }
        SPANISH => words.has_at(0, WHO << SPANISH),
        _ => false,
    }
}

fn stance_in(language: u32, sentence: &Sentence, words: &Words<'_>) -> Option<Stance> {
    let has = |tags: Tags| words.has(tags << language);
    if sentence.end == End::Question || has(ASKS) {
        return Some(Stance::Asks);
    }
    // "Öffnen Sie die Einstellungen."
    let is_imperative = words.all.get(1) == Some(&"sie") && words.all[0].ends_with("en");
    if language == GERMAN && is_imperative {
        return Some(Stance::Requests);
    }
    if begins_work(sentence, words) || announces(language, words) && !is_told(language, words) {
        return Some(Stance::Announces);
    }
    if has(REQUESTS) {
        return Some(Stance::Requests);
    }
    if has(UNFINISHED) {
        return Some(Stance::Unfinished);
    }
    has(DONE).then_some(Stance::Done)
}

/// Nouns of work, and verbs without a subject, with which short lines about what happens now begin.
const FRAGMENTS: &[&str] = &[
    "lecture",
    "recherche",
    "analyse",
    "v\u{e9}rification",
    "chargement",
    "ouverture",
    "comparaison",
    "calcul",
    "g\u{e9}n\u{e9}ration",
    "t\u{e9}l\u{e9}chargement",
    "extraction",
    "correction",
    "cr\u{e9}ation",
    "b\u{fa}squeda",
    "lectura",
    "an\u{e1}lisis",
    "verificaci\u{f3}n",
    "descarga",
    "carga",
    "comparaci\u{f3}n",
    "c\u{e1}lculo",
    "generaci\u{f3}n",
    "suche",
    "lade",
    "pr\u{fc}fe",
    "lese",
    "analysiere",
    "vergleiche",
    "erstelle",
    "\u{f6}ffne",
    "starte",
    "schreibe",
];

/// "Lecture des capteurs\u{2026}", "Primero, localizar la cita."
fn begins_work(sentence: &Sentence, words: &Words<'_>) -> bool {
    let all = &words.all;
    let short = sentence.end == End::Dots && all.len() <= 10 && FRAGMENTS.contains(&all[0]);
    let is_infinitive = |word: &&str| word.len() > 4 && ["ar", "er", "ir", "re"].iter().any(|end| word.ends_with(end));
    let first = matches!(all[0], "primero" | "d'abord") && all.get(1).is_some_and(is_infinitive);
    short || first && sentence.place != Place::Item
}

/// Whether the reader acts: "Als N\u{e4}chstes tr\u{e4}gst du", "ensuite, vous ouvrez".
fn is_told(language: u32, words: &Words<'_>) -> bool {
    let has = |wanted: &[&str]| words.all.iter().any(|word| wanted.contains(word));
    match language {
        GERMAN => {
            // "Als N\u{e4}chstes ziehen Sie die Welle heraus."
            let sie = words.all.windows(2).any(|pair| pair[1] == "sie" && pair[0].ends_with("en"));
            (has(&["du", "ihr"]) || sie) && !has(&["ich", "mich", "wir", "uns", "lassen"])
        }
        FRENCH => {
            has(&["tu", "vous"])
                && !has(&["je", "nous", "laissez-moi", "laisse-moi"])
                && !words.all.iter().any(|word| word.starts_with("j'"))
        }
        _ => false,
    }
}

fn announces(language: u32, words: &Words<'_>) -> bool {
    let has = |tags: Tags| words.has(tags << language);
    // "J'analyse": the pronoun is part of the word.
    let elided = || {
        words
            .all
            .iter()
            .filter_map(|word| word.strip_prefix("j'"))
            .any(|verb| verb.ends_with('e') || verb.ends_with("is") && !verb.ends_with("ais"))
    };
    // "Leer\u{e9}": the future of the first person.
    let is_future = |word: &str| ["ar\u{e9}", "er\u{e9}", "ir\u{e9}"].iter().any(|end| word.ends_with(end));
    let future = || {
        let mut places = words.all.iter().enumerate().filter(|(_, word)| is_future(word)).map(|(at, _)| at);
        places.any(|at| at == 0 || words.all[at - 1] != "no")
    };
    // "Reintentando": a form that names work at the beginning of a sentence.
    let gerund = || {
        let first = words.all.first().copied().unwrap_or_default();
        (first.ends_with("ando") || first.ends_with("iendo"))
            && first.len() > 6
            && !matches!(first, "cuando" | "recomiendo" | "entiendo" | "siendo" | "habiendo")
    };
    let acts = match language {
        FRENCH => elided(),
        SPANISH => future() || gerund() || acts_now(words),
        _ => false,
    };
    let named = has(ANNOUNCES) || words.has_at(0, BEGINS << language) || words.has_at(lead(words), BEGINS << language);
    let who = words.places(WHO << language).any(|at| acts_at(language, words, at));
    who || !has(IDLE | PAST) && (named || acts) || named && !words.has(PAST << language)
}

/// "Cruzo ahora los comentarios."
fn acts_now(words: &Words<'_>) -> bool {
    let is_when = |word: &str| matches!(word, "ahora" | "primero" | "luego" | "después" | "enseguida");
    let acts = |word: &str| {
        word.len() > 4
            && word.ends_with('o')
            && !matches!(
                word,
                "justo"
                    | "mismo"
                    | "nuevo"
                    | "como"
                    | "todo"
                    | "segundo"
                    | "tercero"
                    | "archivo"
                    | "cuando"
                    | "momento"
                    | "primero"
            )
    };
    // "Ahora yo hago el gr\u{e1}fico."
    let says_i = words.all.windows(3).any(|three| is_when(three[0]) && three[1] == "yo" && three[2].ends_with('o'));
    says_i || words.all.windows(2).any(|pair| is_when(pair[0]) && acts(pair[1]) || acts(pair[0]) && is_when(pair[1]))
}

/// Words before the sentence proper.
fn lead(words: &Words<'_>) -> usize {
    let skipped = [
        "gut", "ok", "okay", "also", "so", "und", "aber", "super", "prima", "bien", "bon", "parfait", "alors", "donc",
        "et", "vale", "perfecto", "bueno", "entonces", "y", "pues", "genial", "dann",
    ];
    words.all.iter().take_while(|word| skipped.contains(word)).count().min(words.all.len().saturating_sub(1))
}

/// Whether the model acts by the verb beside this pronoun, or by this verb.
fn acts_at(language: u32, words: &Words<'_>, at: usize) -> bool {
    let tagged = |place: usize, tags: Tags| words.has_at(place, tags << language);
    let before = at.checked_sub(1);
    let is_idle = tagged(at, IDLE) || tagged(at + 1, IDLE) || before.is_some_and(|before| tagged(before, IDLE));
    // "As\u{ed} que busco" is a clause of its own.
    let is_own =
        before.is_some_and(|before| words.all[before] == "que" && before > 0 && words.all[before - 1] == "as\u{ed}");
    let is_subordinate = !is_own && before.is_some_and(|before| tagged(before, SUBORDINATE));
    !is_idle && !is_subordinate && at + usize::from(language != GERMAN && language != SPANISH) < words.all.len()
}
