//! A plan: a Markdown text with a title, a goal and numbered steps. Pure.

use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of a plan, so that its whole text fits into one result with every quote escaped.
pub(super) const PLAN_BYTES_MAX: usize = 16 << 10;
/// Steps of a plan.
pub(super) const STEPS_MAX: usize = 100;
/// Bytes of a plan with all of its marks, so that none of them makes it too long.
pub(super) const PLAN_FILE_BYTES_MAX: usize = PLAN_BYTES_MAX + STEPS_MAX * "[x] ".len();
/// Digits of a step's number.
const NUMBER_DIGITS_MAX: usize = 4;
/// Hexadecimal digits of a revision: few enough for a model to copy.
const REVISION_DIGITS: usize = 8;
/// Words that may stand between the numbers of a dependency.
const BETWEEN_NUMBERS: &[&str] = &["and", "step", "steps", "&", "none", "nothing", "-", "–"];

/// A plan as parsed from its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanDocument {
    pub(super) title: String,
    /// The first paragraph below the title; empty where there is none.
    pub(super) goal: String,
    /// In the order of the text. Numbers are unique, and each dependency is the number of a step.
    pub(super) steps: Vec<PlanStep>,
    /// Changes when anything but a mark does.
    pub(super) revision: String,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanStep {
    pub(super) number: u32,
    pub(super) title: String,
    /// The text below the title, without dependencies and the check.
    pub(super) details: String,
    /// Check of the result of the step, in words.
    pub(super) check: Option<String>,
    /// Numbers of the steps that must be done before, ascending.
    pub(super) depends_on: Vec<u32>,
    pub(super) done: bool,
    /// Range of its mark in the text, `[x] ` with the space; empty where it has none.
    mark: Range<usize>,
}

/// Reason why a text is not a plan. Each message says what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlanError {
    #[error("it has {0} bytes, and {PLAN_BYTES_MAX} are the most: split it into several plans")]
    TooLong(usize),
    #[error("line {0} has a control character: remove it")]
    ControlCharacter(usize),
    #[error("it has no title: begin it with a line `# <title>`")]
    NoTitle,
    #[error("it has no steps: number them at the beginning of their lines, `1. <title>`")]
    NoSteps,
    #[error("it has over {STEPS_MAX} steps: split it into several plans")]
    TooManySteps,
    #[error("the code block that begins in line {0} does not end: close it")]
    OpenCodeBlock(usize),
    #[error("step {0} is there twice: give each step a number of its own, 1, 2, 3")]
    NumberTwice(u32),
    #[error("step {0} has no title: write `{0}. <title>`")]
    NoStepTitle(u32),
    #[error(
        "step {step} depends on {text:?}, which is no list of step numbers: write `depends on: 1, 2`, or leave \
         the line out"
    )]
    DependencyUnreadable { step: u32, text: String },
    #[error("step {step} depends on step {on}, which is not there: correct the number, or add the step")]
    DependencyUnknown { step: u32, on: u32 },
}

/// A line of the text, and the byte where it begins.
#[derive(Clone, Copy)]
struct PlanLine<'a> {
    text: &'a str,
    at: usize,
    /// Whether it belongs to a code block.
    is_code: bool,
}

impl PlanDocument {
    pub(super) fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() > PLAN_FILE_BYTES_MAX {
            return Err(PlanError::TooLong(text.len()));
        }
        let lines = split_lines(text)?;
        let heading = lines.iter().position(|line| !line.is_code && line.text.starts_with("# "));
        let heading = heading.ok_or(PlanError::NoTitle)?;
        let title = lines[heading].text[2..].trim().to_owned();
        if title.is_empty() {
            return Err(PlanError::NoTitle);
        }
        let body = &lines[heading + 1..];
        let first = body.iter().position(|line| parse_step_number(line).is_some()).ok_or(PlanError::NoSteps)?;
        let end = body[first..].iter().position(is_heading).map_or(body.len(), |end| first + end);
        let mut steps = Vec::new();
        let mut rest = &body[first..end];
        while let Some((head, below)) = rest.split_first() {
            let own = below.iter().position(|line| parse_step_number(line).is_some()).unwrap_or(below.len());
            if steps.len() == STEPS_MAX {
                return Err(PlanError::TooManySteps);
            }
            steps.extend(parse_step(*head, &below[..own])?);
            rest = &below[own..];
        }
        validate_steps(&steps)?;
        let unmarked = strip_marks(text, &steps);
        if unmarked.len() > PLAN_BYTES_MAX {
            return Err(PlanError::TooLong(unmarked.len()));
        }
        let digest = contract::tool::sha256_hex(unmarked.as_bytes());
        let revision = digest.get(..REVISION_DIGITS).unwrap_or(&digest).to_owned();
        Ok(Self { title, goal: parse_goal(&body[..first]), steps, revision })
    }

    /// Finds the step of this number.
    pub(super) fn step(&self, number: u32) -> Option<&PlanStep> {
        self.steps.iter().find(|step| step.number == number)
    }

    /// Counts the steps that are done.
    pub(super) fn count_done(&self) -> usize {
        self.steps.iter().filter(|step| step.done).count()
    }
}

