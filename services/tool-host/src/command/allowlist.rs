//! The allowlist of commands: by the name of the program, and by its arguments where the configuration restricts them.

use std::path::{Path, PathBuf};

use ailoop_tool::ToolError;
use regex::{Regex, RegexBuilder};

use super::config::{AllowedProgram, CommandConfig, setting};
use crate::error::HostError;

/// Arguments of one command.
const ARGUMENTS_MAX: usize = 256;
/// Bytes of one command's arguments together.
const ARGUMENTS_BYTES_MAX: usize = 96 << 10;
/// Bytes of a compiled pattern.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// The permitted programs, and the directories in which they are looked up.
#[derive(Debug)]
pub(super) struct Allowlist {
    rules: Vec<ProgramRule>,
    path: Vec<PathBuf>,
}

#[derive(Debug)]
struct ProgramRule {
    program: String,
    /// `None`: any arguments are permitted.
    arguments: Option<Vec<Regex>>,
}

impl Allowlist {
    pub(super) fn new(config: &CommandConfig) -> Result<Self, HostError> {
        let rules = config.allow.iter().map(ProgramRule::new).collect::<Result<_, _>>()?;
        if let Some(path) = config.path.iter().find(|path| !path.is_absolute()) {
            return Err(setting("path", format!("{} does not begin with /", path.display())));
        }
        Ok(Self { rules, path: config.path.clone() })
    }

    /// The names of the permitted programs, one for each rule.
    pub(super) fn programs(&self) -> Vec<&str> {
        self.rules.iter().map(|rule| rule.program.as_str()).collect()
    }

    /// Finds the file of the program, if the command is permitted.
    pub(super) fn resolve(&self, command: &[String]) -> Result<PathBuf, ToolError> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(ToolError::new("the command is empty: give the program and its arguments"));
        };
        if arguments.len() > ARGUMENTS_MAX || command.iter().map(String::len).sum::<usize>() > ARGUMENTS_BYTES_MAX {
            let text =
                format!("over {ARGUMENTS_MAX} arguments, or over {ARGUMENTS_BYTES_MAX} bytes of them, are refused");
            return Err(ToolError::new(text));
        }
        if command.iter().any(|text| text.contains('\0')) {
            return Err(ToolError::new("an argument with a NUL in it is refused"));
        }
        let mut rules = self.rules.iter().filter(|rule| rule.program == *program).peekable();
        if rules.peek().is_none() {
            let names = self.programs().join(", ");
            return Err(ToolError::new(format!(
                "{program:?} may not be run. These programs may, by name alone: {names}"
            )));
        }
        if !rules.any(|rule| rule.is_match(arguments)) {
            return Err(ToolError::new(format!("{program} may not be run with these arguments")));
        }
        let found = self.path.iter().map(|dir| dir.join(program)).find(|file| is_program(file));
        found.ok_or_else(|| ToolError::new(format!("{program} is allowed, but not installed here")))
    }
}

impl ProgramRule {
    fn new(allowed: &AllowedProgram) -> Result<Self, HostError> {
        let (program, arguments) = match allowed {
            AllowedProgram::AnyArguments(program) => (program, None),
            AllowedProgram::MatchingArguments(allowed) => (&allowed.program, Some(&allowed.args)),
        };
        if program.is_empty() || program.contains(['/', '\0']) || program == "." || program == ".." {
            return Err(setting("allow", format!("{program:?} is not the name of a program")));
        }
        let compile = |text: &String| {
            let whole = format!("^(?:{text})$");
            // The pattern is compiled alone first, since `a)|(b` would leave the group.
            Regex::new(text)
                .and_then(|_| RegexBuilder::new(&whole).size_limit(REGEX_BYTES_MAX).build())
                .map_err(|error| setting("allow", format!("the pattern {text:?} of {program}: {error}")))
        };
        let arguments = arguments.map(|texts| texts.iter().map(compile).collect::<Result<_, _>>()).transpose()?;
        Ok(Self { program: program.clone(), arguments })
    }

