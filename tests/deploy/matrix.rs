//! Every user against every kind of subject, as the server decides. The matrix is written by hand, independently of the
//! source of the permissions, so that a mistake there is found.

use ailoop_tests::nats::NatsServer;
use nats_permissions::users;

use crate::deploy::probe::Probe;

/// A subject, and who may publish to it.
const PUBLISH: &[(&str, &[&str])] = &[
    // The loop starts, pauses, resumes and stops children, and gives their parents the result.
    ("ai_loop.control.start.default.s.c", &["orchestrator", "edge"]),
    ("ai_loop.control.pause.default.s.c", &["orchestrator", "edge"]),
    ("ai_loop.control.configure.default.s.c", &["edge"]),
    ("ai_loop.control.send_user_message.default.s.c", &["edge"]),
    ("ai_loop.control.stop.default.s.c", &["orchestrator", "edge"]),
    ("ai_loop.control.answer.default.s.c", &["edge"]),
    ("ai_loop.control.provide_tool_result.default.s.c", &["orchestrator", "executor"]),
    ("ai_loop.control.extend_tool_call.default.s.c", &["executor"]),
    ("ai_loop.control.model_finished.default.s.c", &["gateway"]),
    ("ai_loop.control.model_failed.default.s.c", &["gateway"]),
    ("ai_loop.log.default.s.0.0", &["orchestrator", "archivist"]),
    ("ai_archive.default.s.0", &["orchestrator", "archivist"]),
    ("ai_loop.model.call.default.s.m1-1.1", &["orchestrator", "gateway"]),
    ("ai_loop.tool.call.default.word_count.s.t1-1-1.1", &["orchestrator", "executor"]),
    ("ai_timer.set.default.s.wake", &["orchestrator", "archivist"]),
    ("ai_timer.due.default.s.wake", &[]),
    ("ai_dead.default.s.control.c", &["orchestrator", "gateway", "executor"]),
    ("ai_mail.default.e.m", &["mail"]),
    ("ai_mail.other.e.m", &[]),
    ("ai_loop.session_started.default.s", &["orchestrator"]),
    ("ai_loop.message.ai_full_received.default.s", &["orchestrator"]),
    ("ai_loop.message.ai_chunk_received.default.s", &["gateway"]),
    ("ai_loop.tool_call.partial.default.s", &["gateway"]),
    ("ai_loop.tool_call.progress.default.s", &["executor"]),
    ("ai_loop.tool_call.result_processed.default.s", &["orchestrator"]),
    ("ai_loop.made_up.default.s", &[]),
    ("ai_rpc.done.e.c", &["orchestrator"]),
    ("ai_rpc.cancel.default.s", &["orchestrator"]),
    ("ai_rpc.call.default.s.c", &["gateway", "executor"]),
    ("ai_rpc.view.default.s", &["edge"]),
    ("ai_rpc.prompt.compose", &["orchestrator", "edge"]),
    ("ai_rpc.prompt.agents", &["edge", "mail"]),
    ("ai_rpc.mail.default", &["edge"]),
    ("ai_rpc.tool.announce", &[]),
    // The toolsmith calls tools without the loop, and does nothing else.
    ("ai_tool.default.word_count", &["executor", "toolsmith"]),
    ("ai_tool.other.word_count", &["executor", "toolsmith"]),
    ("ai_tool.default.send_mail", &["executor", "toolsmith"]),
    ("ai_tool_cancel.default.word_count", &["executor", "toolsmith"]),
    ("ai_tool_probe.default.word_count", &["executor", "toolsmith"]),
    ("$SRV.INFO", &["executor", "toolsmith"]),
    ("$SRV.PING", &["toolsmith"]),
    ("$SRV.STATS", &["toolsmith"]),
    ("$SRV.INFO.word_count", &["executor", "toolsmith"]),
    ("$SRV.INFO.word_count.x", &[]),
    ("$JS.API.DIRECT.GET.KV_ai_loop_tools", &["orchestrator", "executor", "edge", "toolsmith"]),
    ("$JS.API.STREAM.MSG.GET.KV_ai_loop_tools", &[]),
    ("ai_tool.default.http_fetch", &["executor", "toolsmith"]),
    ("ai_tool.default.run_command", &["executor", "toolsmith"]),
    ("ai_tool_cancel.default.run_command", &["executor", "toolsmith"]),
    ("$KV.ai_loop_tools.default.t", &["executor"]),
    ("$KV.ai_loop_claims.default.s.c", &["executor"]),
    ("$KV.ai_loop_sessions.default.s", &["orchestrator", "archivist"]),
    ("$O.ai_loop_work.C.x", &["orchestrator", "gateway", "executor", "edge"]),
    ("$O.ai_loop_blobs.C.x", &["orchestrator", "archivist"]),
    ("$O.ai_loop_results.C.x", &["executor"]),
    ("$JS.API.DIRECT.GET.OBJ_ai_loop_results.$O.ai_loop_results.M.x", &["executor", "edge", "results"]),
    ("$JS.API.CONSUMER.CREATE.OBJ_ai_loop_results", &["edge", "results"]),
    ("$JS.API.CONSUMER.CREATE.OBJ_ai_loop_work", &["orchestrator", "gateway", "executor", "edge"]),
    ("$O.ai_loop_archive.C.x", &["orchestrator", "archivist"]),
    ("$JS.API.STREAM.CREATE.AI_LOOP_LOG", &["bootstrap"]),
    ("$JS.API.STREAM.CREATE.ANOTHER", &[]),
    ("$JS.API.STREAM.DELETE.AI_LOOP_LOG", &[]),
    ("$JS.API.STREAM.PURGE.AI_LOOP_LOG", &[]),
    ("$JS.API.STREAM.PURGE.AI_LOOP_CONTROL", &[]),
    ("$JS.API.STREAM.MSG.DELETE.AI_LOOP_LOG", &["orchestrator"]),
    ("$JS.API.STREAM.MSG.GET.AI_LOOP_LOG", &["orchestrator", "gateway", "executor", "edge", "sessions", "archivist"]),
    ("$JS.API.DIRECT.GET.AI_LOOP_LOG", &["orchestrator", "gateway", "executor", "edge", "sessions", "archivist"]),
    ("$JS.API.STREAM.MSG.GET.AI_LOOP_ARCHIVE", &["orchestrator", "edge", "sessions", "archivist"]),
    ("$JS.API.DIRECT.GET.AI_LOOP_ARCHIVE", &["orchestrator", "edge", "sessions", "archivist"]),
    ("$JS.API.DIRECT.GET.KV_ai_loop_sessions", &["orchestrator", "edge", "sessions"]),
    ("$JS.API.STREAM.MSG.DELETE.AI_LOOP_ARCHIVE", &[]),
    ("$JS.API.STREAM.PURGE.AI_LOOP_ARCHIVE", &[]),
    ("$JS.API.DIRECT.GET.AI_LOOP_TOOL", &[]),
    ("$JS.API.STREAM.MSG.GET.AI_LOOP_MAIL", &["mail"]),
    ("$JS.API.DIRECT.GET.AI_LOOP_MAIL", &["mail"]),
    ("$JS.API.DIRECT.GET.AI_LOOP_MAIL.ai_mail.default.e.m", &[]),
    ("$JS.API.STREAM.PURGE.AI_LOOP_MAIL", &[]),
    ("$JS.API.STREAM.MSG.DELETE.AI_LOOP_MAIL", &[]),
    ("$JS.API.CONSUMER.CREATE.AI_LOOP_MAIL", &[]),
    ("$JS.API.CONSUMER.CREATE.AI_LOOP_LOG", &[]),
    ("$JS.API.CONSUMER.DURABLE.CREATE.AI_LOOP_TOOL.tool", &["bootstrap"]),
    ("$JS.API.CONSUMER.DURABLE.CREATE.AI_LOOP_TOOL.other", &[]),
    ("$JS.API.CONSUMER.DELETE.AI_LOOP_TOOL.tool", &[]),
    ("$JS.API.CONSUMER.MSG.NEXT.AI_LOOP_CONTROL.drive", &["orchestrator"]),
    ("$JS.API.CONSUMER.MSG.NEXT.AI_LOOP_TIMER.due", &["orchestrator"]),
    ("$JS.API.CONSUMER.MSG.NEXT.AI_LOOP_MODEL.model", &["gateway"]),
    ("$JS.API.CONSUMER.MSG.NEXT.AI_LOOP_TOOL.tool", &["executor"]),
    ("$JS.ACK.AI_LOOP_TOOL.tool.1.1.1.1.0", &["executor"]),
    ("_INBOX_executor.x.y", &["executor"]),
    ("_INBOX_files.x.y", &[]),
    ("_INBOX_mail.x.y", &["mail"]),
    ("$SRV.PING.word_count.x", &["executor"]),
    ("_INBOX_command.x.y", &[]),
];

