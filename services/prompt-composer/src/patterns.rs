//! Continuation patterns: checked when they are loaded, so that the loop meets only good ones.

use regex::RegexBuilder;

/// Bytes of one compiled pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Says why a pattern cannot be used, and at which of its characters.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    let Err(error) = RegexBuilder::new(pattern).case_insensitive(true).size_limit(COMPILED_BYTES_MAX).build() else {
        return Ok(());
    };
    let shown: String = pattern.chars().take(80).collect();
    let text = error.to_string();
    // The parser draws a caret below the pattern, both indented by four blanks.
    let caret = text.lines().find_map(|line| line.strip_prefix("    ").filter(|line| line.trim_end().ends_with('^')));
    let place = caret.and_then(|line| line.find('^')).map(|at| format!(" at its character {}", at + 1));
    let reason = text.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(&text);
    Err(format!("pattern {shown:?} cannot be used: {reason}{}", place.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows() {
        let check = |pattern: &str, expect: &str| assert_eq!(super::check(pattern).err().unwrap_or_default(), expect);
        check("now I'll", "");
        check("let me.*next", "");
        check("done (", "pattern \"done (\" cannot be used: unclosed group at its character 6");
        check(
            "a(?=b)",
            "pattern \"a(?=b)\" cannot be used: look-around, including look-ahead and look-behind, is not supported at its character 2",
        );
        check(
            "[z-a]",
            "pattern \"[z-a]\" cannot be used: invalid character class range, the start must be <= the end at its character 2",
        );
        check(
            r"(\w{1,1000}){1,1000}",
            r#"pattern "(\\w{1,1000}){1,1000}" cannot be used: Compiled regex exceeds size limit of 1048576 bytes."#,
        );
    }
}
