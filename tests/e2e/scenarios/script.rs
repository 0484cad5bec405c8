//! A scripted model with the habits of real ones: it signals in several ways when it was asked to, announces the next
//! step in words when it was asked to do that, forgets either now and then, errs and recovers, asks other agents, and
//! its server fails now and then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ailoop_tests::model::{RecordedRequest, ScriptedReply};
use serde_json::json;

/// A job for an agent.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) agent: &'static str,
    steps: Vec<Step>,
}

/// Action of the model in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Think,
    List,
    /// Reads an existing file.
    Read,
    /// Reads a missing file; the next step reads another one.
    Miss,
    Write,
    /// Delegates a part to another agent.
    Ask,
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

impl Job {
    pub(super) fn new(number: u64) -> Self {
        let mut dice = Dice(number);
        let agent = ["a", "p", "t", "d", "e"][usize::try_from(number % 5).unwrap()];
        let most = if matches!(agent, "d" | "e") { 8 } else { 4 };
        let count = 3 + dice.below(most - 2);
        let kinds = [Step::Think, Step::Think, Step::Think, Step::List, Step::Read, Step::Miss, Step::Write, Step::Ask];
        let mut steps: Vec<Step> =
            (0..count).map(|_| kinds[usize::try_from(dice.below(kinds.len() as u64)).unwrap()]).collect();
        // Each job has a step without a call, or there is nothing to go on from.
        steps[usize::try_from(dice.below(count)).unwrap()] = Step::Think;
        Self { number, agent, steps }
    }

    /// Returns the task that the user gives.
    pub(super) fn task(&self) -> String {
        format!("Job {}: look at the files, work step by step, and tell the result.", self.number)
    }

    /// Returns the text that the answer contains when the job is done.
    pub(super) fn result(&self) -> String {
        format!("RESULT-{}", self.number)
    }
}

/// A model that follows a script for each job.
#[derive(Debug, Default)]
pub(super) struct Scripted {
    /// Requests for each step of each job: its server fails the first of some.
    requests: Mutex<BTreeMap<String, u32>>,
}

impl Scripted {
    pub(super) fn reply(&self, request: &RecordedRequest) -> ScriptedReply {
        let messages = request.messages();
        let system = messages[0]["content"].as_str().unwrap_or_default();
        let first = messages.get(1).and_then(|message| message["content"].as_str()).unwrap_or_default();
        let number = |text: &str| -> Option<u64> {
            let rest = text.split_once("Job ")?.1;
            rest.split(':').next()?.parse().ok()
        };
        let step = messages.iter().filter(|message| message["role"] == "assistant").count();
        let Some(number) = number(first) else {
            // A delegated part: one call, then the answer.
            return match step {
                0 => ScriptedReply::text("I look. ").and_calls(&[("list_files", json!({}))]),
                _ => ScriptedReply::text("All done: I looked, and the plan is complete."),
            };
        };
        let job = Job::new(number);
        let model = request.body["model"].as_str().unwrap_or_default();
        let mut dice = Dice(number.wrapping_mul(1_000) + step as u64);
        if self.fails(&format!("{model} {number} {step}"), dice.below(20)) {
            return match dice.below(3) {
                0 => ScriptedReply::status(500, "{\"error\":{\"message\":\"oops\"}}"),
                1 => ScriptedReply::status(429, "{\"error\":{\"message\":\"slow down\"}}"),
                _ => ScriptedReply::text("Let me s").and_break(),
            };
        }
        let habit = Habit::by(system);
        match job.steps.get(step) {
            Some(step) => habit.step(*step, &job, &mut dice),
            None => habit.end(&job, &mut dice),
        }
    }

    /// One step in twenty meets a server that fails once.
    fn fails(&self, step: &str, dice: u64) -> bool {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let times = requests.entry(step.to_owned()).or_default();
        *times += 1;
        dice == 0 && *times == 1
    }
}

/// Form in which the prompt asks the model to continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Nothing,
    Signal,
    Words,
}

impl Habit {
    fn by(system: &str) -> Self {
        let Some((_, protocol)) = system.split_once("## CONTINUATION PROTOCOL") else { return Self::Nothing };
        let protocol = protocol.split("\n## ").next().unwrap_or_default();
        if protocol.contains("TERMINATE") { Self::Signal } else { Self::Words }
    }

    fn step(self, step: Step, job: &Job, dice: &mut Dice) -> ScriptedReply {
        let file = ["parser.txt", "lexer.txt", "notes.txt"][usize::try_from(dice.below(3)).unwrap()];
        match step {
            Step::List => ScriptedReply::text("I look around. ").and_calls(&[("list_files", json!({}))]),
            Step::Read => ScriptedReply::text("I read. ").and_calls(&[("read_file", json!({"path": file}))]),
            Step::Miss => ScriptedReply::calls(&[("read_file", json!({"path": "missing.txt"}))]),
            Step::Write => {
                let arguments = json!({"path": format!("job-{}.md", job.number), "content": "so far"});
                ScriptedReply::text("I write. ").and_calls(&[("write_file", arguments)])
            }
            Step::Ask => {
                let agent = if job.agent == "p" { "alice" } else { "patricia" };
                ScriptedReply::calls(&[("delegate", json!({"agent": agent, "task": "Look at the files."}))])
            }
            Step::Think => self.think(dice),
        }
    }

    /// A step without a call; one in twenty-five forgets to say that it goes on.
    fn think(self, dice: &mut Dice) -> ScriptedReply {
        let forgets = dice.below(25) == 0;
        let thought = "The parser reads what the lexer gives it.";
        let continuation = json!({"status": "CONTINUE", "reason": "steps are left"});
        match self {
            Self::Nothing => ScriptedReply::text(thought),
            _ if forgets => ScriptedReply::text(thought),
            Self::Words => {
                let words =
                    ["Now I'll look at the lexer.", "Proceeding to the next part.", "Now I'll check the notes."];
                ScriptedReply::text(&format!("{thought} {}", words[usize::try_from(dice.below(3)).unwrap()]))
            }
            Self::Signal => match dice.below(4) {
                0 => ScriptedReply::text(thought).and_calls(&[("continuation", continuation)]),
                1 => ScriptedReply::text(&json!({"response": thought, "continuation": continuation}).to_string()),
                2 => {
                    ScriptedReply::text(&format!("{thought}\n```json\n{}\n```", json!({"continuation": continuation})))
                }
                // Cut off at its end, as models do.
                _ => ScriptedReply::text(&format!(
                    "{{\"response\": \"{thought}\", \"continuation\": {{\"status\": \"CONTINUE\""
                )),
            },
        }
    }

    /// The reply of the last step.
    fn end(self, job: &Job, dice: &mut Dice) -> ScriptedReply {
        let text = format!("All done, the plan is complete: {}.", job.result());
        let continuation = json!({"status": "TERMINATE", "reason": "done"});
        match self {
            Self::Signal if dice.below(3) == 0 => {
                ScriptedReply::text(&json!({"response": text, "continuation": continuation}).to_string())
            }
            Self::Signal => ScriptedReply::text(&text).and_calls(&[("continuation", continuation)]),
            Self::Nothing | Self::Words => ScriptedReply::text(&text),
        }
    }
}
