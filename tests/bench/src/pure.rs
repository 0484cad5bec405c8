//! The pure core by itself, without a server: `core.*`. Times are of one call, over many.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, ensure};
use bytes::Bytes;
use contract::command::Features;
use contract::compose::{ComposeReply, ComposeRequest};
use contract::event::StopReason;
use contract::model::{FinishReason, SignalForm};
use contract::{AgentId, TenantId};
use prompt_composer::Catalog;
use reply::Patterns;
use session::continuation::{Facts, decide};

use crate::figure::Timed;
use crate::load::percentile;
use crate::memory;
use crate::pure_session::{NOW, PureSession, spec};

/// Calls of each kind that are timed.
const ROUNDS: usize = 5_000;
/// Messages of the transcript that is decided about.
const MESSAGES: usize = 200;
/// Bytes of the reply that is read.
const REPLY_BYTES: usize = 4 << 10;
/// Tools of the prompt that is composed.
const TOOLS: usize = 40;

/// Measures everything: what takes time, and what takes memory, each as a multiple.
pub(crate) fn measure() -> anyhow::Result<(Vec<Timed>, Vec<Timed>)> {
    let mut figures = deciding()?;
    figures.extend(reading()?);
    figures.extend(composing()?);
    Ok((figures, memory::measure()?))
}

/// Median and 99th percentile of one call, in microseconds.
fn time(mut call: impl FnMut()) -> (f64, f64) {
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            call();
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_by(f64::total_cmp);
    (percentile(&took, 50), percentile(&took, 99))
}

/// One decision about a reply with a tool call, after a long conversation.
fn deciding() -> anyhow::Result<Vec<Timed>> {
    let (mut pure_session, _) = PureSession::begin()?;
    while pure_session.session.messages().len() < MESSAGES {
        pure_session.fold(&pure_session.reply("I look further, since the last result did not tell.", true)?);
        pure_session.fold(&pure_session.result(&"a line of what was found\n".repeat(20))?);
    }
    let input = pure_session.reply("I look once more.", true)?;
    let inputs = std::slice::from_ref(&input);
    let (p50, p99) = time(|| {
        black_box(pure_session.session.decide(NOW, black_box(inputs)));
    });
    Ok(vec![("core.decide_us_p50", p50), ("core.decide_us_p99", p99)])
}

/// Reading a reply of 4 KiB and hearing its patterns: prose alone, prose in which every line nearly says what patterns
/// look for, and prose with an envelope at its end.
fn reading() -> anyhow::Result<Vec<Timed>> {
    let settings = reply::template("plain_words").context("no template")?;
    let patterns = Patterns::compile(&settings)?;
    let prose =
        "The parser accepts trailing commas in arrays, but not in objects; the tests say so. ".repeat(REPLY_BYTES / 84);
    let announced = |prose: &str| format!("{prose}\n\nNext, I'll write the fix.");
    let line = "- Read the caf\u{e9} module \u{2014} it\u{2019}s not done until every test is green; what\u{2019}s next is yours\u{2026}\n";
    let (plain, phrases) = (announced(&prose), announced(&line.repeat(REPLY_BYTES / line.len())));
    let signalled =
        format!("{prose}\n```json\n{{\"continuation\":{{\"status\":\"CONTINUE\",\"reason\":\"more\"}}}}\n```");
    let mut figures = Vec::new();
    for (name, name99, text) in [
        ("core.read_pattern_us_p50", "core.read_pattern_us_p99", &plain),
        ("core.read_phrases_us_p50", "core.read_phrases_us_p99", &phrases),
        ("core.read_signal_us_p50", "core.read_signal_us_p99", &signalled),
    ] {
        let mut continues = true;
        let (p50, p99) = time(|| {
            let reading = reply::read(black_box(text), &[], SignalForm::Text);
            let facts = Facts {
                text: &reading.visible,
                signal: reading.signal.as_ref(),
                has_calls: false,
                finish: FinishReason::Stop,
                unseen: false,
                doubted: false,
                limit: None::<StopReason>,
            };
            continues &= decide(&settings, &patterns, facts).continues;
        });
        ensure!(continues, "{name}: the reply is not understood");
        figures.extend([(name, p50), (name99, p99)]);
    }
    Ok(figures)
}

/// An agent that may use every tool, so that all of them are described.
const AGENTS: &str = "agents: {e: {name: Eamonn, prompt_file: eamonn_executioner.md, tools: {allow: ['*']}}}";

/// Composing a prompt of eight parts, forty tools among them.
fn composing() -> anyhow::Result<Vec<Timed>> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("agents.yaml"), AGENTS)?;
    std::fs::create_dir_all(dir.path().join("prompts/shared"))?;
    std::fs::write(dir.path().join("prompts/shared/house_rules.md"), "Be kind to {{{agent_name}}}.\n".repeat(20))?;
    let config = prompt_composer::ComposerConfig {
        default_model: Some("rehearsal".to_owned()),
        config_dir: Some(dir.path().to_owned()),
        ..Default::default()
    };
    let catalog = Catalog::read(&config)?;
    let request = ComposeRequest {
        agent: Some(AgentId::new("e")?),
        features: Features { enable: vec!["mailbox".to_owned(), "house_rules".to_owned()], disable: Vec::new() },
        tools: (0..TOOLS).map(|n| spec(&format!("look_{n}"))).collect::<Result<_, _>>()?,
        ..ComposeRequest::new(TenantId::default())
    };
    let whole = |reply: &ComposeReply| matches!(reply, ComposeReply::Composed(of) if of.components.len() == 8);
    ensure!(whole(&catalog.compose(&request)), "the prompt has not its eight parts");
    let (p50, p99) = time(|| {
        black_box(catalog.compose(black_box(&request)));
    });
    // As the service does it: from the bytes of a request to those of its answer, without the bus.
    let body = Bytes::from(serde_json::to_vec(&request)?);
    let first = catalog.compose_bytes(&body, None).context("no answer")?;
    ensure!(first == serde_json::to_vec(&catalog.compose(&request))?, "`compose_bytes` and `compose` differ");
    let (wire50, wire99) = time(|| {
        black_box(catalog.compose_bytes(black_box(&body), None));
    });
    Ok(vec![
        ("core.compose_us_p50", p50),
        ("core.compose_us_p99", p99),
        ("core.compose_wire_us_p50", wire50),
        ("core.compose_wire_us_p99", wire99),
    ])
}
