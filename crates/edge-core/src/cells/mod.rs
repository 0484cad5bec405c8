//! The choice of cell: the one place that knows that there may be several.
//!
//! A session is in the cell in which it was started, and nothing on the bus names a cell. A new session goes to the home
//! of its id, which a hash chooses among the cells of its tenant. A session is elsewhere if it was moved, if the table has
//! changed since, or if another session began it: a child, or one that resumes another. Such a session is looked for.

mod cell;
mod link;
mod locate;
mod placements;

use std::sync::Arc;
use std::time::Duration;

use contract::{CellName, ErrorCode, TenantId};
use futures::FutureExt;
use futures::future::{join_all, select_all};
use service::health::Readiness;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::config::{CellTable, EdgeStartError};
pub(crate) use cell::Cell;
pub use cell::CellOpener;
pub use link::CellConnection;
use link::{CellLink, FirstTry, unreachable_error};
use placements::Placements;

/// Longest wait of an edge that starts for all of its cells.
const FIRST_TRY_MAX: Duration = Duration::from_secs(10);
/// Longest wait of an edge that starts for the first of its cells.
const START_MAX: Duration = Duration::from_mins(5);
/// Pause between two looks at which cells can be reached, for the readiness.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the part of an answer that one of several cells has.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The cells of an edge. Clones share them.
#[derive(Debug, Clone)]
pub struct Cells {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    links: Vec<Arc<CellLink>>,
    table: CellTable,
    placements: Placements,
}

/// The cells of a tenant that can be reached, and the names of the others.
#[derive(Debug)]
pub(crate) struct TenantCells {
    pub(crate) reached: Vec<(CellName, Arc<Cell>)>,
    pub(crate) missing: Vec<CellName>,
}

/// Answers of the cells of a tenant.
#[derive(Debug)]
pub(crate) struct CellAnswers<T> {
    /// In the order of the table.
    pub(crate) answers: Vec<(CellName, T)>,
    /// The cells that did not answer.
    pub(crate) missing: Vec<CellName>,
}

impl Cells {
    /// The only cell, without a table.
    pub fn single(cell: Cell) -> Self {
        let name = CellName::default();
        let (table, link) = (CellTable::single(name.clone()), CellLink::of_open(name, Arc::new(cell)));
        Self { inner: Arc::new(Inner { links: vec![Arc::new(link)], table, placements: Placements::default() }) }
    }

    /// Connects to the cells of a table in the tasks of `opener`. Returns once every cell was tried and one of them is
    /// there.
    pub async fn connect(
        table: CellTable,
        connections: Vec<CellConnection>,
        opener: &CellOpener,
    ) -> Result<Self, EdgeStartError> {
        let (mut links, mut firsts) = (Vec::new(), Vec::new());
        for connection in connections {
            let link = Arc::new(CellLink::new(connection.name.clone(), connection.is_owned));
            let (tell, first) = watch::channel(FirstTry::Running);
            let (runner, opener) = (link.clone(), opener.clone());
            let tasks = opener.tasks.clone();
            tasks.spawn_until_end("cell", async move { runner.run(connection, &opener, tell).await });
            links.push(link);
            firsts.push(first);
        }
        let started = Instant::now();
        let tried =
            firsts.iter_mut().map(async |first| first.wait_for(|first| *first != FirstTry::Running).await.is_ok());
        // A cell that does not answer must not hold up the others.
        if tokio::time::timeout(FIRST_TRY_MAX, join_all(tried)).await.is_err() {
            tracing::warn!("a cell does not answer yet: the edge starts without it");
        }
        let reached = firsts.iter_mut().map(|first| first.wait_for(|first| *first == FirstTry::Connected).boxed());
        if tokio::time::timeout_at(started + START_MAX, select_all(reached)).await.is_err() {
            let first = links.first().map(|link| unreachable_error(&link.name, link.failure().as_deref()).message);
            return Err(EdgeStartError::NoCell(first.unwrap_or_default()));
        }
        let cells = Self { inner: Arc::new(Inner { links, table, placements: Placements::default() }) };
        let (watched, reached) = (cells.clone(), opener.reached.clone());
        cells.note_reached(&reached);
        opener.tasks.spawn_until_end("reached cells", async move {
            loop {
                tokio::time::sleep(WATCH_INTERVAL).await;
                watched.note_reached(&reached);
            }
        });
        Ok(cells)
    }

    /// An edge with one cell less is ready: the sessions of the others go on.
    fn note_reached(&self, reached: &Readiness) {
        let missing: Vec<String> = self.missing().iter().map(ToString::to_string).collect();
        reached.set(missing.len() < self.inner.links.len());
        let warning = format!("no connection to {}", missing.join(", "));
        reached.warn((!missing.is_empty()).then_some(warning.as_str()));
    }

