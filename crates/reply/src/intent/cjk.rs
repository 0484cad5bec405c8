//! Stance of a Japanese or Chinese sentence about another step. The words are in `words/ja.txt` and `words/zh.txt`.

use std::sync::LazyLock;

use super::lexicon;
use super::sentence::{End, LineKind, Sentence};
use super::stance::Stance;

/// The sections of `words/ja.txt`.
struct Japanese {
    asks: Vec<&'static str>,
    next: Vec<&'static str>,
    acts: Vec<&'static str>,
    tries: Vec<&'static str>,
    stays: Vec<&'static str>,
    runs: Vec<&'static str>,
    tells: Vec<&'static str>,
    done: Vec<&'static str>,
}

static JAPANESE: LazyLock<Japanese> = LazyLock::new(|| {
    let section = |name| lexicon::section(include_str!("words/ja.txt"), name);
    Japanese {
        asks: section("asks"),
        next: section("next"),
        acts: section("acts"),
        tries: section("tries"),
        stays: section("stays"),
        runs: section("runs"),
        tells: section("tells"),
        done: section("done"),
    }
});

/// The sections of `words/zh.txt`.
struct Chinese {
    asks: Vec<&'static str>,
    begins: Vec<&'static str>,
    idle: Vec<&'static str>,
    not: Vec<&'static str>,
    states: Vec<&'static str>,
    done: Vec<&'static str>,
}

static CHINESE: LazyLock<Chinese> = LazyLock::new(|| {
    let section = |name| lexicon::section(include_str!("words/zh.txt"), name);
    Chinese {
        asks: section("asks"),
        begins: section("begins"),
        idle: section("idle"),
        not: section("not"),
        states: section("states"),
        done: section("done"),
    }
});

/// Returns the stance of the sentence; none if it is in another script.
pub(super) fn stance(sentence: &Sentence, text: &str) -> Option<Stance> {
    let kana = text.chars().any(|c| matches!(c, '\u{3040}'..='\u{30FF}'));
    let han = text.chars().any(|c| matches!(c, '\u{4E00}'..='\u{9FFF}'));
    match (kana, han) {
        (true, _) => Some(japanese(sentence, text)),
        (false, true) => Some(chinese(sentence, text)),
        (false, false) => None,
    }
}

/// Whether a sentence goes on with what comes after something else.
pub(super) fn is_afterwards(text: &str) -> bool {
    ["それに合わせ", "それをもと", "それに基づ", "それから", "その後", "そして", "そのあと", "然后", "之后", "随后"]
        .iter()
        .any(|word| text.starts_with(word))
        // "Once it is confirmed, I begin."
        || ["确认后", "同意后", "批准后", "回复后", "答复后", "選択後", "確認後", "承認後"].iter().any(|word| text.contains(word))
}

fn japanese(sentence: &Sentence, text: &str) -> Stance {
    let ja = &*JAPANESE;
    // A remark, such as "By the way, there were no duplicates".
    if text.starts_with("なお、") || text.starts_with("ちなみに") || text.ends_with("よね") || text.ends_with("ですね")
    {
        return Stance::Neutral;
    }
    // A step of a recipe or of a plan. What is left alone, the water boils.
    if sentence.kind == LineKind::Item && !text.contains("これから") || is_general_rule(text) {
        return Stance::Neutral;
    }
    let text = text.trim_end_matches(['ね', 'よ']);
    let has = |list: &[&str]| list.iter().any(|word| text.contains(word));
    let ends = |list: &[&str]| list.iter().any(|word| text.ends_with(word));
    if ends(&ja.tells) {
        return Stance::Reports;
    }
    if sentence.end == End::Colon && text.starts_with("次") {
        return Stance::Announces;
    }
    if text.contains("お待ちください") {
        return Stance::Announces;
    }
    // A condition: "if you send it".
    let depends = has(&["ければ", "たら", "であれば", "次第", "際は", "場合は", "なら"])
        && has(&["ご", "お", "いただ", "くだ", "必要", "よければ", "よろし"]);
    if sentence.end == End::Question || depends || has(&ja.asks) {
        return Stance::Asks;
    }
    if text.contains("残って") && ends(&["ます", "いる"]) {
        return Stance::Unfinished;
    }
    if text.contains("先に") && text.ends_with("ておきます") && !text.contains("ください") {
        return Stance::Announces;
    }
    // "Do that, and it is solved."
    if is_result(text) {
        return Stance::Neutral;
    }
    let last = text.rsplit('\u{3001}').next().unwrap_or(text);
    // "The server checks" is about the server; "first, I" is about the model.
    let others = |clause: &str| {
        clause.match_indices('は').any(|(at, _)| {
            !["私", "で", "次", "ここ", "まず", "今回", "今", "今度", "に", "を", "と", "から"]
                .iter()
                .any(|own| clause[..at].ends_with(own))
        })
    };
    let names =
        ["次は", "次、", "続いて", "では", "それでは", "次に", "あとは"].iter().any(|word| text.starts_with(word))
            && (!ends(&["ます", "です", "ません", "い"]) || ends(&["予定です"]));
    let works = ends(&ja.acts) && (!ends(&ja.stays) || ends(&ja.runs));
    let acts = last.replace("ちがう", "").contains('が')
        && !["ところ", "ないか", "あるか", "のか", "かを", "かどうか"].iter().any(|own| last.contains(own));
    let alone = !acts && !others(text);
    let follows =
        last.len() < text.len() && text[..text.len() - last.len()].trim_end_matches('\u{3001}').ends_with("ので");
    let is_own = alone
        || !others(last) && follows
        || !others(last) && (ends(&ja.tries) || ja.next.iter().any(|word| last.contains(word)));
    let goes = has(&ja.next) || ends(&["ます", "ましょう", "みる", "みよう", "中です", "中", "しよう", "ところです"]);
    if works && is_own && goes || names && !ends(&ja.done) {
        return Stance::Announces;
    }
    if has(&ja.done) { Stance::Done } else { Stance::Neutral }
}

