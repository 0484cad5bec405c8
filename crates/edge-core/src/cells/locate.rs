//! Finds the cell of a session.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Head, Read};
use contract::subject::SessionKey;
use contract::{CellName, ErrorCode, SessionId};
use futures::future::join_all;

use super::cell::Cell;
use super::link::CellLink;
use super::{Cells, missing_error};
use crate::api_error::{ApiError, MOVE_RETRY_AFTER};

/// Longest look for a session in one cell.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Result of a search for a session in one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Look {
    /// The log of the session.
    Log,
    /// A record that the session is, or will be, in another cell.
    MovedTo(CellName),
    Nothing,
}

/// Result of a search for a session in all cells.
enum Located {
    /// Its log is in this cell, or it was there before it was erased.
    At(Arc<Cell>),
    /// No cell that can be reached has it.
    Nowhere { missing: Vec<CellName> },
}

impl Cells {
    /// Returns the cell of a session that is there, or the home of its id if no cell has it. A session that may be in a
    /// cell that cannot be reached is an error that names the cell.
    pub(crate) async fn of_session(&self, key: &SessionKey) -> Result<Arc<Cell>, ApiError> {
        let ranked = self.rank(key);
        if let [only] = ranked[..] {
            return self.inner.links[only].get().cloned();
        }
        match self.locate(key, &ranked).await? {
            Located::At(cell) => Ok(cell),
            Located::Nowhere { missing } if missing.is_empty() => self.home(key, &ranked),
            Located::Nowhere { missing } => Err(missing_error(&missing)),
        }
    }

    /// Returns the cell of a session that is there, or where it is started. The loop reads a session that is resumed from
    /// its own cell, so one that resumes `source` is started there. A cell that cannot be reached, and that is not the
    /// home of the id, stops no session from starting.
    pub(crate) async fn of_start(&self, key: &SessionKey, source: Option<&SessionId>) -> Result<Arc<Cell>, ApiError> {
        let ranked = self.rank(key);
        if let [only] = ranked[..] {
            return self.inner.links[only].get().cloned();
        }
        match (self.locate(key, &ranked).await?, source) {
            (Located::At(cell), _) => Ok(cell),
            (Located::Nowhere { .. }, None) => self.home(key, &ranked),
            (Located::Nowhere { .. }, Some(source)) => self.of_source(key, source).await,
        }
    }

    /// As [`Cells::of_start`], for an id that no session has: nothing is looked for.
    pub(crate) async fn of_new(&self, key: &SessionKey, source: Option<&SessionId>) -> Result<Arc<Cell>, ApiError> {
        let ranked = self.rank(key);
        match source {
            Some(source) if ranked.len() > 1 => self.of_source(key, source).await,
            Some(_) | None => self.inner.links[ranked[0]].get().cloned(),
        }
    }

    /// Whether the home of an id can be reached, so that a session can be started under it.
    pub(crate) fn can_start(&self, key: &SessionKey) -> bool {
        !self.are_several() || self.inner.links[self.rank(key)[0]].get().is_ok()
    }

    /// Returns the cell of the session that a new one resumes, and remembers it for the new one.
    async fn of_source(&self, key: &SessionKey, source: &SessionId) -> Result<Arc<Cell>, ApiError> {
        let source = SessionKey { tenant: key.tenant.clone(), session: source.clone() };
        let cell = Box::pin(self.of_session(&source)).await?;
        if let Some(index) = self.inner.links.iter().position(|link| is_of(link, &cell)) {
            self.inner.placements.put(key, index);
        }
        Ok(cell)
    }

    /// Indices of the cells that a session may be in, the home of its id first. A tenant has at least one. Where there is
    /// only one cell, no id is hashed.
    fn rank(&self, key: &SessionKey) -> Vec<usize> {
        if !self.are_several() {
            return vec![0];
        }
        let names = self.inner.table.rank(key);
        let index = |name: &CellName| self.inner.links.iter().position(|link| link.name == *name);
        names.into_iter().filter_map(index).collect()
    }

    /// Returns where an id is that no cell has: a session may have been started a moment ago, and not be handled yet.
    fn home(&self, key: &SessionKey, ranked: &[usize]) -> Result<Arc<Cell>, ApiError> {
        let index = self.inner.placements.get(key).unwrap_or(ranked[0]);
        self.inner.links[index].get().cloned()
    }