    /// Whether there are several cells, so that answers may lack one.
    pub(crate) fn are_several(&self) -> bool {
        self.inner.links.len() > 1
    }

    /// The cells of a tenant.
    pub(crate) fn of_tenant(&self, tenant: &TenantId) -> TenantCells {
        let mut found = TenantCells { reached: Vec::new(), missing: Vec::new() };
        for name in self.inner.table.cells_of(tenant) {
            match self.link(name).and_then(|link| link.get().ok()) {
                Some(cell) => found.reached.push((name.clone(), cell.clone())),
                None => found.missing.push(name.clone()),
            }
        }
        found
    }

    /// A cell of a tenant, for what all its cells have alike: the first one that can be reached.
    pub(crate) fn any_of(&self, tenant: &TenantId) -> Result<Arc<Cell>, ApiError> {
        if let Some(only) = self.only() {
            return only.get().cloned();
        }
        let TenantCells { reached, missing } = self.of_tenant(tenant);
        match reached.into_iter().next() {
            Some((_, cell)) => Ok(cell),
            None => Err(missing_error(&missing)),
        }
    }

    /// Asks every cell of a tenant at once. A cell that cannot be reached, or that does not answer in time, is missing.
    /// It is an error if all are, and if a cell refuses the request.
    pub(crate) async fn ask_all<T, F>(
        &self,
        tenant: &TenantId,
        ask: impl Fn(Arc<Cell>) -> F,
    ) -> Result<CellAnswers<T>, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        if let Some(only) = self.only() {
            let answer = ask(only.get()?.clone()).await?;
            return Ok(CellAnswers { answers: vec![(only.name.clone(), answer)], missing: Vec::new() });
        }
        let TenantCells { reached, mut missing } = self.of_tenant(tenant);
        let asked = reached.into_iter().map(|(name, cell)| {
            let answer = tokio::time::timeout(ANSWER_MAX, ask(cell));
            async move { (name, answer.await) }
        });
        let mut answers = Vec::new();
        for (name, answer) in join_all(asked).await {
            match answer {
                Ok(Ok(answer)) => answers.push((name, answer)),
                Ok(Err(error)) if error.code != ErrorCode::Unavailable => return Err(error),
                Ok(Err(error)) => {
                    tracing::warn!(cell = %name, %error, "the answer of a cell is left out");
                    missing.push(name);
                }
                Err(_) => missing.push(name),
            }
        }
        if answers.is_empty() { Err(missing_error(&missing)) } else { Ok(CellAnswers { answers, missing }) }
    }

    /// Returns the cell to which the mail of people goes: the first one of the tenant, always, so that a mail that is sent
    /// again is the same mail.
    pub(crate) fn of_mail(&self, tenant: &TenantId) -> Result<Arc<Cell>, ApiError> {
        let first = self.inner.table.cells_of(tenant).first().and_then(|name| self.link(name));
        first.ok_or_else(|| missing_error(&[]))?.get().cloned()
    }

    /// The cells that were reached at some time, also those that cannot be reached now.
    pub(crate) fn opened(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.inner.links.iter().filter_map(|link| link.opened())
    }

    /// The cells that can be reached now.
    pub(crate) fn reached(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.inner.links.iter().filter_map(|link| link.get().ok())
    }

    /// The names of the cells that cannot be reached now.
    pub(crate) fn missing(&self) -> Vec<CellName> {
        self.inner.links.iter().filter(|link| !link.is_reachable()).map(|link| link.name.clone()).collect()
    }

    /// Closes the buses that the edge connected itself.
    pub async fn close(&self) {
        let owned = self.inner.links.iter().filter(|link| link.is_owned).filter_map(|link| link.opened());
        join_all(owned.map(|cell| cell.bus.close())).await;
    }

    /// The only cell, of which nothing needs to be asked. Every request goes this way where there is no table.
    fn only(&self) -> Option<&Arc<CellLink>> {
        match &self.inner.links[..] {
            [only] => Some(only),
            [] | [_, ..] => None,
        }
    }

    fn link(&self, name: &CellName) -> Option<&Arc<CellLink>> {
        self.inner.links.iter().find(|link| link.name == *name)
    }
}

/// Error for a request that none of these cells can answer.
pub(crate) fn missing_error(missing: &[CellName]) -> ApiError {
    if let [name] = missing {
        return unreachable_error(name, None);
    }
    let names: Vec<&str> = missing.iter().map(CellName::as_str).collect();
    ApiError::unavailable(format!("the cells {} cannot be reached now: try again", names.join(", ")))
}
