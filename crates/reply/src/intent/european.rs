//! Stance of a German, French or Spanish sentence about another step. The phrases are in `words/de.txt` and so on.

use super::lexicon::Words;
use super::sentence::{End, LineKind, SPAN, Sentence};
use super::stance::Stance;
use super::tags::Tags;
use super::tags::european::{
    ANNOUNCES, ASKS, BEGINS, DONE, FRENCH, GERMAN, IDLE, MARKS, PAST, REQUESTS, SPANISH, SUBORDINATE, UNFINISHED, WHO,
};

pub(super) fn stance(sentence: &Sentence, text: &str, words: &Words<'_>) -> Stance {
    let mut languages = [GERMAN, FRENCH, SPANISH]
        .into_iter()
        .filter(|language| is_language(*language, words) || words.has((MARKS | ANNOUNCES | ASKS | BEGINS) << language));
    languages.find_map(|language| stance_in_language(language, sentence, text, words)).unwrap_or(Stance::Neutral)
}

/// Whether the first word is of this language alone.
fn is_language(language: u32, words: &Words<'_>) -> bool {
    match language {
        FRENCH => {
            words.all.iter().any(|word| word.starts_with("j'") || word.starts_with("l'") || word.starts_with("d'"))
        }
        SPANISH => words.has_at(0, WHO << SPANISH),
        _ => false,
    }
}

/// "Falls es Ihnen nicht passt, sagen Sie Bescheid, ich lege den Termin jetzt an."
fn acts_at_once(language: u32, text: &str) -> bool {
    let Some((_, last)) = text.rsplit_once(", ") else { return false };
    language == GERMAN && last.starts_with("ich ") && last.split(' ').any(|word| matches!(word, "jetzt" | "nun"))
}

/// Whether the sentence begins with what must happen first, and others do it.
fn is_conditional(language: u32, words: &Words<'_>) -> bool {
    let all = &words.all;
    let (begins, own): (bool, &[&str]) = match language {
        GERMAN => (matches!(all[0], "sobald" | "falls" | "sofern"), &["ich", "wir", "das", "es"]),
        FRENCH => (
            all[0] == "si" || all.starts_with(&["d\u{E8}s", "que"]) || all.starts_with(&["une", "fois", "que"]),
            &["je", "j'ai", "j'aurai", "nous", "on", "\u{E7}a", "cela", "rien"],
        ),
        SPANISH => (
            all[0] == "si" || all.starts_with(&["en", "cuanto"]) || all.starts_with(&["una", "vez", "que"]),
            &["no", "eso", "lo", "tenga", "termine", "acabe", "sigue"],
        ),
        _ => (false, &[]),
    };
    begins && !all.iter().skip(1).take(3).any(|word| own.contains(word))
}

fn stance_in_language(language: u32, sentence: &Sentence, text: &str, words: &Words<'_>) -> Option<Stance> {
    let has = |tags: Tags| words.has(tags << language);
    if sentence.end != End::Question && acts_at_once(language, text) {
        return Some(Stance::Announces);
    }
    if sentence.end != End::Question && (waits_a_moment(words) || language == SPANISH && acts_on_reason(words)) {
        return Some(Stance::Announces);
    }
    if sentence.end == End::Question || has(ASKS) {
        return Some(Stance::Asks);
    }
    if names_next(text) {
        return Some(Stance::Announces);
    }
    // "Bitte best\u{E4}tigen Sie, dann beginne ich."
    let is_asked_first = language == GERMAN
        && words.all[0] == "bitte"
        && words.all.windows(2).any(|pair| pair[0].ends_with("en") && pair[1] == "sie")
        && words.all.contains(&"dann");
    if is_asked_first {
        return Some(Stance::Requests);
    }
    if is_conditional(language, words) {
        return Some(Stance::Neutral);
    }
    // "Öffnen Sie die Einstellungen."
    let lets_me = words.all[0] == "lassen" && matches!(words.all.get(2), Some(&("mich" | "uns")));
    let is_imperative = words.all.get(1) == Some(&"sie") && words.all[0].ends_with("en") && !lets_me;
    if language == GERMAN && is_imperative {
        return Some(Stance::Requests);
    }
    if begins_work(sentence, words) || announces(language, words) && !is_reported(language, words) {
        return Some(Stance::Announces);
    }
    if has(REQUESTS) {
        return Some(Stance::Requests);
    }
    if has(UNFINISHED) {
        return Some(Stance::Unfinished);
    }
    // "Ce que j'ai d\u{E9}j\u{E0} :" stands over a list.
    (has(DONE) && sentence.end != End::Colon).then_some(Stance::Done)
}