    /// Looks in the cell in which the session was found last, else in the home of its id, and then in all others at once.
    async fn locate(&self, key: &SessionKey, ranked: &[usize]) -> Result<Located, ApiError> {
        let first = self.inner.placements.get(key).unwrap_or(ranked[0]);
        let mut missing = Vec::new();
        match self.look(first, key).await {
            Ok(Look::Log) => return self.at(key, first, ranked[0]),
            Ok(Look::MovedTo(to)) => return self.follow(key, first, to, ranked).await,
            Ok(Look::Nothing) => {}
            Err(()) => missing.push(self.inner.links[first].name.clone()),
        }
        let others: Vec<usize> = ranked.iter().copied().filter(|index| *index != first).collect();
        let looks = join_all(others.iter().map(|index| self.look(*index, key))).await;
        let mut moved = None;
        for (index, look) in others.into_iter().zip(looks) {
            match look {
                Ok(Look::Log) => return self.at(key, index, ranked[0]),
                Ok(Look::MovedTo(to)) => moved = moved.or(Some((index, to))),
                Ok(Look::Nothing) => {}
                Err(()) => missing.push(self.inner.links[index].name.clone()),
            }
        }
        match moved {
            Some((index, to)) => self.follow(key, index, to, ranked).await,
            None => Ok(Located::Nowhere { missing }),
        }
    }

    /// Follows what the log of a moved session says, from cell to cell.
    async fn follow(&self, key: &SessionKey, from: usize, to: CellName, ranked: &[usize]) -> Result<Located, ApiError> {
        let (mut seen, mut to) = (vec![from], to);
        loop {
            let Some(index) = self.inner.links.iter().position(|link| link.name == to) else {
                let message = format!("session {} was moved to cell {to}, which edge.cells does not have", key.session);
                return Err(ApiError::new(ErrorCode::BadConfig, message));
            };
            if seen.contains(&index) {
                // Its new cell expects it, and does not have it yet: `ailoop move` was interrupted, or runs.
                let message = format!("session {} is being moved between cells: try again", key.session);
                return Err(ApiError::new(ErrorCode::SessionMoved, message).with_retry_after(MOVE_RETRY_AFTER));
            }
            match self.look(index, key).await {
                // A session that is nowhere any more was erased, or has expired. Its id is still that of this cell.
                Ok(Look::Log | Look::Nothing) => return self.at(key, index, ranked[0]),
                Ok(Look::MovedTo(next)) => to = next,
                Err(()) => return Err(missing_error(&[to])),
            }
            seen.push(index);
        }
    }

    fn at(&self, key: &SessionKey, index: usize, home: usize) -> Result<Located, ApiError> {
        if index != home || self.inner.placements.get(key).is_some() {
            self.inner.placements.put(key, index);
        }
        self.inner.links[index].get().cloned().map(Located::At)
    }

    /// Looks for a session in one cell; an error if the cell does not answer.
    async fn look(&self, index: usize, key: &SessionKey) -> Result<Look, ()> {
        let link = &self.inner.links[index];
        let cell = link.get().map_err(drop)?;
        match tokio::time::timeout(LOOK_MAX, head_of(cell, key)).await {
            Ok(Ok(None)) => Ok(Look::Nothing),
            Ok(Ok(Some(head))) => Ok(head.meta.moved.map_or(Look::Log, Look::MovedTo)),
            Ok(Err(error)) => {
                tracing::warn!(cell = %link.name, session = %key, %error, "the cell does not say whether it has a session");
                Err(())
            }
            Err(_) => Err(()),
        }
    }
}

/// Only the leader is believed if there is no session, or if it was moved.
async fn head_of(cell: &Cell, key: &SessionKey) -> Result<Option<Head>, BusError> {
    match cell.bus.head(key, Read::Any).await? {
        Some(head) if head.meta.moved.is_none() => Ok(Some(head)),
        Some(_) | None => cell.bus.head(key, Read::Leader).await,
    }
}

fn is_of(link: &CellLink, cell: &Arc<Cell>) -> bool {
    link.opened().is_some_and(|opened| Arc::ptr_eq(opened, cell))
}
