//! Metrics can be read as Prometheus text, under the documented names.

use std::time::Duration;

use telemetry::build::BuildInfo;
use telemetry::metric::{self, QueueLevel, Who};
use telemetry::{TelemetryConfig, TelemetryError};

#[test]
fn counted_and_read() {
    let who = Who { agent: "e", model: "gpt" };
    metric::step(who);
    assert_eq!(metric::render(), "", "nothing is counted before init");
    let bad = TelemetryConfig { filter: "a=b=c".to_owned(), ..TelemetryConfig::default() };
    assert!(matches!(telemetry::init("test", &bad), Err(TelemetryError::Filter { .. })));
    let bad = TelemetryConfig { sample_ratio: 1.5, ..TelemetryConfig::default() };
    assert!(matches!(telemetry::init("test", &bad), Err(TelemetryError::Ratio(_))));

    let config = TelemetryConfig { filter: "off".to_owned(), ..TelemetryConfig::default() };
    let _telemetry = telemetry::init("test", &config).unwrap();
    assert!(matches!(telemetry::init("test", &config), Err(TelemetryError::Twice)));
    metric::session_started();
    metric::session_started();
    metric::session_ended("completed");
    metric::step(who);
    metric::decision(who, "pattern:termination:all done");
    metric::turn(who, "completed");
    metric::turn_cost(who, 0.5);
    metric::premature(who);
    metric::redelivery("drive");
    metric::refused_commit();
    metric::queue_wait("model", Duration::from_millis(30));
    metric::decide_duration(Duration::from_micros(20));
    metric::compose_duration(Duration::from_millis(2));
    metric::tokens("gpt", 10, 5, 0, 0);
    metric::tool("read_file", "ok", Duration::from_millis(3));
    metric::dead_letter("tool");
    metric::cache_bytes("sessions", 4096);
    metric::cache_bytes("sessions", -1024);
    metric::start(BuildInfo { version: "1.2.3", commit: "abc" }, &["drive", "model"]);
    metric::queue("model", QueueLevel { waiting: 5, held: 2, oldest: 12.5, pullers: 0 });
    metric::sessions("running", 7);
    metric::sessions_with_gates(1);
    metric::work("model", 3, 64);
    metric::nats_connected(true);
    metric::cell_reachable("b", false);
    metric::breaker("openai", "gpt", true);
    metric::breaker("openai", "gpt", false);
    metric::turn_duration(who, "completed", Duration::from_secs(90));
    let text = metric::render();
    for line in [
        "ailoop_sessions_started_total 2",
        "ailoop_sessions_ended_total{reason=\"completed\"} 1",
        "ailoop_build_info{commit=\"abc\",version=\"1.2.3\"} 1",
        "ailoop_dead_letters_total{queue=\"model\"} 0",
        "ailoop_nats_reconnects_total 0",
        "ailoop_queue_waiting{queue=\"model\"} 5",
        "ailoop_queue_held{queue=\"model\"} 2",
        "ailoop_queue_oldest_seconds{queue=\"model\"} 12.5",
        "ailoop_queue_pullers{queue=\"model\"} 0",
        "ailoop_sessions{phase=\"running\"} 7",
        "ailoop_sessions_with_gates 1",
        "ailoop_work_running{queue=\"model\"} 3",
        "ailoop_work_max{queue=\"model\"} 64",
        "ailoop_nats_connected 1",
        "ailoop_cell_reachable{cell=\"b\"} 0",
        "ailoop_model_breaker_open{gen_ai_provider_name=\"openai\",gen_ai_request_model=\"gpt\"} 0",
        "ailoop_turn_duration_seconds_bucket{gen_ai_agent_id=\"e\",gen_ai_request_model=\"gpt\",reason=\"completed\",le=\"120\"} 1",
        "ailoop_steps_total{gen_ai_agent_id=\"e\",gen_ai_request_model=\"gpt\"} 1",
        "ailoop_decisions_total{gen_ai_agent_id=\"e\",gen_ai_request_model=\"gpt\",source=\"pattern\"} 1",
        "ailoop_turns_total{gen_ai_agent_id=\"e\",gen_ai_request_model=\"gpt\",reason=\"completed\"} 1",
        "ailoop_turns_premature_total{gen_ai_agent_id=\"e\",gen_ai_request_model=\"gpt\"} 1",
        "ailoop_turns_cost_usd_total{gen_ai_agent_id=\"e\",gen_ai_request_model=\"gpt\"} 0.5",
        "ailoop_redeliveries_total{queue=\"drive\"} 1",
        "ailoop_commits_refused_total 1",
        "ailoop_queue_wait_seconds_bucket{queue=\"model\",le=\"0.05\"} 1",
        "ailoop_decide_duration_seconds_count 1",
        "ailoop_prompt_compose_duration_seconds_count 1",
        "gen_ai_client_token_usage_total{gen_ai_request_model=\"gpt\",gen_ai_token_type=\"input\"} 10",
        "gen_ai_execute_tool_duration_seconds_count{gen_ai_tool_name=\"read_file\",outcome=\"ok\"} 1",
        "ailoop_dead_letters_total{queue=\"tool\"} 1",
        "ailoop_cache_bytes{cache=\"sessions\"} 3072",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }
    #[cfg(target_os = "linux")]
    assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");

    // No client makes series without end.
    for number in 0..1_000 {
        metric::tokens(&format!("scripted/anything-{number}"), 1, 0, 0, 0);
    }
    let text = metric::render();
    let tokens = text.lines().filter(|line| line.starts_with("gen_ai_client_token_usage_total")).count();
    assert!(tokens < 200, "{tokens} series");
    let other = "gen_ai_client_token_usage_total{gen_ai_request_model=\"other\",gen_ai_token_type=\"input\"} ";
    assert!(text.contains(other), "{text}");
}
