//! The prompt: an argument or stdin, checked before anything is started.

use std::io::Read;

use contract::{ErrorCode, limits};

use crate::failure::Failure;

/// Reads what is to be said: the argument itself, or all of `stdin` for `-`. Blocks until stdin ends: nothing else runs
/// yet, and Ctrl-C still ends the process by itself.
pub fn read(argument: &str, stdin: impl Read) -> Result<String, Failure> {
    let text = if argument == "-" { drain(stdin)? } else { argument.to_owned() };
    if text.len() > limits::MESSAGE_BYTES_MAX {
        return Err(Failure::usage(
            ErrorCode::TooLarge,
            format!("{} bytes are more than a message may hold", text.len()),
        ));
    }
    if text.trim().is_empty() {
        return Err(Failure::usage(ErrorCode::EmptyMessage, "there is no text to send"));
    }
    Ok(text)
}

/// Reads one byte more than may be, so that an endless stdin ends in an error and not in memory.
fn drain(stdin: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let most = limits::MESSAGE_BYTES_MAX as u64 + 1;
    let read = stdin.take(most).read_to_end(&mut bytes);
    read.map_err(|error| Failure::usage(ErrorCode::BadRequest, format!("stdin cannot be read: {error}")))?;
    if bytes.len() > limits::MESSAGE_BYTES_MAX {
        return Err(Failure::usage(ErrorCode::TooLarge, "stdin holds more than a message may"));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(ErrorCode::BadRequest, "stdin is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argument: &str, stdin: &[u8], expect: Result<&str, &ErrorCode>) {
        let got = read(argument, stdin);
        assert_eq!(got.as_deref().map_err(Failure::code), expect);
        assert!(got.is_ok() || got.is_err_and(|failure| failure.exit().code() == 2));
    }

    #[test]
    fn a_prompt_has_text_and_an_end() {
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
