//! What a mail may be, and how it is shown to a model. Pure.

use std::time::Duration;

use contract::limits::{MAIL_SUBJECT_BYTES_MAX, MAIL_TEXT_BYTES_MAX};
use contract::mail::{Answered, Mail, WaitingMail};
use contract::{ErrorCode, MailId, Timestamp};
use serde_json::{Value, json};

use super::refusal::MailRefusal;
use crate::fit::escaped_len;

/// Characters of an answered mail that go with its answer.
const EXCERPT_CHARS_MAX: usize = 300;
/// Begins the subject of an answer.
const RE: &str = "Re: ";

/// Refuses what is empty or too long; the error says what to do.
pub(super) fn check(subject: &str, text: &str) -> Result<(), MailRefusal> {
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

/// A mail as whoever reads the mailbox sees it.
pub(super) fn waiting(id: &MailId, mail: &Mail) -> WaitingMail {
    let Mail { v: _, call: _, from, subject, text, sent, answers } = mail.clone();
    WaitingMail { id: id.clone(), from, subject, text, sent, answers }
}

/// A mail as `check_mail` lists it.
pub(super) fn shown(mail: &WaitingMail, now: Timestamp) -> Value {
    let mut value = json!(mail);
    value["age"] = age(now.since(mail.sent)).into();
    value
}

/// The subject of an answer: that of the question, marked once, and cut where the mark leaves no room.
pub(super) fn answer_subject(subject: &str) -> String {
    if subject.starts_with(RE) {
        return subject.to_owned();
    }
    let mut answer = format!("{RE}{subject}");
    while escaped_len(&answer) > MAIL_SUBJECT_BYTES_MAX {
        answer.pop();
    }
    answer
}

/// What goes with an answer, so that it says something to whoever did not ask.
pub(super) fn answered(id: &MailId, mail: &Mail) -> Answered {
    let mut excerpt: String = mail.text.chars().take(EXCERPT_CHARS_MAX).collect();
    if excerpt.len() < mail.text.len() {
        excerpt.push('…');
    }
    Answered { id: id.clone(), subject: mail.subject.clone(), excerpt }
}

/// A duration as people say it.
fn age(since: Duration) -> String {
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
    use crate::fit::{ROOM, fitting};
    use contract::AgentId;

    #[test]
    fn what_is_too_long_or_empty_is_refused_with_what_to_do() {
        let refused = |subject: &str, text: &str| check(subject, text).unwrap_err().message;
        assert!(check(&"s".repeat(MAIL_SUBJECT_BYTES_MAX), &"t".repeat(MAIL_TEXT_BYTES_MAX)).is_ok());
        assert!(check("s", &"\n".repeat(MAIL_TEXT_BYTES_MAX / 2)).is_err(), "blank");
        assert!(check("s", &"\"".repeat(MAIL_TEXT_BYTES_MAX / 2)).is_ok());
        assert_eq!(
            refused("s", &"\"".repeat(MAIL_TEXT_BYTES_MAX / 2 + 1)),
            "the text is too long: it takes 32770 bytes as JSON, 32768 are allowed; send several mails, or write a \
             file and name its path"
        );
        assert!(refused(&"s".repeat(MAIL_SUBJECT_BYTES_MAX + 1), "t").starts_with("the subject is too long: it takes"));
        assert!(refused(" ", "t").contains("nothing was sent"));
        assert!(refused("s", "").contains("nothing was sent"));
    }

    #[test]
    fn the_longest_mail_can_be_shown() {
        let text = "\u{1}".repeat(MAIL_TEXT_BYTES_MAX / 6);
        let subject = "\u{1}".repeat(MAIL_SUBJECT_BYTES_MAX / 6);
        let id = MailId::new(&"x".repeat(64)).unwrap();
        let asked = Mail {
            v: 1,
            call: "c".to_owned(),
            from: AgentId::new(&"a".repeat(32)).unwrap(),
            subject,
            text,
            sent: Timestamp::default(),
            answers: None,
        };
        assert!(check(&asked.subject, &asked.text).is_ok());
        let answer = Mail { answers: Some(answered(&id, &asked)), ..asked };
        let mail = waiting(&id, &answer);
        assert!(shown(&mail, Timestamp::default()).to_string().len() < ROOM);
        assert_eq!(fitting([mail]).len(), 1);
    }

    #[test]
    fn an_answer_says_what_it_answers() {
        assert_eq!(answer_subject("Plan"), "Re: Plan");
        assert_eq!(answer_subject("Re: Plan"), "Re: Plan");
        let long = answer_subject(&"ä".repeat(MAIL_SUBJECT_BYTES_MAX / 2));
        assert!(
            long.starts_with("Re: ä") && (MAIL_SUBJECT_BYTES_MAX - 2..=MAIL_SUBJECT_BYTES_MAX).contains(&long.len())
        );
    }

    #[test]
    fn ages_are_short() {
        for (seconds, expect) in [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (3_600, "1 h")] {
            assert_eq!(age(Duration::from_secs(seconds)), expect);
        }
        assert_eq!((age(Duration::from_hours(47)), age(Duration::from_hours(48))), ("47 h".into(), "2 d".into()));
    }
}