    fn is_match(&self, arguments: &[String]) -> bool {
        let Some(patterns) = &self.arguments else { return true };
        // `$` matches at the very end only; in other dialects it also matches before a line feed there.
        arguments.iter().all(|argument| patterns.iter().any(|pattern| pattern.is_match(argument)))
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn config(allow: &str, path: &Path) -> CommandConfig {
        let path = path.display();
        serde_json::from_str(&format!(r#"{{"allow": {allow}, "cwd": "/", "path": ["{path}"]}}"#)).unwrap()
    }

    fn resolve(allow: &Allowlist, command: &[&str]) -> String {
        let command: Vec<String> = command.iter().map(|text| (*text).to_owned()).collect();
        match allow.resolve(&command) {
            Ok(file) => file.file_name().unwrap().to_string_lossy().into_owned(),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn command_name_and_arguments_must_match_a_rule() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("git", 0o755), ("cat", 0o755), ("plain", 0o644), ("rm", 0o755)] {
            std::fs::write(dir.path().join(name), "").unwrap();
            std::fs::set_permissions(dir.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        let list = r#"["cat", "plain", "dir", {"program": "git", "args": ["status|log", "-[a-z]", "--since=\\d+"]},
            {"program": "git", "args": ["diff"]}]"#;
        let allow = Allowlist::new(&config(list, dir.path())).unwrap();
        let absolute = dir.path().join("cat").display().to_string();
        for (command, expect) in [
            (&["cat"][..], "cat"),
            (&["cat", "../x", "/etc/passwd"], "cat"),
            (&["git", "status", "-s"], "git"),
            (&["git", "log", "--since=2020"], "git"),
            (&["git", "diff"], "git"),
            (&["git"], "git"),
            (&["git", "diff", "-s"], "may not be run with these arguments"),
            (&["git", "push"], "may not be run with these arguments"),
            (&["git", "status\n"], "may not be run with these arguments"),
            (&["git", "xstatus"], "may not be run with these arguments"),
            (&["git", "statusx"], "may not be run with these arguments"),
            (&["git", ""], "may not be run with these arguments"),
            (&["rm", "-rf", "/"], "\"rm\" may not be run"),
            (&["./cat"], "\"./cat\" may not be run"),
            (&["/bin/cat"], "may not be run"),
            (&[&absolute], "may not be run"),
            (&["../cat"], "may not be run"),
            (&["CAT"], "may not be run"),
            (&["cat "], "may not be run"),
            (&["cat; rm"], "may not be run"),
            (&[""], "may not be run"),
            (&[], "the command is empty"),
            (&["plain"], "not installed here"),
            (&["dir"], "not installed here"),
            (&["cat", "a\0b"], "a NUL in it"),
            (&["cat", &"x".repeat(100_000)], "are refused"),
        ] {
            let found = resolve(&allow, command);
            assert!(found == expect || found.contains(expect) && expect.contains(' '), "{command:?}: {found}");
        }
        let many = vec!["cat"; 300];
        assert!(resolve(&allow, &many).contains("are refused"));
    }

    #[test]
    fn allowlist_empty_permits_nothing_and_invalid_is_refused() {
        let none = Allowlist::new(&config("[]", Path::new("/bin"))).unwrap();
        assert!(resolve(&none, &["true"]).contains("may not be run"));
        for bad in [
            r#"["/bin/cat"]"#,
            r#"["./cat"]"#,
            r#"[""]"#,
            r#"[".."]"#,
            r#"[{"program": "a/b", "args": []}]"#,
            r#"[{"program": "git", "args": ["("]}]"#,
            r#"[{"program": "git", "args": ["a)|(b"]}]"#,
        ] {
            assert!(Allowlist::new(&config(bad, Path::new("/bin"))).is_err(), "{bad}");
        }
        assert!(Allowlist::new(&config("[]", Path::new("bin"))).is_err());
    }
}
