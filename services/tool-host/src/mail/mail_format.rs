//! Limits of a mail, and its forms for models and clients. Pure.

use std::time::Duration;

use contract::limits::{MAIL_SUBJECT_BYTES_MAX, MAIL_TEXT_BYTES_MAX};
use contract::mail::{Answered, Mail, WaitingMail};
use contract::{ErrorCode, MailId, Timestamp};
use serde_json::{Value, json};

use super::refusal::MailRefusal;
use crate::truncate::escaped_len;

/// Characters of the original mail that its answer quotes.
const EXCERPT_CHARS_MAX: usize = 300;
/// Prefix of the subject of an answer.
const REPLY_PREFIX: &str = "Re: ";

/// Refuses an empty or too long subject or text; the error says what to do.
pub(super) fn validate(subject: &str, text: &str) -> Result<(), MailRefusal> {
    let too_long = |what: &str, bytes: usize, max: usize, instead: &str| {
        let message = format!("the {what} is too long: it takes {bytes} bytes as JSON, {max} are allowed; {instead}");
        MailRefusal::new(ErrorCode::TooLarge, message)
    };
    let (line, body) = (escaped_len(subject), escaped_len(text));
    if subject.trim().is_empty() || text.trim().is_empty() {
        Err(MailRefusal::new(ErrorCode::EmptyMessage, "a mail has a subject and a text; nothing was sent"))
    } else if line > MAIL_SUBJECT_BYTES_MAX {
        Err(too_long("subject", line, MAIL_SUBJECT_BYTES_MAX, "put the rest into the text"))
    } else if body > MAIL_TEXT_BYTES_MAX {
        Err(too_long("text", body, MAIL_TEXT_BYTES_MAX, "send several mails, or write a file and name its path"))
    } else {
        Ok(())
    }
}

/// Converts a stored mail to its form in a list.
pub(super) fn to_waiting_mail(id: &MailId, mail: &Mail) -> WaitingMail {
    let Mail { v: _, call: _, from, subject, text, sent, answers } = mail.clone();
    WaitingMail { id: id.clone(), from, subject, text, sent, answers }
}

/// Converts a mail to its form in the result of `check_mail`.
pub(super) fn to_json(mail: &WaitingMail, now: Timestamp) -> Value {
    let mut value = json!(mail);
    value["age"] = format_age(now.since(mail.sent)).into();
    value
}

/// Builds the subject of an answer: that of the question, prefixed once, and cut where the prefix leaves no room.
pub(super) fn reply_subject(subject: &str) -> String {
    if subject.starts_with(REPLY_PREFIX) {
        return subject.to_owned();
    }
    let mut answer = format!("{REPLY_PREFIX}{subject}");
    while escaped_len(&answer) > MAIL_SUBJECT_BYTES_MAX {
        answer.pop();
    }
    answer
}

/// Builds the summary of the original that an answer carries, for readers who did not write it.
pub(super) fn summarize_original(id: &MailId, mail: &Mail) -> Answered {
    let mut excerpt: String = mail.text.chars().take(EXCERPT_CHARS_MAX).collect();
    if excerpt.len() < mail.text.len() {
        excerpt.push('…');
    }
    Answered { id: id.clone(), subject: mail.subject.clone(), excerpt }
}

/// Formats a duration for people.
fn format_age(since: Duration) -> String {
    let seconds = since.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truncate::{RESULT_BYTES_MAX, take_fitting};
    use contract::AgentId;

    #[test]
    fn mail_too_long_or_empty_is_refused_with_advice() {
        let refuse = |subject: &str, text: &str| validate(subject, text).unwrap_err().message;
        assert!(validate(&"s".repeat(MAIL_SUBJECT_BYTES_MAX), &"t".repeat(MAIL_TEXT_BYTES_MAX)).is_ok());
        assert!(validate("s", &"\n".repeat(MAIL_TEXT_BYTES_MAX / 2)).is_err(), "blank");
        assert!(validate("s", &"\"".repeat(MAIL_TEXT_BYTES_MAX / 2)).is_ok());
        assert_eq!(
            refuse("s", &"\"".repeat(MAIL_TEXT_BYTES_MAX / 2 + 1)),
            "the text is too long: it takes 32770 bytes as JSON, 32768 are allowed; send several mails, or write a \
             file and name its path"
        );
        assert!(refuse(&"s".repeat(MAIL_SUBJECT_BYTES_MAX + 1), "t").starts_with("the subject is too long: it takes"));
        assert!(refuse(" ", "t").contains("nothing was sent"));
        assert!(refuse("s", "").contains("nothing was sent"));
    }

    #[test]
    fn longest_mail_fits_into_a_result() {
        let text = "\u{1}".repeat(MAIL_TEXT_BYTES_MAX / 6);
        let subject = "\u{1}".repeat(MAIL_SUBJECT_BYTES_MAX / 6);
        let id = MailId::new(&"x".repeat(64)).unwrap();
        let question = Mail {
            v: 1,
            call: "c".to_owned(),
            from: AgentId::new(&"a".repeat(32)).unwrap(),
            subject,
            text,
            sent: Timestamp::default(),
            answers: None,
        };
        assert!(validate(&question.subject, &question.text).is_ok());
        let answer = Mail { answers: Some(summarize_original(&id, &question)), ..question };
        let mail = to_waiting_mail(&id, &answer);
        assert!(to_json(&mail, Timestamp::default()).to_string().len() < RESULT_BYTES_MAX);
        assert_eq!(take_fitting([mail]).len(), 1);
    }

    #[test]
    fn answer_subject_is_prefixed_once_and_fits() {
        assert_eq!(reply_subject("Plan"), "Re: Plan");
        assert_eq!(reply_subject("Re: Plan"), "Re: Plan");
        let long = reply_subject(&"ä".repeat(MAIL_SUBJECT_BYTES_MAX / 2));
        assert!(
            long.starts_with("Re: ä") && (MAIL_SUBJECT_BYTES_MAX - 2..=MAIL_SUBJECT_BYTES_MAX).contains(&long.len())
        );
    }

    #[test]
    fn age_is_formatted_in_one_unit() {
        for (seconds, expect) in [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (3_600, "1 h")] {
            assert_eq!(format_age(Duration::from_secs(seconds)), expect);
        }
        assert_eq!(
            (format_age(Duration::from_hours(47)), format_age(Duration::from_hours(48))),
            ("47 h".into(), "2 d".into())
        );
    }
}
