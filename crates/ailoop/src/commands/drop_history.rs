//! `ailoop sessions drop-history`: removes the end of a log that has commits of two histories. It uses NATS directly,
//! like `ailoop sessions rm`.

use std::collections::BTreeSet;

use bus::Bus;
use bus::two_histories::{HistoryBreak, find_breaks};
use contract::ErrorCode;
use contract::commit::CommitMeta;
use contract::subject::SessionKey;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::{Style, Terminal};

use super::cells::nats_of_session;
use super::fleet_location::with_bus;
use super::selection::confirm;
use super::session_reference::parse_whole_id;
use crate::args::DropHistoryArgs;
use crate::compose::parse_tenant;
use crate::output::finish;

pub(super) async fn drop_history(args: &DropHistoryArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let key = SessionKey { tenant: parse_tenant(&args.tenant)?, session: parse_whole_id(&args.session)? };
    let nats = nats_of_session(&args.nats, &key).await?;
    with_bus(&nats, async |bus| drop_end(bus, &key, args, terminal).await).await
}

async fn drop_end(
    bus: &Bus,
    key: &SessionKey,
    args: &DropHistoryArgs,
    terminal: &Terminal,
) -> Result<Exit, CommandFailure> {
    let commits = bus.log_commits(key).await?;
    let breaks = find_breaks(&commits);
    for found in &breaks {
        terminal.note(Style::Warn, &found.to_string());
    }
    let dropped = select_dropped(key, &commits, &breaks, args.from)?;
    let Some((from, _)) = dropped.first() else {
        terminal.note(Style::Good, &format!("the log of session {} has one history", key.session));
        return Ok(Exit::Done);
    };
    let line = |(slot, meta): &(u64, CommitMeta)| {
        let CommitMeta { commit, prev, seq, time, .. } = meta;
        format!("slot {slot}\tcommit {commit}\tafter {prev}\tseq {seq}\t{time}\n")
    };
    if terminal.print_data(&dropped.iter().map(line).collect::<String>()).is_err() {
        return Ok(Exit::Done);
    }
    let count = format::plural(dropped.len() as u64, "commit");
    if !confirm(&format!("{count} will be removed from the log of session {}.", key.session), args.yes, terminal)? {
        return Ok(Exit::Failed);
    }
    let shown: BTreeSet<&str> = dropped.iter().map(|(_, meta)| meta.commit.as_str()).collect();
    let removed = bus.drop_from(key, *from, &shown).await?;
    if removed < dropped.len() {
        let message = format!("the log of session {} has changed: {removed} of {count} were removed", key.session);
        return Err(CommandFailure::new(ErrorCode::NotNow, message).help("repeat the command"));
    }
    Ok(finish(terminal.print_data(&format!("{}\t{count} removed\n", key.session))))
}

/// The commits to remove: those from slot `from` on, by default from the first break on.
fn select_dropped<'a>(
    key: &SessionKey,
    commits: &'a [(u64, CommitMeta)],
    breaks: &[HistoryBreak],
    from: Option<u64>,
) -> Result<&'a [(u64, CommitMeta)], CommandFailure> {
    let session = &key.session;
    let (Some((first, _)), Some((last, _))) = (commits.first(), commits.last()) else {
        return Err(CommandFailure::new(ErrorCode::UnknownSession, format!("there is no session {session}")));
    };
    let Some(from) = from.or(breaks.first().map(|found| found.slot)) else { return Ok(&[]) };
    let refused = |message: String| CommandFailure::usage(ErrorCode::BadRequest, message);
    if from > *last {
        return Err(refused(format!("the log of session {session} ends with slot {last}")));
    }
    if from <= *first {
        return Err(refused(format!("the log of session {session} begins with slot {first}: nothing would be left"))
            .help("`ailoop sessions rm` erases a session"));
    }
    Ok(&commits[commits.partition_point(|(slot, _)| *slot < from)..])
}

#[cfg(test)]
mod tests {
    use contract::{SessionId, TenantId};

    use super::*;

    #[test]
    fn commits_from_first_break_or_named_slot_are_selected() {
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let commit = |slot: u64, prev: &str| {
            let meta = serde_json::json!({
                "v": 1, "commit": format!("c{slot}"), "prev": prev, "fold": 1, "phase": "idle", "open": [],
                "control_seq": 0, "seq": 1, "time": "2024-01-15T10:30:45.123Z",
            });
            (slot, serde_json::from_value::<CommitMeta>(meta).unwrap())
        };
        let whole = [commit(1, "c0"), commit(2, "c1"), commit(3, "c2"), commit(4, "c3")];
        let split = [commit(1, "c0"), commit(2, "c1"), commit(3, "lost"), commit(4, "c3")];
        for (commits, from, expected) in [
            (&whole[..], None, Ok(&[][..])),
            (&whole, Some(4), Ok(&[4])),
            (&split, None, Ok(&[3, 4])),
            (&split, Some(2), Ok(&[2, 3, 4])),
            (&split, Some(1), Err("the log of session s begins with slot 1: nothing would be left")),
            (&split, Some(5), Err("the log of session s ends with slot 4")),
            (&[], None, Err("there is no session s")),
        ] {
            let selected = select_dropped(&key, commits, &find_breaks(commits), from);
            let slots = selected.as_ref().map(|commits| commits.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
            assert_eq!(slots.as_deref().map_err(|failure| failure.message()), expected, "{from:?}");
        }
    }
}