/// "As\u{ED} que lo descargo": the model acts for the reason that was given.
fn acts_on_reason(words: &Words<'_>) -> bool {
    let acts = |word: &str| {
        word.len() > 3 && word.ends_with('o') && !matches!(word, "como" | "esto" | "todo" | "solo" | "tengo" | "creo")
    };
    words.all.windows(4).any(|four| {
        four[..2] == ["as\u{ED}", "que"]
            && (acts(four[2]) && matches!(four[3], "un" | "una" | "el" | "la" | "los" | "las")
                || matches!(four[2], "lo" | "la" | "los" | "las") && acts(four[3]))
    })
}

/// "Ich warte 30 Sekunden und versuche es dann noch einmal."
fn waits_a_moment(words: &Words<'_>) -> bool {
    const WAIT: &[&str] = &["warte", "j'attends", "attends", "espero"];
    const UNITS: &[&str] = &["sekunden", "minuten", "minute", "secondes", "minutes", "segundos", "minutos", "minuto"];
    let wait = words.all.iter().position(|word| WAIT.contains(word));
    wait.is_some_and(|at| {
        let behind = &words.all[at..];
        behind.iter().any(|word| UNITS.contains(word)) && behind.iter().any(|word| matches!(*word, "und" | "et" | "y"))
    })
}

/// Nouns of work, and verbs without a subject, with which short lines about what happens now begin; by language.
const FRAGMENTS: &[&[&str]] = &[
    &["lecture", "recherche", "analyse", "v\u{e9}rification", "chargement", "ouverture", "comparaison", "calcul"],
    &["g\u{e9}n\u{e9}ration", "t\u{e9}l\u{e9}chargement", "extraction", "correction", "cr\u{e9}ation"],
    &["b\u{fa}squeda", "lectura", "an\u{e1}lisis", "verificaci\u{f3}n", "descarga", "carga"],
    &["comparaci\u{f3}n", "c\u{e1}lculo", "generaci\u{f3}n"],
    &["suche", "lade", "pr\u{fc}fe", "lese", "analysiere"],
    &["vergleiche", "erstelle", "\u{f6}ffne", "starte", "schreibe"],
];

/// "Lecture des capteurs\u{2026}", "Primero, localizar la cita."
fn begins_work(sentence: &Sentence, words: &Words<'_>) -> bool {
    let all = &words.all;
    let short = sentence.end == End::Dots && all.len() <= 10 && FRAGMENTS.iter().any(|begins| begins.contains(&all[0]));
    let is_infinitive = |word: &&str| word.len() > 4 && ["ar", "er", "ir", "re"].iter().any(|end| word.ends_with(end));
    let first = matches!(all[0], "primero" | "d'abord") && all.get(1).is_some_and(is_infinitive);
    // "Mal die Zeilen herausfiltern."
    let german = all[0] == "mal" && all.len() > 2 && all[1..].iter().any(|word| word.len() > 5 && word.ends_with('n'));
    short || (first || german) && sentence.kind != LineKind::Item
}

