//! Results of tools, cut to their head and tail.

use contract::Json;
use contract::model::Message;

/// A result of which head and tail are left.
pub(crate) fn cut(message: &Json, keep_bytes: usize) -> Option<Json> {
    let Some(Message::Tool { tool_call_id, content }) = read(message) else { return None };
    Some(Json::of(&Message::Tool { tool_call_id, content: shorten(&content, keep_bytes)? }))
}

/// Head and tail of a text; `None` when that is all of it.
pub(crate) fn shorten(content: &str, keep_bytes: usize) -> Option<String> {
    let head = content.floor_char_boundary(keep_bytes / 2);
    let tail = content.ceil_char_boundary(content.len().saturating_sub(keep_bytes / 2));
    (head < tail).then(|| format!("{}\n[{} bytes left out]\n{}", &content[..head], tail - head, &content[tail..]))
}

pub(crate) fn read(message: &Json) -> Option<Message> {
    serde_json::from_str(message.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_text_keeps_whole_characters() {
        assert_eq!(shorten("abcdef", 6), None);
        assert_eq!(shorten("abcdefg", 6).as_deref(), Some("abc\n[1 bytes left out]\nefg"));
        assert_eq!(shorten("\u{e4}\u{f6}\u{fc}\u{df}", 6).as_deref(), Some("\u{e4}\n[4 bytes left out]\n\u{df}"));
    }
}
