//! Agents exchange mail between independent sessions, while tool hosts are killed.

use std::path::Path;

use ailoop_tests::client::ReceivedEvent;
use ailoop_tests::fleet::{self, key};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::{eventually, soon};
use bus::Mailbox;
use contract::mail::MailEntry;
use contract::subject::MailboxKey;
use contract::tool::EffectClass;
use contract::{AgentId, CallId, TenantId};
use serde_json::{Value, json};

const TOOLS: [&str; 3] = ["send_mail", "check_mail", "reply_mail"];

/// The result of the last call, as JSON.
fn result(request: &RecordedRequest) -> Value {
    let last = request.last_results().last().copied().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| json!(last))
}

/// Patricia sends a task to Eamonn; Eamonn reads it and answers; Patricia reads the answer in another session and
/// closes it.
fn play(request: &RecordedRequest, gate: &Gate) -> ScriptedReply {
    let step = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    let first = || result(request)["mails"][0].clone();
    match (request.last_user(), step) {
        ("ask", 0) => {
            let mail = json!({"to": "Eamonn", "subject": "The plan", "text": "Please carry out plans/a.md."});
            ScriptedReply::text("I ask Eamonn. ").and_gate(gate).and_calls(&[("send_mail", mail)])
        }
        ("work" | "read", 0) => ScriptedReply::text("I look. ").and_calls(&[("check_mail", json!({}))]),
        ("work", 1) => {
            let reply = json!({"id": first()["id"], "text": "All three steps are done."});
            ScriptedReply::text("I answer. ").and_calls(&[("reply_mail", reply)])
        }
        ("read", 1) => {
            let reply = json!({"id": first()["id"], "text": ""});
            ScriptedReply::text(&format!("{} says so. ", first()["from"])).and_calls(&[("reply_mail", reply)])
        }
        _ => ScriptedReply::text("The plan is complete. All done."),
    }
}

/// Eamonn and Patricia as they are shipped.
fn agents(models: &[(&str, &str)]) -> anyhow::Result<tempfile::TempDir> {
    let dir = fleet::configuration(models)?;
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/agents.yaml");
    std::fs::copy(shipped, dir.path().join("agents.yaml"))?;
    Ok(dir)
}

fn results<'a>(events: &'a [ReceivedEvent], tool: &str) -> Vec<&'a Value> {
    let of = |event: &&ReceivedEvent| event.topic == "tool_call.result_processed" && event.data["tool"] == tool;
    events.iter().filter(of).map(|event| &event.data).collect()
}

fn content(result: &Value) -> Value {
    assert_eq!(result["outcome"], "ok", "{result}");
    serde_json::from_str(result["content"].as_str().unwrap()).unwrap()
}

async fn entries(process_fleet: &ProcessFleet, agent: &str) -> anyhow::Result<Vec<MailEntry>> {
    let at = MailboxKey { tenant: TenantId::default(), agent: AgentId::new(agent)? };
    match process_fleet.bus.mailbox(&at).await? {
        Mailbox::Entries(entries) => Ok(entries.into_iter().map(|(_, entry)| entry).collect()),
        Mailbox::TooMany => anyhow::bail!("too many"),
    }
}

async fn session(process_fleet: &ProcessFleet, name: &str, agent: &str) -> anyhow::Result<Vec<ReceivedEvent>> {
    let edge = process_fleet.edge().await?;
    let start = json!({"session_id": name, "agent": agent, "prompt": name});
    edge.ws().await?.ok("session.start", &start).await?;
    let events = soon("the session ends", edge.client().await?.watch(name).await?.to_end()).await??;
    judge::seqs(&events)?;
    judge::log(&process_fleet.bus, &key(name)?, 10).await?;
    Ok(events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_exchange_mail_while_tool_hosts_are_killed() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| play(request, &held)).await?;
    let url = model.base_url();
    let config = agents(&[("test", &url)])?;
    let config_dir = config.path().display().to_string();
    std::fs::write(config.path().join("ailoop.yaml"), "tool_host: {mail: {}}")?;
    let environment = [("AILOOP_CONFIG", config_dir.as_str())];
    let mut process_fleet = ProcessFleet::with(&[("test", &url)], &environment).await?;
    let _others = (process_fleet.spawn("orchestrator").await?, process_fleet.spawn("gateway").await?);
    let (mut first, _executor) = (process_fleet.spawn("tool-host").await?, process_fleet.spawn("executor").await?);
    process_fleet.wait_for_tools(&TOOLS).await?;
    let known = process_fleet.bus.tools(&TenantId::default()).await?;
    let effects = known.iter().map(|tool| (tool.name.as_str(), tool.effect)).collect::<Vec<_>>();
    let idempotent = EffectClass::Idempotent;
    assert_eq!(effects, [("check_mail", EffectClass::Pure), ("reply_mail", idempotent), ("send_mail", idempotent)]);

    // The tool host is killed during the call, which waits for a frozen composer.
    let asking = async {
        soon("the model is asked", model.wait_for_requests(1)).await?;
        process_fleet.composer()?.freeze()?;
        gate.open();
        let (session, call) = (key("ask")?, CallId::tool(1, 1, 1));
        eventually("the call runs", async || {
            matches!(process_fleet.bus.call_holder(&session, &call).await, Ok(Some(_)))
        })
        .await?;
        first.kill()?;
        process_fleet.composer()?.thaw()?;
        process_fleet.spawn("tool-host").await
    };
    let (events, second) = tokio::join!(session(&process_fleet, "ask", "patricia"), asking);
    let (events, mut second) = (events?, second?);
    let sent = content(results(&events, "send_mail")[0]);
    assert_eq!(sent["to"], "e");
    assert_eq!(entries(&process_fleet, "e").await?.len(), 1, "sent once");

    // All other processes are replaced between the sessions.
    second.kill()?;
    process_fleet.nats.restart().await?;
    let _third = process_fleet.spawn("tool-host").await?;
    let events = session(&process_fleet, "work", "e").await?;
    let mails = content(results(&events, "check_mail")[0]);
    assert_eq!((&mails["more"], &mails["mails"][0]["id"]), (&json!(0), &sent["sent"]));
    assert_eq!(mails["mails"][0]["text"], "Please carry out plans/a.md.");
    assert_eq!(content(results(&events, "reply_mail")[0]), json!({"closed": sent["sent"], "answered": true}));

    let events = session(&process_fleet, "read", "p").await?;
    let answer = content(results(&events, "check_mail")[0])["mails"][0].clone();
    assert_eq!((&answer["from"], &answer["text"]), (&json!("e"), &json!("All three steps are done.")));
    assert_eq!(answer["answers"]["id"], sent["sent"]);
    assert_eq!(answer["answers"]["excerpt"], "Please carry out plans/a.md.");
    assert_eq!(content(results(&events, "reply_mail")[0]), json!({"closed": answer["id"], "answered": false}));
    for agent in ["e", "p"] {
        let all = entries(&process_fleet, agent).await?;
        assert!(matches!(all.as_slice(), [MailEntry::Closed(_)]), "{agent}: {all:?}");
    }
    judge::requests(&model.requests())?;
    Ok(())
}