/// Whether the reader acts: "Als N\u{e4}chstes tr\u{e4}gst du", "ensuite, vous ouvrez".
fn is_reported(language: u32, words: &Words<'_>) -> bool {
    let has = |wanted: &[&str]| words.all.iter().any(|word| wanted.contains(word));
    match language {
        GERMAN => {
            // "Als N\u{e4}chstes ziehen Sie die Welle heraus."
            let sie = words.all.windows(2).any(|pair| pair[1] == "sie" && pair[0].ends_with("en"));
            (has(&["du", "ihr"]) || sie) && !has(&["ich", "mich", "wir", "uns", "lassen"])
        }
        FRENCH => {
            // "Quand l'eau coule sans bulles, on referme."
            let whenever = matches!(words.all[0], "quand" | "lorsque" | "lorsqu'on");
            (has(&["tu", "vous"]) || whenever)
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
        SPANISH => future() || gerund() || acts_now_in_spanish(words),
        _ => false,
    };
    if begins_with_verb(language, words) {
        return true;
    }
    let named = is_announced(language, words)
        || (words.has_at(0, BEGINS << language) || words.has_at(lead(words), BEGINS << language))
            && !is_state(language, words)
        || is_next(words);
    let who = words.places(WHO << language).any(|at| acts_at(language, words, at));
    who || !has(IDLE | PAST) && (named || acts) || named && !words.has(PAST << language)
}

/// Whether an announcement stands there that nobody denies: not "no te voy a ayudar".
fn is_announced(language: u32, words: &Words<'_>) -> bool {
    let denied = |at: usize| language == SPANISH && words.all[at.saturating_sub(2)..at].contains(&"no");
    words.places(ANNOUNCES << language).any(|at| !denied(at))
}

/// "J'interroge les vols de retour", "Reinicio los consumidores", "Voy hacer clic": the first word is the verb.
fn begins_with_verb(language: u32, words: &Words<'_>) -> bool {
    let (first, next) = (words.all[0], words.all.get(1).copied().unwrap_or_default());
    match language {
        FRENCH => {
            let verb = first.strip_prefix("j'").filter(|verb| verb.ends_with('e') && verb.len() > 4);
            verb.is_some_and(|verb| !matches!(verb, "espère" | "adore" | "aime" | "ignore" | "admire" | "hésite"))
                && matches!(next, "le" | "la" | "les" | "l'" | "un" | "une" | "des" | "maintenant" | "d'abord")
        }
        SPANISH => {
            let is_other = |word: &str| {
                let verb = ["entiendo", "lamento", "espero", "recomiendo", "propongo", "sugiero", "prefiero", "tengo"];
                let other = ["cuando", "tanto", "bueno", "siendo", "luego", "listo", "adjunto"];
                verb.contains(&word) || other.contains(&word)
            };
            let acts = first.ends_with('o')
                && first.len() > 4
                && !is_other(first)
                && !first.ends_with("ado")
                && !first.ends_with("ido")
                && matches!(next, "los" | "las" | "el" | "la" | "un" | "una" | "ahora" | "al");
            // "Lo renuevo": the object stands before its verb.
            let on_it = matches!(first, "lo" | "la" | "los" | "las")
                && next.ends_with('o')
                && next.len() > 4
                && !next.ends_with("ado")
                && !next.ends_with("ido")
                && !is_other(next);
            acts || on_it
                || first == "voy" && (next == "con" || ["ar", "er", "ir"].iter().any(|end| next.ends_with(end)))
        }
        _ => false,
    }
}

/// "Cruzo ahora los comentarios."
fn acts_now_in_spanish(words: &Words<'_>) -> bool {
    let is_when = |word: &str| matches!(word, "ahora" | "primero" | "luego" | "después" | "enseguida");
    let acts = |word: &str| {
        (word.len() > 4 || matches!(word, "hago" | "leo"))
            && word.ends_with('o')
            && !["justo", "mismo", "nuevo", "segundo", "tercero", "archivo", "cuando", "momento", "primero"]
                .contains(&word)
    };
    // "Ahora yo hago el gr\u{e1}fico."
    let is_first_person =
        words.all.windows(3).any(|three| is_when(three[0]) && three[1] == "yo" && three[2].ends_with('o'));
    is_first_person
        || words.all.windows(2).any(|pair| is_when(pair[0]) && acts(pair[1]) || acts(pair[0]) && is_when(pair[1]))
}

/// "Ahora la operaci\u{F3}n est\u{E1} vectorizada" says how things are.
fn is_state(language: u32, words: &Words<'_>) -> bool {
    // "Ahora, la tercera, que es la m\u{E1}s larga": a clause about it says nothing.
    let clause = words.all.iter().position(|word| matches!(*word, "que" | "qui"));
    let main = &words.all[..clause.unwrap_or(words.all.len())];
    let has = |wanted: &[&str]| main.iter().any(|word| wanted.contains(word));
    match language {
        GERMAN => {
            let is_so = has(&["ist", "sind", "hat", "haben", "l\u{E4}uft", "laufen"]) && !has(&["lassen"]);
            matches!(words.all[0], "jetzt" | "nun") && is_so
        }
        FRENCH => words.all[0] == "maintenant" && has(&["est", "sont", "a", "ont", "fonctionne", "fonctionnent"]),
        SPANISH => {
            let is_so =
                has(&["est\u{E1}", "est\u{E1}n", "es", "son", "hay", "tiene", "tienen", "queda", "quedan", "usa"]);
            let acts = ["funciona", "funcionan", "aparece", "aparecen", "muestra", "devuelve", "puede", "pueden"];
            words.all[0] == "ahora" && (is_so || has(&acts))
        }
        _ => false,
    }
}

/// "Ahora Fr\u{E1}ncfort, con el mismo procedimiento."
fn names_next(text: &str) -> bool {
    let Some((first, _)) = text.split_once(',') else { return false };
    let stated = |name: &str| {
        !matches!(name, "s\u{ED}" | "bien" | "mismo" | "no" | "que" | "ja" | "also" | "aber" | "oui" | "non")
    };
    matches!(first.split_once(' '), Some(("ahora" | "jetzt" | "nun" | "maintenant", name)) if !name.contains(' ') && stated(name))
}

/// Whether it names what comes next: "Ahora, `production-eu`."
fn is_next(words: &Words<'_>) -> bool {
    const NOW: &[&str] = &["ahora", "jetzt", "nun", "maintenant", "ensuite", "luego", "dann"];
    // "Jetzt Schritt 3: ..."
    const STEPS: &[&str] =
        &["schritt", "phase", "kapitel", "teil", "\u{E9}tape", "chapitre", "partie", "paso", "fase", "parte"];
    match words.all.as_slice() {
        [now, span] => NOW.contains(now) && span.contains(SPAN),
        [now, step, number] => {
            NOW.contains(now) && STEPS.contains(step) && number.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    }
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
    let next = words.all.get(at + 1).copied().unwrap_or_default();
    let denies = match language {
        // "Ich schlage vor": not "ich schlage es nach".
        GERMAN => words.all.contains(&"nichts") || next == "schlage" && words.all.contains(&"vor"),
        // "Je nach Art" is German.
        // "Je commencerais petit" is advice.
        FRENCH => next.starts_with("n'") || next == "nach" || next == "nachdem" || next.ends_with("rais"),
        _ => false,
    };
    let is_idle = denies
        || tagged(at, IDLE)
        || tagged(at + 1, IDLE)
        || before.is_some_and(|before| tagged(before, IDLE) && !(before == 0 && words.all[0] == "attends"));
    // "As\u{ed} que busco" is a clause of its own.
    let is_own =
        before.is_some_and(|before| words.all[before] == "que" && before > 0 && words.all[before - 1] == "as\u{ed}");
    // "As\u{ED} que lo redacto."
    let is_own = is_own
        || at >= 3
            && words.all[at - 3..at - 1] == ["as\u{ED}", "que"]
            && matches!(words.all[at - 1], "lo" | "la" | "los" | "las");
    // "Lo compruebo."
    let is_object = at == 1 && words.all[0] == "lo";
    let is_subordinate = !is_own && !is_object && before.is_some_and(|before| tagged(before, SUBORDINATE));
    !is_idle && !is_subordinate && at + usize::from(language != GERMAN && language != SPANISH) < words.all.len()
}