/// Whether a sentence says what happens whenever something else does: a verb before its particle.
fn is_general_rule(text: &str) -> bool {
    text.match_indices('と').any(|(at, particle)| {
        let (before, behind) = (&text[..at], &text[at + particle.len()..]);
        before.ends_with(['く', 'る', 'す', 'む', 'ぶ', 'つ', 'ぐ'])
            && !behind.starts_with(['い', '思', '言', '考', 'こ', 'し', 'の', 'き', 'も', 'は', '、'])
    })
}

/// Whether a sentence says what becomes of a thing once something is done to it.
fn is_result(text: &str) -> bool {
    let given = text
        .match_indices('ば')
        .any(|(at, _)| text[..at].ends_with(['け', 'せ', 'て', 'ね', 'べ', 'め', 'れ', 'え', 'げ']));
    given
        && ["解消します", "解決します", "動作します", "動きます", "直ります", "改善します", "完了します"]
            .iter()
            .any(|word| text.ends_with(word))
}

fn chinese(sentence: &Sentence, text: &str) -> Stance {
    let zh = &*CHINESE;
    let requests = text
        .match_indices('请')
        .any(|(at, _)| !text[at..].starts_with("请求") && !text[..at].ends_with(['申', '邀', '敬']));
    // "A moment, please: I look it up."
    let waits_a_moment = ["请稍等", "请稍候", "稍等"].iter().any(|word| text.contains(word)) && text.contains('我');
    if waits_a_moment && sentence.end != End::Question {
        return Stance::Announces;
    }
    if sentence.end == End::Question
        || requests
        || zh.asks.iter().any(|word| text.contains(word)) && !text.contains("我现在")
    {
        return Stance::Asks;
    }
    // "If another floor is needed later, first\u{2026}" tells the reader what to do.
    if ["以后", "今后", "下次", "如果", "若", "要是", "万一"].iter().any(|word| text.starts_with(word))
        || text.contains("的话") && !text.contains('我')
    {
        return Stance::Neutral;
    }
    // "You first open the terminal."
    if text.starts_with(['你', '您']) && !text.contains('我') {
        return Stance::Neutral;
    }
    for clause in text.rsplit(['，', ',', '、']).map(str::trim) {
        let has = |list: &[&str]| list.iter().any(|word| clause.contains(word));
        let led = ["所以", "那么", "因此", "于是", "不过", "既然", "好的", "好", "嗯", "那"];
        let clause = led.iter().find_map(|lead| clause.strip_prefix(lead)).unwrap_or(clause);
        // "I have changed it": the particle tells that it is over.
        let is_past = (clause.starts_with('我') || clause.starts_with("最后") || clause.starts_with("随后"))
            && clause.contains('了')
            && !clause.contains(['再', '要']);
        let begins = zh.begins.iter().any(|word| clause.starts_with(word))
            && !zh.not.iter().any(|word| clause.starts_with(word));
        // "I add a check": the model acts now, unless it has, knows or thinks something.
        let acts =
            clause.starts_with('我') && !zh.states.iter().any(|word| clause['我'.len_utf8()..].starts_with(word));
        // "The beginning, I rewrite it a bit."
        let a_bit = clause.contains("一下")
            && !clause.contains(['你', '您', '了'])
            && (clause.contains('我') || clause == text);
        let inner = ["我去", "我来", "我再", "我就", "我继续", "我接着"].iter().any(|word| clause.contains(word))
            && !clause.contains('了');
        // "I add checks, then a test."
        let then = ["然后", "再", "接着"].iter().any(|word| clause.starts_with(word))
            && text.split(['，', ',']).any(|other| other.trim().starts_with('我') && !other.contains('了'));
        let begins = begins || acts || a_bit || then || inner;
        let is_item = sentence.kind == LineKind::Item && !clause.contains('我') && !clause.starts_with("正在");
        // "Study in peace for now" is said to the reader.
        let is_advice = clause.ends_with('吧') && !clause.contains('我');
        if begins && !is_item && !is_past && !is_advice && !has(&zh.idle) {
            return Stance::Announces;
        }
        let is_over = |word: &&'static str| {
            let mut places = clause.match_indices(word);
            places.any(|(at, word)| {
                !["后", "之后", "以后"].iter().any(|after| clause[at + word.len()..].starts_with(after))
            })
        };
        if zh.done.iter().any(is_over) {
            return Stance::Done;
        }
    }
    Stance::Neutral
}
