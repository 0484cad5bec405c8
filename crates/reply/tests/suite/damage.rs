//! Signals that are damaged as small models damage them: what a person can read is read, and nobody sees a byte of it.

use contract::model::SignalForm;
use reply::{Status, read};

/// Cases that are made; each is another text.
const CASES: u64 = 100_000;

/// Numbers from a seed, always the same ones.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).unwrap_or(0) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn is_one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

struct Case {
    reply: String,
    shown: String,
    status: Status,
}

/// A signal, damaged in some ways, among text.
fn case(seed: u64) -> Case {
    let mut n = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let status = n.of(&[Status::Continue, Status::Terminate]);
    let word = match status {
        Status::Continue => n.of(&["CONTINUE", "continue", "Continue"]),
        Status::Terminate => n.of(&["TERMINATE", "terminate"]),
    };
    let before = n.of(&[
        "",
        "I read the file.",
        "The tests pass.\n\n- one\n- two",
        "Use `a {b}` here.",
        "```rust\nfn main() {}\n```",
        "Gr\u{fc}\u{df}e \u{1f680}!",
    ]);
    let after = if n.is_one_in(4) { n.of(&["Tell me if you mind.", "That is all for now."]) } else { "" };
    let quote = n.of(&["\"", "\"", "\"", "'", "\u{201C}"]);
    let close = if quote == "\u{201C}" { "\u{201D}" } else { quote };
    let bare_keys = n.is_one_in(6);
    let key = |name: &str| if bare_keys { name.to_owned() } else { format!("{quote}{name}{close}") };
    let text = |text: &str| format!("{quote}{text}{close}");
    let reason = n.of(&["more to do", "the file is missing", "step 2 of 3, then done", "caf\u{e9}"]);
    let reason = if n.is_one_in(5) && quote == "\"" { "the \"big\" file" } else { reason };
    let reason = if n.is_one_in(6) && quote == "'" { "it's not done" } else { reason };
    let null = n.of(&["null", "None", "undefined"]);
    let truth = n.of(&["true", "True"]);
    let mut fields = vec![format!("{}: {}", key("status"), text(word)), format!("{}: {}", key("reason"), text(reason))];
    if n.is_one_in(2) {
        fields.push(format!("{}: 0.{}", key("confidence"), n.below(10)));
    }
    if n.is_one_in(3) {
        fields.push(format!("{}: {null}", key("next_action")));
    }
    if n.is_one_in(3) {
        let comma = if n.is_one_in(2) { "," } else { "" };
        fields.push(format!(
            "{}: {{{}: 2, {}: 3, {}: [{}{comma}], {}: {truth}}}",
            key("progress"),
            key("current_step"),
            key("total_steps"),
            key("steps_completed"),
            text("a"),
            key("known"),
        ));
    }
    let line = n.of(&["", " ", "\n  "]);
    let mut inner = fields.join(&format!(",{line}"));
    if n.is_one_in(4) {
        inner.push(',');
    }
    if n.is_one_in(6) {
        inner.push_str(" // as asked\n");
    }
    let object = match n.below(5) {
        0 => format!("{{{inner}}}"),
        1 => format!("{}: {{{inner}}}", key("continuation")),
        _ => format!("{{{}: {{{line}{inner}}}{line}}}", key("continuation")),
    };
    // Cut only where its status is whole, and as a limit on output cuts: nothing follows.
    let is_cut = after.is_empty() && n.is_one_in(5);
    let object = if is_cut {
        let whole = object.find(reason).unwrap_or(object.len());
        let cut = whole + n.below(object.len() - whole + 1);
        object[..object.floor_char_boundary(cut)].to_owned()
    } else {
        object
    };
    let (open, end) =
        n.of(&[("", ""), ("```json\n", "\n```"), ("```jsonc\n", "\n```"), ("```\n", "\n```"), ("```json\n", "")]);
    let end = match (is_cut, after.is_empty() || open.is_empty()) {
        (true, _) => "",
        (false, true) => end,
        (false, false) => "\n```",
    };
    let label = if n.is_one_in(6) { n.of(&["Continuation signal:\n", "**Signal:** ", "Status: "]) } else { "" };
    let between = if before.is_empty() { "" } else { "\n\n" };
    let behind = if after.is_empty() { "" } else { "\n\n" };
    let reply = format!("{before}{between}{label}{open}{object}{end}{behind}{after}");
    let between = if before.is_empty() || after.is_empty() { "" } else { "\n\n" };
    Case { reply, shown: format!("{before}{between}{after}"), status }
}

#[test]
fn damaged_signals_are_read_and_never_shown() {
    let (mut unread, mut wrong) = (0_u64, Vec::new());
    for seed in 0..CASES {
        let Case { reply, shown, status } = case(seed);
        let reading = read(&reply, &[], SignalForm::Text);
        let is_shown = reading.visible == shown;
        let is_read = reading.signal.as_ref().is_some_and(|signal| signal.status == status);
        unread += u64::from(!is_read);
        if (!is_shown || reading.signal.as_ref().is_some_and(|signal| signal.status != status)) && wrong.len() < 5 {
            wrong.push((reply, reading.visible));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unread * 100 <= CASES, "{unread} of {CASES} signals were not read");
}
