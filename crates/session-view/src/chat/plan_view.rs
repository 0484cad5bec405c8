//! The plan of a turn, as its model reports it. Pure.

use contract::event::{Event, Progress};
use terminal::Style;

use crate::notification::{NotificationContent, ParsedNotification};
use crate::tool_summary::to_line;

/// Follows the plan of the current turn.
#[derive(Debug, Default)]
pub struct PlanView {
    plan: Option<Progress>,
}

impl PlanView {
    /// Follows what the session does: a plan lasts for its turn.
    pub fn update(&mut self, notification: &ParsedNotification) {
        let NotificationContent::Event(event) = &notification.content else { return };
        if let Event::ContinuationProgress(decision) = &**event {
            let progress = &decision.progress;
            if !progress.steps_completed.is_empty() || !progress.steps_remaining.is_empty() {
                self.plan = Some(progress.clone());
            }
        }
        if matches!(&**event, Event::TurnCompleted(_) | Event::SessionEnded(_)) {
            self.plan = None;
        }
    }

    /// Returns at most this many lines: how far the plan is, and its steps around the current one.
    pub fn lines(&self, lines_max: usize) -> Vec<(Style, String)> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let (done, left) = (plan.steps_completed.len(), plan.steps_remaining.len());
        let steps: Vec<(Style, &str, &str)> = plan
            .steps_completed
            .iter()
            .map(|step| (Style::Faint, "✓", step.as_str()))
            .chain(plan.steps_remaining.iter().enumerate().map(|(index, step)| {
                let (style, mark) = if index == 0 { (Style::Plain, "›") } else { (Style::Faint, " ") };
                (style, mark, step.as_str())
            }))
            .collect();
        let rows = lines_max.saturating_sub(1);
        // One finished step stays above the current one, as long as there are steps for the rest of the rows.
        let skipped = if steps.len() > rows { done.saturating_sub(1).min(steps.len() - rows) } else { 0 };
        let mut lines = vec![(Style::Faint, head(plan, done, done + left))];
        lines.extend(
            steps
                .into_iter()
                .skip(skipped)
                .take(rows)
                .map(|(style, mark, step)| (style, format!("  {mark} {}", to_line(step)))),
        );
        lines.truncate(lines_max);
        lines
    }
}

fn head(plan: &Progress, done: usize, listed: usize) -> String {
    let total = plan.total_steps.map_or(listed, |total| usize::try_from(total).unwrap_or(listed));
    let percent = plan.completion_percentage.map_or_else(String::new, |percent| format!(" · {percent:.0} %"));
    format!("plan: {done} of {total} steps done{percent}")
}

#[cfg(test)]
mod tests {
    use contract::event::Event;
    use serde_json::json;

    use super::*;

    fn view(done: &[&str], left: &[&str]) -> PlanView {
        let progress = json!({"total_steps": done.len() + left.len(), "completion_percentage": 40.0,
            "steps_completed": done, "steps_remaining": left});
        let event = json!({"type": "continuation.progress", "data": {"agent_id": "e", "turn": 1, "iteration": 1,
            "max_iterations": 9, "progress": progress, "current_tools": [], "continues": true, "source": "explicit",
            "reason": "", "status": "CONTINUE", "excerpt": "", "call_ids": []}});
        let mut view = PlanView::default();
        view.update(&notify(&event));
        view
    }

    fn notify(event: &serde_json::Value) -> ParsedNotification {
        let event: Event = serde_json::from_value(event.clone()).unwrap();
        let content = NotificationContent::Event(Box::new(event));
        ParsedNotification { seq: Some(1), time: None, trace_id: String::new(), content }
    }

    fn check(view: &PlanView, lines_max: usize, expect: &[&str]) {
        let lines: Vec<String> = view.lines(lines_max).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, expect, "{lines_max}");
    }

    #[test]
    fn plan_shows_the_steps_around_the_current_one() {
        let view = view(&["a", "b"], &["c\u{1b}[2J", "d", "e"]);
        let head = "plan: 2 of 5 steps done · 40 %";
        check(&view, 8, &[head, "  ✓ a", "  ✓ b", "  › c<U+001B>[2J", "    d", "    e"]);
        check(&view, 4, &[head, "  ✓ b", "  › c<U+001B>[2J", "    d"]);
        check(&view, 1, &[head]);
        check(&view, 0, &[]);
    }

    #[test]
    fn plan_ends_with_its_turn() {
        let mut view = view(&[], &["a"]);
        let end = json!({"type": "turn.completed", "data": {"turn": 1, "stop_reason": "completed", "iterations": 1,
            "final_response": "", "spent": {}}});
        view.update(&notify(&end));
        check(&view, 8, &[]);
    }
}
