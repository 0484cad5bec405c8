//! Model of a session under test: its replies and failures.

use contract::command::Verb;
use contract::event::InputKind;
use contract::ids::CallAttempt;
use contract::model::{FailureKind, FinishReason, ModelFailed, ModelFinished, ToolCall, Usage};
use contract::tool::ASK_USER;
use session::Body;

use super::Talk;

impl Talk {
    /// The open model call fails.
    pub(crate) fn fail(&mut self, kind: FailureKind) {
        self.fail_that_cost(kind, Usage::default(), 0.0);
    }

    pub(crate) fn fail_that_cost(&mut self, kind: FailureKind, usage: Usage, cost_usd: f64) {
        let call = self.model_call();
        self.failed(&call, kind, usage, cost_usd);
    }

    /// One attempt of the first model call fails, awaited or not.
    pub(crate) fn fail_of(&mut self, attempt: u32) {
        let call = CallAttempt { call: contract::CallId::model(1, 1), attempt };
        self.failed(&call, FailureKind::Overloaded, Usage::default(), 0.0);
    }

    fn failed(&mut self, call: &CallAttempt, kind: FailureKind, usage: Usage, cost_usd: f64) {
        let failed = ModelFailed {
            meta: self.meta_of(call.clone()),
            kind,
            retry_after_ms: None,
            message: "bad luck".to_owned(),
            text: std::mem::take(&mut self.text_so_far),
            usage,
            cost_usd,
            run: String::new(),
        };
        let id = format!("{}-{}", call.call, call.attempt);
        self.input(InputKind::Control(Verb::ModelFailed), &id, Body::ModelFailed(failed));
    }

    /// The model replies; `calls` are arguments for the one tool that there is, or for `delegate` where they name an
    /// agent.
    pub(crate) fn reply(&mut self, text: &str, calls: &[&str]) {
        self.reply_that_cost(text, calls, Usage::default(), 0.0);
    }

    /// The turn is at a limit, and the model says the last word.
    pub(crate) fn last_word(&mut self) {
        assert_eq!(self.stop_reason(), None, "the turn is over");
        assert_eq!(self.item().parameters.get("tool_choice"), Some(&"none".into()), "it is not the last step");
        self.reply("So far.", &[]);
    }

    /// The reply is cut at the output limit.
    pub(crate) fn reply_until_cut(&mut self, text: &str) {
        self.finish_reason = FinishReason::Length;
        self.reply(text, &[]);
        self.finish_reason = FinishReason::Stop;
    }

    /// The reply is reasoning alone.
    pub(crate) fn reply_of_reasoning(&mut self) {
        "Let me think.".clone_into(&mut self.reasoning);
        self.reply("", &[]);
        self.reasoning.clear();
    }

    /// Delivers the partial reply of a call that the user cancelled.
    pub(crate) fn finish_cancelled(&mut self, call: contract::CallId, text: &str) {
        self.finish_reason = FinishReason::Cancelled;
        self.reply_to(call, text);
        self.finish_reason = FinishReason::Stop;
    }

    /// The same, and only reasoning had come.
    pub(crate) fn finish_cancelled_reasoning(&mut self, call: contract::CallId) {
        "Let me think.".clone_into(&mut self.reasoning);
        self.finish_cancelled(call, "");
        self.reasoning.clear();
    }

    /// A reply to any call, awaited or not.
    pub(crate) fn reply_to(&mut self, call: contract::CallId, text: &str) {
        self.finish(&CallAttempt { call, attempt: 1 }, text, &[], Usage::default(), 0.0);
    }

    /// The reply to a call that nobody awaits any more, as far as it came.
    pub(crate) fn reply_late(&mut self, call: &CallAttempt, text: &str, usage: Usage, cost_usd: f64) {
        self.finish_reason = FinishReason::Cancelled;
        self.finish(call, text, &[], usage, cost_usd);
        self.finish_reason = FinishReason::Stop;
    }

    /// The first model call's reply, by one of its attempts.
    pub(crate) fn reply_of(&mut self, attempt: u32, text: &str) {
        let call = CallAttempt { call: contract::CallId::model(1, 1), attempt };
        self.finish(&call, text, &[], Usage::default(), 0.0);
    }

    pub(crate) fn reply_that_cost(&mut self, text: &str, calls: &[&str], usage: Usage, cost_usd: f64) {
        let call = self.model_call();
        self.finish(&call, text, calls, usage, cost_usd);
    }

    /// Another run of the first call's first attempt replies too.
    pub(crate) fn reply_of_run(&mut self, run: &str, text: &str, usage: Usage, cost_usd: f64) {
        let call = CallAttempt { call: contract::CallId::model(1, 1), attempt: 1 };
        self.finish_run(&call, run, text, &[], usage, cost_usd);
    }

    fn finish(&mut self, call: &CallAttempt, text: &str, calls: &[&str], usage: Usage, cost_usd: f64) {
        self.finish_run(call, "", text, calls, usage, cost_usd);
    }

    /// A run of any call replies, awaited or not.
    pub(crate) fn finish_run(
        &mut self,
        call: &CallAttempt,
        run: &str,
        text: &str,
        calls: &[&str],
        usage: Usage,
        cost_usd: f64,
    ) {
        let finished = ModelFinished {
            meta: self.meta_of(call.clone()),
            text: text.to_owned(),
            reasoning: self.reasoning.clone(),
            tool_calls: calls.iter().map(|arguments| ToolCall::new("x", tool_of(arguments), arguments)).collect(),
            finish_reason: self.finish_reason,
            raw_finish_reason: String::new(),
            usage,
            cost_usd,
            provider: String::new(),
            model: String::new(),
            latency_ms: 1,
            replay: self.replay.take(),
            run: run.to_owned(),
        };
        let id = format!("{}-{}{run}", call.call, call.attempt);
        self.input(InputKind::Control(Verb::ModelFinished), &id, Body::ModelFinished(Box::new(finished)));
    }
}

fn tool_of(arguments: &str) -> &'static str {
    match arguments {
        arguments if arguments.contains("\"agent\"") => contract::tool::DELEGATE,
        arguments if arguments.contains("\"act\"") => "act",
        arguments if arguments.contains("\"click\"") => "click",
        arguments if arguments.contains("\"question\"") => ASK_USER,
        _ => "look",
    }
}
