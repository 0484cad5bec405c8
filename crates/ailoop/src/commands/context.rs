//! `ailoop context`: the fleets that a person works with, by name.

use contract::ErrorCode;
use fleet_connection::client::EdgeTarget;
use fleet_connection::contexts::{Context, Contexts};
use serde_json::json;
use terminal::failure::{CommandFailure, Exit};
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use crate::args::{ContextCommand, ContextSetArgs, OutputArgs};
use crate::output::{finish, print_table};

pub(super) fn run(command: &ContextCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        ContextCommand::List { json } => list(*json, terminal),
        ContextCommand::Set(args) => set(args, terminal),
        ContextCommand::Use { name } => {
            let mut contexts = Contexts::read()?;
            let url = contexts.find(name)?.url.clone();
            contexts.current = Some(name.clone());
            contexts.write()?;
            terminal.note(Style::Good, &format!("commands without a fleet of their own now go to {name}: {url}"));
            Ok(Exit::Done)
        }
        ContextCommand::Rm { name } => {
            let mut contexts = Contexts::read()?;
            contexts.find(name)?;
            contexts.contexts.remove(name);
            contexts.current = contexts.current.filter(|current| current != name);
            contexts.write()?;
            terminal.note(Style::Good, &format!("context {name} is removed"));
            Ok(Exit::Done)
        }
    }
}

fn list(as_json: bool, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let contexts = Contexts::read()?;
    if as_json {
        return Ok(finish(terminal.print_data(&format!("{}\n", json!(contexts)))));
    }
    if contexts.contexts.is_empty() {
        terminal.note(Style::Plain, "there is no context; `ailoop context set NAME --url URL` adds one");
        return Ok(Exit::Done);
    }
    let row = |(name, context): (&String, &Context)| {
        let mark = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
        let token = match (&context.token_file, &context.token_env) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(name)) => format!("${name}"),
            (None, None) => String::new(),
        };
        vec![mark.to_owned(), name.clone(), context.url.clone(), token]
    };
    let columns = [
        TableColumn::name(""),
        TableColumn::name("CONTEXT"),
        TableColumn::name("URL"),
        TableColumn::text("TOKEN").optional(1),
    ];
    let table = Table::new(&columns).with_rows(contexts.contexts.iter().map(row));
    Ok(finish(print_table(&table, &OutputArgs::default(), terminal)))
}

fn set(args: &ContextSetArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let ContextSetArgs { name, url, token_file, token_env, ca_file } = args;
    if name.is_empty() {
        return Err(CommandFailure::usage(ErrorCode::BadRequest, "the name of a context must not be empty"));
    }
    EdgeTarget::check_url(url)?;
    // A relative path would depend on where the next command runs.
    let absolute = |path: &std::path::PathBuf| {
        std::path::absolute(path)
            .map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, format!("{}: {error}", path.display())))
    };
    let context = Context {
        url: url.clone(),
        token_file: token_file.as_ref().map(absolute).transpose()?,
        token_env: token_env.clone(),
        ca_file: ca_file.as_ref().map(absolute).transpose()?,
    };
    // What is missing is reported now, and not by the first command.
    context.token()?;
    let mut contexts = Contexts::read()?;
    let is_first = contexts.contexts.is_empty();
    contexts.contexts.insert(name.clone(), context);
    if is_first {
        contexts.current = Some(name.clone());
    }
    contexts.write()?;
    let next = if contexts.current.as_ref() == Some(name) {
        "it is the current one"
    } else {
        "`ailoop context use` makes it the current one"
    };
    terminal.note(Style::Good, &format!("context {name} is stored; {next}"));
    Ok(Exit::Done)
}