/// A subject or filter, and who may subscribe to it.
const SUBSCRIBE: &[(&str, &[&str])] = &[
    (">", &[]),
    ("ai_loop.>", &[]),
    ("ai_loop.*.default.s", &["edge"]),
    ("ai_loop.*.*.default.s", &["edge"]),
    ("ai_loop.tool_call.identified.default.*", &["edge", "viewer", "toolsmith"]),
    ("ai_loop.tool_call.*.default.*", &["edge", "toolsmith"]),
    ("ai_loop.tool_call.identified.other.*", &["edge", "toolsmith"]),
    ("ai_loop.message.ai_full_received.default.*", &["edge", "viewer"]),
    ("ai_loop.session_started.default.s", &["edge", "viewer"]),
    ("ai_loop.session_started.other.s", &["edge"]),
    ("ai_loop.session_started.*.*", &["edge"]),
    ("ai_loop.*.other.s", &["edge"]),
    ("ai_loop.*.*.other.*", &["edge"]),
    ("ai_loop.*.*.s", &["edge"]),
    ("ai_loop.control.>", &[]),
    ("ai_loop.control.*.default.s.*", &[]),
    ("ai_loop.log.default.s.0.0", &[]),
    // The server permits `>` where it compares it with a `*`, so a wide filter receives more than it names. No user
    // outside of the fleet may have one.
    ("ai_loop.*.default.>", &["edge"]),
    ("ai_loop.log.default.>", &["edge"]),
    ("ai_loop.model.call.>", &["edge"]),
    ("ai_loop.tool.call.>", &["edge"]),
    ("ai_timer.>", &[]),
    ("ai_dead.>", &[]),
    ("ai_mail.>", &[]),
    ("ai_mail.default.e.*", &[]),
    ("ai_mail.default.e.m", &[]),
    ("ai_rpc.>", &[]),
    ("ai_rpc.done.e.*", &["edge"]),
    ("ai_rpc.cancel.*.*", &["gateway", "executor"]),
    ("ai_rpc.call.default.s.c", &["gateway", "executor"]),
    ("ai_rpc.view.default.s", &["gateway"]),
    ("ai_rpc.tool.announce", &["executor"]),
    ("ai_rpc.prompt.compose composers", &["composer"]),
    ("ai_rpc.prompt.compose", &[]),
    ("ai_rpc.prompt.agents composers", &["composer"]),
    ("ai_rpc.prompt.agents", &[]),
    ("ai_rpc.mail.default mail", &["mail"]),
    ("ai_rpc.mail.other mail", &[]),
    ("ai_rpc.mail.default another", &[]),
    ("ai_rpc.mail.default", &[]),
    ("ai_tool.>", &[]),
    ("ai_tool.default.word_count tools", &["word_count", "bridge"]),
    ("ai_tool.default.word_count", &[]),
    ("ai_tool.default.word_count another", &[]),
    ("ai_tool.other.word_count tools", &["bridge"]),
    ("ai_tool.default.mcp__time__convert_time tools", &["bridge"]),
    ("ai_tool.default.mcp__time__convert_time", &[]),
    ("ai_tool.default.mcp__time__convert_time another", &[]),
    ("ai_tool.default.read_file tools", &["files", "bridge"]),
    ("ai_tool.default.read_file", &[]),
    ("ai_tool.default.mark_step_done tools", &["plans", "bridge"]),
    ("ai_tool.default.mark_step_done", &[]),
    ("ai_tool.default.send_mail tools", &["mail", "bridge"]),
    ("ai_tool.default.reply_mail", &[]),
    ("ai_tool.default.read_result tools", &["results", "bridge"]),
    ("ai_tool.default.read_result", &[]),
    ("ai_tool.default.read_session tools", &["sessions", "bridge"]),
    ("ai_tool.default.read_session", &[]),
    ("ai_tool.other.check_mail tools", &["bridge"]),
    ("ai_tool.default.http_fetch tools", &["fetch", "bridge"]),
    ("ai_tool.default.http_fetch", &[]),
    ("ai_tool.other.http_fetch tools", &["bridge"]),
    ("ai_tool.default.run_command tools", &["command", "bridge"]),
    ("ai_tool.default.run_command", &[]),
    ("ai_tool.other.run_command tools", &["bridge"]),
    ("ai_tool_cancel.default.word_count", &["word_count", "bridge"]),
    ("ai_tool_cancel.default.http_fetch", &["fetch", "bridge"]),
    ("ai_tool_cancel.default.run_command", &["command", "bridge"]),
    ("ai_tool_cancel.other.mcp__time__convert_time", &["bridge"]),
    ("ai_tool_cancel.>", &[]),
    // Tools of the bridge (MCP servers, webhooks) have no probe, so it may not subscribe to any.
    ("ai_tool_probe.default.word_count tools", &["word_count"]),
    ("ai_tool_probe.default.word_count another", &[]),
    ("ai_tool_probe.default.word_count", &[]),
    ("ai_tool_probe.other.word_count tools", &[]),
    ("ai_tool_probe.>", &[]),
    ("$SRV.INFO", &["files", "plans", "mail", "results", "sessions", "fetch", "command", "word_count", "bridge"]),
    ("$SRV.INFO.word_count", &["word_count", "bridge"]),
    ("$SRV.INFO.mcp__time__convert_time.id", &["bridge"]),
    ("$SRV.>", &[]),
    ("$KV.>", &[]),
    ("$O.>", &[]),
    ("$JS.>", &[]),
    ("_INBOX.>", &[]),
    ("_INBOX_executor.>", &["executor"]),
    ("_INBOX_edge.x", &["edge"]),
    ("_INBOX_toolsmith.>", &["toolsmith"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_user_has_exactly_the_permissions_of_the_matrix() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    for user in users() {
        let mut probe = Probe::of(&server, user.name).await?;
        for (subject, allowed) in PUBLISH {
            let may = probe.may_publish(subject).await?;
            assert_eq!(may, allowed.contains(&user.name), "{} publishes {subject}", user.name);
        }
        for (subject, allowed) in SUBSCRIBE {
            let may = probe.may_subscribe(subject).await?;
            assert_eq!(may, allowed.contains(&user.name), "{} subscribes {subject}", user.name);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_without_a_user_is_refused() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    assert!(bus::Bus::connect(&server.config()).await.is_err());
    let wrong = bus::NatsConfig { password: Some("guessed".to_owned()), ..server.config_of("orchestrator") };
    let refused = bus::Bus::connect(&wrong).await.err().map(|error| error.code());
    assert_eq!(refused, Some(contract::ErrorCode::Unauthorized));
    Ok(())
}
