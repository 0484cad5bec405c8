//! `ailoop api-key`: makes API keys for the edge. Only their hashes are stored.

use std::collections::BTreeSet;
use std::path::Path;

use configuration::TextFile;
use contract::ErrorCode;
use contract::tool::sha256_hex;
use edge::{KeyEntry, KeysFile, Scope};
use fleet_connection::private_file::replace_file;
use serde_json::{Value, json};
use service::clock::{Clock as _, SystemClock};
use terminal::failure::{CommandFailure, Exit};
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use crate::args::{ApiKeyCommand, ApiKeyNewArgs, OutputArgs};
use crate::output::{finish, print_table};

pub(super) fn run(command: &ApiKeyCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        ApiKeyCommand::New(args) => make_key(args, terminal),
        ApiKeyCommand::List { file, json } => list_keys(file, *json, terminal),
    }
}

fn make_key(args: &ApiKeyNewArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let key = configuration::api_key::generate_key();
    let entry = format_entry(args, &key);
    if let Some(file) = &args.file {
        add_entry(file, &entry)?;
        terminal.note(Style::Good, &format!("{} is in {}; edges take it within seconds", args.id, file.display()));
    } else {
        parse(&format!("keys:\n{entry}"), "the entry")?;
        terminal.note(Style::Plain, &format!("Add this below `keys:` in the file of edge.keys_file:\n{entry}"));
    }
    terminal.note(Style::Warn, "This is the only time that the key is shown:");
    Ok(finish(terminal.print_data(&format!("{key}\n"))))
}

/// Formats an entry as one line of YAML, whose values are JSON.
fn format_entry(args: &ApiKeyNewArgs, key: &str) -> String {
    let ApiKeyNewArgs { id, scopes, tenant, subject, agents, expires, requests_per_minute, file: _ } = args;
    let scopes: BTreeSet<Scope> = if scopes.is_empty() {
        [Scope::Run, Scope::Observe].into()
    } else {
        scopes.iter().map(|scope| (*scope).into()).collect()
    };
    let mut fields: Vec<(&str, Value)> =
        vec![("id", json!(id)), ("sha256", json!(sha256_hex(key.as_bytes()))), ("scopes", json!(scopes))];
    fields.extend(tenant.as_ref().map(|tenant| ("tenant", json!(tenant))));
    fields.extend(subject.as_ref().map(|subject| ("subject", json!(subject))));
    fields.extend((!agents.is_empty()).then(|| ("agents", json!(agents))));
    fields.extend(expires.map(|lifetime| ("expires", json!(SystemClock.now().after(lifetime)))));
    fields.extend(requests_per_minute.map(|limit| ("requests_per_minute", json!(limit))));
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("  - {{{}}}\n", fields.join(", "))
}

fn parse(text: &str, origin: &str) -> Result<KeysFile, CommandFailure> {
    let file = TextFile { origin: origin.to_owned(), text: text.to_owned() };
    KeysFile::parse(&file).map_err(|error| CommandFailure::new(ErrorCode::BadConfig, error.to_string()))
}

/// Adds an entry at the end of a file, which is replaced as a whole: an edge never reads half of it.
fn add_entry(path: &Path, entry: &str) -> Result<(), CommandFailure> {
    let failed =
        |error: std::io::Error| CommandFailure::new(ErrorCode::BadConfig, format!("{}: {error}", path.display()));
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let origin = path.display().to_string();
    let known = parse(&before, &origin)?.keys.len();
    let mut text = if before.trim().is_empty() { "keys:\n".to_owned() } else { before };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(entry);
    let is_added = match parse(&text, &origin) {
        Ok(parsed) => parsed.keys.len() == known + 1,
        Err(refused) if refused.to_string().contains("another key") => return Err(refused),
        Err(_) => false,
    };
    if !is_added {
        let message = format!("{} does not end with its list of keys", path.display());
        return Err(CommandFailure::new(ErrorCode::BadConfig, message)
            .help(format!("leave out --file, or add the entry by hand:\n{entry}")));
    }
    replace_file(path, text.as_bytes()).map_err(failed)
}

fn list_keys(path: &Path, as_json: bool, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CommandFailure::new(ErrorCode::BadConfig, format!("{}: {error}", path.display())))?;
    let file = parse(&text, &path.display().to_string())?;
    if as_json {
        let keys: Vec<Value> = file.keys.iter().map(to_json).collect();
        return Ok(finish(terminal.print_data(&format!("{}\n", json!({"keys": keys})))));
    }
    if file.keys.is_empty() {
        terminal.note(Style::Plain, "there is no key; `ailoop api-key new ID --file FILE` adds one");
        return Ok(Exit::Done);
    }
    let rows: Vec<_> = file.keys.iter().map(to_row).collect();
    let columns = [
        TableColumn::name("KEY"),
        TableColumn::name("SUBJECT").optional(2),
        TableColumn::name("TENANT").optional(1),
        TableColumn::text("SCOPES"),
        TableColumn::text("AGENTS").optional(4),
        TableColumn::name("EXPIRES").optional(3),
    ];
    Ok(finish(print_table(&Table::new(&columns).with_rows(rows), &OutputArgs::default(), terminal)))
}

fn to_json(entry: &KeyEntry) -> Value {
    json!({
        "id": entry.id, "subject": entry.subject, "tenant": entry.tenant, "scopes": entry.scopes,
        "agents": entry.agents, "expires": entry.expires, "requests_per_minute": entry.requests_per_minute,
    })
}

fn to_row(entry: &KeyEntry) -> Vec<String> {
    let scopes: Vec<&str> = entry.scopes.iter().map(|scope| scope.as_str()).collect();
    let agents: Option<Vec<&str>> =
        entry.agents.as_ref().map(|agents| agents.iter().map(contract::AgentId::as_str).collect());
    vec![
        entry.id.clone(),
        entry.subject.clone().unwrap_or_else(|| entry.id.clone()),
        entry.tenant.as_ref().map_or_else(|| "that of the edge".to_owned(), ToString::to_string),
        scopes.join(" "),
        agents.map_or_else(|| "all".to_owned(), |agents| agents.join(" ")),
        entry.expires.map_or_else(|| "never".to_owned(), |expires| expires.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(id: &str) -> ApiKeyNewArgs {
        ApiKeyNewArgs {
            id: id.to_owned(),
            scopes: Vec::new(),
            tenant: None,
            subject: Some("a: \"b\"".replace(' ', "")),
            agents: Vec::new(),
            expires: Some(std::time::Duration::from_hours(24)),
            requests_per_minute: None,
            file: None,
        }
    }

    #[test]
    fn added_entries_are_read_back_and_a_repeated_name_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys.yaml");
        for id in ["one", "two"] {
            add_entry(&file, &format_entry(&args(id), &configuration::api_key::generate_key())).unwrap();
        }
        let refused =
            add_entry(&file, &format_entry(&args("two"), &configuration::api_key::generate_key())).unwrap_err();
        assert!(refused.to_string().contains("same id"), "{refused}");
        let keys = parse(&std::fs::read_to_string(&file).unwrap(), "keys").unwrap().keys;
        let read: Vec<_> = keys.iter().map(|key| (key.id.as_str(), key.subject.as_deref())).collect();
        assert_eq!(read, [("one", Some("a:\"b\"")), ("two", Some("a:\"b\""))]);
        std::fs::write(&file, "keys: []\n").unwrap();
        assert!(add_entry(&file, &format_entry(&args("one"), &configuration::api_key::generate_key())).is_err());
    }
}