impl PlanStep {
    /// Returns the plan's text with this step marked as done.
    pub(super) fn mark_done(&self, text: &str) -> String {
        format!("{}[x] {}", &text[..self.mark.start], &text[self.mark.end..])
    }
}

/// Splits a text into lines, and finds those of code blocks.
fn split_lines(text: &str) -> Result<Vec<PlanLine<'_>>, PlanError> {
    let (mut lines, mut at, mut fence) = (Vec::new(), 0, None::<(char, usize, usize)>);
    for (index, raw) in text.split_inclusive('\n').enumerate() {
        let number = index + 1;
        let line = raw.trim_end_matches(['\n', '\r']);
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(PlanError::ControlCharacter(number));
        }
        let (mark, count) = count_fence_chars(line.trim_start());
        let mut is_code = fence.is_some();
        match fence {
            None if count >= 3 => (fence, is_code) = (Some((mark, count, number)), true),
            Some((open, needed, _)) if mark == open && count >= needed && line.trim().len() == count => fence = None,
            None | Some(_) => {}
        }
        lines.push(PlanLine { text: line, at, is_code });
        at += raw.len();
    }
    match fence {
        Some((_, _, line)) => Err(PlanError::OpenCodeBlock(line)),
        None => Ok(lines),
    }
}

/// Counts the fence characters at the beginning of a line; the first value is the character.
fn count_fence_chars(line: &str) -> (char, usize) {
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~')).unwrap_or(' ');
    (mark, if mark == ' ' { 0 } else { line.chars().take_while(|c| *c == mark).count() })
}

fn is_heading(line: &PlanLine<'_>) -> bool {
    !line.is_code && line.text.starts_with('#')
}

/// Parses the number of a step's first line; the second value is the rest of the line. Steps begin at the beginning of
/// a line; indented lists are part of a step.
fn parse_step_number<'a>(line: &PlanLine<'a>) -> Option<(u32, &'a str)> {
    if line.is_code {
        return None;
    }
    let digits = line.text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > NUMBER_DIGITS_MAX {
        return None;
    }
    let rest = line.text[digits..].strip_prefix(['.', ')'])?;
    if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
        return None;
    }
    Some((line.text[..digits].parse().ok()?, rest))
}

