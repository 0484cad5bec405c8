//! Reads a text from an argument or from stdin, and checks it before anything is started.

use std::io::Read;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use contract::{ErrorCode, limits};

use crate::failure::CommandFailure;
use crate::terminal::{Style, Terminal};

/// Time after which a note says that stdin is still open.
const STDIN_PATIENCE: Duration = Duration::from_secs(1);

/// Reads a text: the argument itself, or all of `stdin` for `-`. It blocks until stdin ends; nothing else runs yet, so
/// Ctrl-C still ends the process.
pub fn read_text(argument: &str, stdin: impl Read) -> Result<String, CommandFailure> {
    let text = if argument == "-" { read_stdin(stdin)? } else { argument.to_owned() };
    if text.len() > limits::MESSAGE_BYTES_MAX {
        return Err(CommandFailure::usage(
            ErrorCode::TooLarge,
            format!("{} bytes are more than a message may hold", text.len()),
        ));
    }
    if text.trim().is_empty() {
        return Err(CommandFailure::usage(ErrorCode::EmptyMessage, "there is no text to send"));
    }
    Ok(text)
}

/// Reads a prompt: as [`read_text`], with a file or pipe on stdin appended to the argument. A pipe that stays open is
/// named, since the command waits for its end.
pub fn read_prompt(argument: &str, terminal: &Terminal) -> Result<String, CommandFailure> {
    if argument == "-" || !has_piped_stdin() {
        return read_text(argument, std::io::stdin());
    }
    let (done, waits) = mpsc::channel::<()>();
    let notes = terminal.clone();
    std::thread::spawn(move || {
        if waits.recv_timeout(STDIN_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            notes.note(Style::Warn, "reading stdin to its end; to leave it out, add: </dev/null");
        }
    });
    let context = read_stdin(std::io::stdin());
    drop(done);
    append_context(argument, &context?)
}

fn append_context(prompt: &str, context: &str) -> Result<String, CommandFailure> {
    if context.trim().is_empty() || prompt.trim().is_empty() {
        return read_text(prompt, std::io::empty());
    }
    read_text(&format!("{prompt}\n\n<stdin>\n{}\n</stdin>", context.trim_end_matches('\n')), std::io::empty())
}

/// Whether stdin is a pipe or a file. Anything else, such as a socket of a service manager, may never end.
fn has_piped_stdin() -> bool {
    let kind = std::fs::metadata("/dev/stdin").map(|stdin| stdin.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file())
}

/// Reads at most one byte more than the limit, so that an endless stdin fails instead of filling the memory.
fn read_stdin(stdin: impl Read) -> Result<String, CommandFailure> {
    let mut bytes = Vec::new();
    let limit = limits::MESSAGE_BYTES_MAX as u64 + 1;
    let read = stdin.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, format!("stdin cannot be read: {error}")))?;
    if bytes.len() > limits::MESSAGE_BYTES_MAX {
        return Err(CommandFailure::usage(ErrorCode::TooLarge, "stdin holds more than a message may"));
    }
    String::from_utf8(bytes).map_err(|_| CommandFailure::usage(ErrorCode::BadRequest, "stdin is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_appended_to_the_prompt() {
        assert_eq!(append_context("sum up", "a\nb\n").unwrap(), "sum up\n\n<stdin>\na\nb\n</stdin>");
        assert_eq!(append_context("sum up", " \n").unwrap(), "sum up");
        assert_eq!(append_context("", "a").unwrap_err().code(), &ErrorCode::EmptyMessage);
        let long = "x".repeat(limits::MESSAGE_BYTES_MAX);
        assert_eq!(append_context("sum up", &long).unwrap_err().code(), &ErrorCode::TooLarge);
    }

    fn check(argument: &str, stdin: &[u8], expect: Result<&str, &ErrorCode>) {
        let got = read_text(argument, stdin);
        assert_eq!(got.as_deref().map_err(CommandFailure::code), expect);
        assert!(got.is_ok() || got.is_err_and(|failure| failure.exit().code() == 2));
    }

    #[test]
    fn read_text_empty_or_too_long_is_refused() {
        let most = "x".repeat(limits::MESSAGE_BYTES_MAX);
        let more = format!("{most}x");
        check("hi", b"", Ok("hi"));
        check("-", b"from stdin\n", Ok("from stdin\n"));
        check("", b"", Err(&ErrorCode::EmptyMessage));
        check(" \n\t", b"", Err(&ErrorCode::EmptyMessage));
        check("-", b" \n", Err(&ErrorCode::EmptyMessage));
        check("-", &[0xff], Err(&ErrorCode::BadRequest));
        check(&most, b"", Ok(&most));
        check(&more, b"", Err(&ErrorCode::TooLarge));
        check("-", most.as_bytes(), Ok(&most));
        check("-", more.as_bytes(), Err(&ErrorCode::TooLarge));
    }
}
