//! What is counted can be read as Prometheus text, under the documented names.

use std::time::Duration;

use telemetry::metric::{self, Who};
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
    metric::turn(who, "completed", 0.5);
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
    let text = metric::render();
    for line in [
        "ailoop_sessions_started_total 2",
        "ailoop_sessions_ended_total{reason=\"completed\"} 1",
        "ailoop_sessions_active 1",
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
}
