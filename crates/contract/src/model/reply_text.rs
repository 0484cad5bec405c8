//! The text of one reply for a client that cannot take text back. A reply may be streamed by several attempts.

/// Text of a reply that went out, and text that the current attempt has streamed.
#[derive(Debug, Default)]
pub struct ReplyText {
    attempt: Option<(u32, u32)>,
    streamed: String,
    /// Text that went out. The whole reply may begin with something else, after an attempt that failed.
    given: String,
}

impl ReplyText {
    /// Takes a chunk; returns the text that goes out now. Text of a later attempt waits until it goes beyond what went out.
    pub fn push(&mut self, attempt: (u32, u32), delta: &str) -> String {
        match self.attempt {
            Some(current) if attempt < current => return String::new(),
            Some(current) if attempt == current => {}
            Some(_) | None => {
                self.attempt = Some(attempt);
                self.streamed.clear();
            }
        }
        self.streamed.push_str(delta);
        match self.streamed.strip_prefix(self.given.as_str()) {
            Some(more) => {
                let more = more.to_owned();
                self.given.push_str(&more);
                more
            }
            None => String::new(),
        }
    }

    /// Takes the whole reply; returns what is missing of it. A reply that does not begin with what went out goes out
    /// whole, as a paragraph of its own.
    pub fn finish(&mut self, whole: &str) -> String {
        match whole.strip_prefix(self.given.as_str()) {
            Some(rest) => rest.to_owned(),
            // A signal at the end of a reply may be cut off after some of the white space before it went out.
            None if self.given.trim_end() == whole.trim_end() => String::new(),
            None => format!("\n\n{whole}"),
        }
    }

    /// Forgets what the current attempt has streamed: a new connection begins with the text so far. What went out stays.
    pub fn restart(&mut self) {
        self.streamed.clear();
    }

    /// Whether something went out.
    pub fn is_begun(&self) -> bool {
        !self.given.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_one_attempt_go_out_at_once_and_the_rest_at_the_end() {
        let mut text = ReplyText::default();
        assert_eq!((text.push((1, 1), "Hel"), text.push((1, 1), "lo")), ("Hel".to_owned(), "lo".to_owned()));
        assert_eq!(text.finish("Hello there"), " there");
        assert_eq!(ReplyText::default().finish("all"), "all");
    }

    #[test]
    fn later_attempt_repeats_nothing_that_went_out() {
        let mut text = ReplyText::default();
        text.push((1, 1), "The answer is");
        assert_eq!(text.push((1, 2), "The "), "");
        assert_eq!(text.push((1, 2), "answer is 4"), " 4");
        assert_eq!(text.push((1, 1), " late"), "", "a chunk of an earlier attempt");
        assert_eq!(text.finish("The answer is 42"), "2");
    }

    #[test]
    fn text_so_far_after_a_lost_connection_repeats_nothing() {
        let mut text = ReplyText::default();
        text.push((1, 1), "The answer");
        text.restart();
        assert_eq!(text.push((1, 1), "The answer is"), " is");
        assert_eq!(text.push((1, 1), " 4"), " 4");
        text.restart();
        assert_eq!(text.push((1, 1), "2"), "", "without the text so far, the rest comes with the whole reply");
        assert_eq!(text.finish("The answer is 42"), "2");
    }

    #[test]
    fn reply_that_differs_from_what_went_out_is_a_paragraph_of_its_own() {
        let mut text = ReplyText::default();
        text.push((1, 1), "I think");
        assert_eq!(text.push((2, 1), "No"), "");
        assert_eq!(text.finish("No."), "\n\nNo.");
    }

    #[test]
    fn cut_white_space_is_not_a_difference() {
        let mut text = ReplyText::default();
        text.push((1, 1), "Done.\n\n");
        assert_eq!(text.finish("Done."), "");
    }
}