/// Returns the first paragraph, up to an empty line, on one line.
fn parse_goal(lines: &[PlanLine<'_>]) -> String {
    let text = lines.iter().map(|line| line.text.trim()).skip_while(|text| text.is_empty() || text.starts_with('#'));
    let text = text.take_while(|text| !text.is_empty() && !text.starts_with('#')).collect::<Vec<_>>().join(" ");
    let plain = text.trim_start_matches(['*', '_']);
    match plain.get(..5) {
        Some(word) if word.eq_ignore_ascii_case("goal:") => plain[5..].trim_start_matches(['*', '_', ' ']).to_owned(),
        Some(_) | None => text,
    }
}

fn parse_step(head: PlanLine<'_>, below: &[PlanLine<'_>]) -> Result<Option<PlanStep>, PlanError> {
    let Some((number, rest)) = parse_step_number(&head) else { return Ok(None) };
    let spaces = rest.len() - rest.trim_start().len();
    let at = head.at + head.text.len() - rest.len() + spaces;
    let rest = rest.trim();
    let mark = rest.get(..3).filter(|mark| *mark == "[ ]" || mark.eq_ignore_ascii_case("[x]"));
    // `[x](…)` is a link.
    let mark = mark.filter(|_| rest.len() == 3 || rest[3..].starts_with([' ', '\t']));
    let after = mark.map_or(rest, |mark| &rest[mark.len()..]);
    let mark_end = at + rest.len() - after.trim_start().len();
    let mut depends_on = BTreeSet::new();
    let mut title = after.trim();
    if let Some((before, within)) = title.rsplit_once('(')
        && let Some(list) = within.trim_end_matches('.').strip_suffix(')')
        && let Some(list) = parse_dependency(list)
    {
        depends_on.extend(parse_numbers(number, list)?);
        title = before.trim();
    }
    if title.is_empty() {
        return Err(PlanError::NoStepTitle(number));
    }
    let (mut check, mut details) = (None, Vec::new());
    for line in below {
        let item = line.text.trim().trim_start_matches(['-', '*', '+']).trim_start_matches([' ', '*', '_']);
        if line.is_code {
            details.push(line.text);
        } else if let Some(list) = parse_dependency(item) {
            depends_on.extend(parse_numbers(number, list)?);
        } else if let Some(text) = strip_word(item, "check").and_then(strip_colon).filter(|_| check.is_none()) {
            check = Some(text.to_owned());
        } else {
            details.push(line.text);
        }
    }
    Ok(Some(PlanStep {
        number,
        title: title.to_owned(),
        details: remove_indent(&details),
        check,
        depends_on: depends_on.into_iter().collect(),
        done: mark.is_some_and(|mark| mark != "[ ]"),
        mark: at..mark_end,
    }))
}

/// Returns the list after `depends on`: everything after a colon, and without one a text that begins with a number or
/// the word `step`.
fn parse_dependency(text: &str) -> Option<&str> {
    let list = strip_word(text, "depends on")?;
    let begins = list.starts_with(|c: char| c.is_ascii_digit()) || strip_word(list, "step").is_some();
    strip_colon(list).or(begins.then_some(list))
}

/// Returns the text after a word, whatever its case and emphasis.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let begin = text.get(..word.len()).filter(|begin| begin.eq_ignore_ascii_case(word))?;
    Some(text[begin.len()..].trim_start_matches(['*', '_', ' ']).trim_end())
}

fn strip_colon(text: &str) -> Option<&str> {
    Some(text.strip_prefix(':')?.trim_start_matches(['*', '_']).trim())
}

/// Parses the step numbers of a list.
fn parse_numbers(step: u32, list: &str) -> Result<Vec<u32>, PlanError> {
    let unreadable = || PlanError::DependencyUnreadable { step, text: list.to_owned() };
    let mut numbers = Vec::new();
    for word in list.split([',', ';', ' ', '\t']).map(|word| word.trim_end_matches('.')).filter(|word| !word.is_empty())
    {
        if BETWEEN_NUMBERS.contains(&word.to_ascii_lowercase().as_str()) {
            continue;
        }
        let digits = word.bytes().all(|byte| byte.is_ascii_digit());
        numbers.push(word.parse().ok().filter(|_| digits).ok_or_else(unreadable)?);
    }
    Ok(numbers)
}

fn validate_steps(steps: &[PlanStep]) -> Result<(), PlanError> {
    let mut known = BTreeSet::new();
    for step in steps {
        if !known.insert(step.number) {
            return Err(PlanError::NumberTwice(step.number));
        }
    }
    for step in steps {
        if let Some(on) = step.depends_on.iter().find(|on| !known.contains(on)) {
            return Err(PlanError::DependencyUnknown { step: step.number, on: *on });
        }
    }
    Ok(())
}

/// Removes the common indentation of lines, and empty lines at both ends.
fn remove_indent(lines: &[&str]) -> String {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let least = lines.iter().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or_default();
    let lines: Vec<&str> = lines.iter().map(|line| line.get(least..).unwrap_or_default().trim_end()).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Returns the text without its marks, so that a mark does not change the revision.
fn strip_marks(text: &str, steps: &[PlanStep]) -> String {
    let (mut unmarked, mut from) = (String::with_capacity(text.len()), 0);
    for step in steps {
        unmarked += &text[from..step.mark.start];
        from = step.mark.end;
    }
    unmarked + &text[from..]
}
