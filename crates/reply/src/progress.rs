//! Progress of the work as a model reports it, each field parsed by itself.

use contract::event::Progress;
use serde_json::Value;

/// Steps of one list, and bytes of one of them.
const STEPS_MAX: usize = 64;
const STEP_BYTES_MAX: usize = 1 << 10;

/// The progress of a signal; none where it says nothing of it.
pub(crate) fn progress(signal: &Value, envelope: &Value) -> Option<Progress> {
    let written = &signal["progress"];
    let mut progress = match written {
        // Small models write the percentage alone.
        Value::Number(_) | Value::String(_) => {
            Progress { completion_percentage: percentage(written), ..Progress::default() }
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Progress {
            current_step: whole(&written["current_step"]),
            total_steps: whole(&written["total_steps"]),
            completion_percentage: percentage(&written["completion_percentage"]),
            steps_completed: steps(&written["steps_completed"]),
            steps_remaining: steps(&written["steps_remaining"]),
        },
    };
    // "2/5" or "2 of 5".
    if let (None, Some(text)) = (progress.total_steps, written["current_step"].as_str())
        && let Some((current, total)) = text.split_once('/').or_else(|| text.split_once(" of "))
    {
        (progress.current_step, progress.total_steps) = (current.trim().parse().ok(), total.trim().parse().ok());
    }
    let older =
        || percentage(&signal["completion_percentage"]).or_else(|| percentage(&envelope["completion_percentage"]));
    progress.completion_percentage = progress.completion_percentage.or_else(older).or_else(|| share(&progress));
    (progress != Progress::default()).then_some(progress)
}

/// Returns the completed share of all steps, in percent.
fn share(progress: &Progress) -> Option<f64> {
    let (current, total) = (progress.current_step?, progress.total_steps.filter(|total| *total > 0)?);
    // The step at hand is under way, unless nothing is left after it.
    let is_last = current >= total && progress.steps_remaining.is_empty();
    let completed = u32::try_from(progress.steps_completed.len()).unwrap_or(u32::MAX);
    let done = if is_last { total } else { current.saturating_sub(1).max(completed.min(total)) };
    Some((f64::from(done.min(total)) * 100.0 / f64::from(total)).round())
}

fn whole(value: &Value) -> Option<u32> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds that were checked")]
    (number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number)).then_some(number as u32)
}

fn percentage(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().trim_end_matches('%').trim_end().parse().ok())?;
    (0.0..=100.0).contains(&number).then_some(number)
}

/// Texts, or what else names a step; a single one need not stand in a list.
fn steps(value: &Value) -> Vec<String> {
    let each = match value {
        Value::Array(items) => items.as_slice(),
        Value::String(_) => std::slice::from_ref(value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => &[],
    };
    each.iter().filter_map(step).take(STEPS_MAX).collect()
}

fn step(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Object(fields) => {
            let named = ["description", "name", "title", "step"].iter().find_map(|key| fields.get(*key)?.as_str());
            named?.to_owned()
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => return None,
    };
    Some(text[..text.floor_char_boundary(STEP_BYTES_MAX)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_field_is_read_by_itself() {
        let read = |written: Value| progress(&json!({"progress": written}), &Value::Null);
        let full = |current, total, percentage: Option<f64>, completed: &[&str]| {
            Some(Progress {
                current_step: current,
                total_steps: total,
                completion_percentage: percentage,
                steps_completed: completed.iter().map(ToString::to_string).collect(),
                steps_remaining: Vec::new(),
            })
        };
        for (written, expected) in [
            (json!({"current_step": 2, "total_steps": 4}), full(Some(2), Some(4), Some(25.0), &[])),
            (json!({"current_step": 4, "total_steps": 4}), full(Some(4), Some(4), Some(100.0), &[])),
            (json!({"current_step": "2", "total_steps": 4.0}), full(Some(2), Some(4), Some(25.0), &[])),
            (json!({"current_step": "2 of 4"}), full(Some(2), Some(4), Some(25.0), &[])),
            (json!({"current_step": "two", "total_steps": 4}), full(None, Some(4), None, &[])),
            (json!({"current_step": -1, "completion_percentage": "50%"}), full(None, None, Some(50.0), &[])),
            (json!({"completion_percentage": 500}), None),
            (json!("50"), full(None, None, Some(50.0), &[])),
            (json!({"steps_completed": ["a", 2, {"name": "b"}, null]}), full(None, None, None, &["a", "2", "b"])),
            (json!({"steps_completed": "a", "current_step": []}), full(None, None, None, &["a"])),
            (json!({"current_step": 2, "total_steps": 0}), full(Some(2), Some(0), None, &[])),
            (json!(null), None),
        ] {
            assert_eq!(read(written.clone()), expected, "{written}");
        }
        let older = progress(&json!({"status": "CONTINUE"}), &json!({"completion_percentage": 40}));
        assert_eq!(older.and_then(|progress| progress.completion_percentage), Some(40.0));
    }
}
