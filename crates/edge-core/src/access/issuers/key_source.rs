//! The current keys of an issuer. They are read again and again; while that fails, the last ones stay.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use contract::backoff::Backoff;
use service::contents;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::jwks::KeySet;
use super::key_fetch::{DOCUMENT_BYTES_MAX, KeyFetcher};
use crate::config::issuer::{IssuerConfig, field_of, parse_url};

/// Pause between two fetches.
const FETCH_EVERY: Duration = Duration::from_mins(5);
/// Pauses after a fetch that failed.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
/// Shortest time between two fetches that requests cause: forged tokens must not become a flood at the issuer.
const ON_DEMAND_EVERY: Duration = Duration::from_secs(10);
/// Longest wait of a request for a fetch: one request for the discovery document, and one for the keys.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Source of the keys of an issuer, with the keys that were read last.
#[derive(Debug)]
pub(super) struct KeySource {
    place: Place,
    /// A lock since it is held for the copy of a pointer only. Nothing before the first fetch.
    keys: RwLock<Option<Arc<KeySet>>>,
}

#[derive(Debug)]
enum Place {
    Remote(Remote),
    File { field: String, path: PathBuf },
}

/// The task that follows the keys fetches them, so that a client that disconnects cannot end a fetch.
#[derive(Debug)]
struct Remote {
    /// A lock of the task only.
    fetcher: tokio::sync::Mutex<KeyFetcher>,
    on_demand: Mutex<OnDemand>,
    wanted: Notify,
    /// Whether a fetch is under way or about to begin, as the first one is.
    is_fetching: watch::Sender<bool>,
}

/// The limit of fetches that requests cause.
#[derive(Debug, Default)]
struct OnDemand {
    last: Option<Instant>,
}

impl OnDemand {
    /// Whether a request may cause a fetch now, which is counted.
    fn take(&mut self) -> bool {
        let now = Instant::now();
        let is_early = self.last.is_some_and(|last| now.duration_since(last) < ON_DEMAND_EVERY);
        if !is_early {
            self.last = Some(now);
        }
        !is_early
    }
}

impl KeySource {
    /// Reads the keys of a file now; others come with the first fetch.
    pub(super) fn new(index: usize, config: &IssuerConfig) -> Result<Self, String> {
        if let Some(path) = &config.jwks_file {
            let field = field_of(index, "jwks_file");
            let keys = KeySet::parse(&read_file(&field, path)?).map_err(|why| file_error(&field, path, &why))?;
            let place = Place::File { field, path: path.clone() };
            return Ok(Self { place, keys: RwLock::new(Some(Arc::new(keys))) });
        }
        let url = config.jwks_url.as_deref().map(parse_url).transpose();
        let url = url.map_err(|why| format!("{} {why}", field_of(index, "jwks_url")))?;
        let fetcher = KeyFetcher::new(&config.issuer, url).map_err(|why| format!("the HTTP client: {why}"))?;
        let place = Place::Remote(Remote {
            fetcher: tokio::sync::Mutex::new(fetcher),
            on_demand: Mutex::default(),
            wanted: Notify::new(),
            is_fetching: watch::Sender::new(true),
        });
        Ok(Self { place, keys: RwLock::default() })
    }

    /// Returns the current keys.
    pub(super) fn get(&self) -> Option<Arc<KeySet>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the keys fetched, since those that a request saw do not do. Returns what is known afterwards: the same keys
    /// where a request caused a fetch a short time ago.
    pub(super) async fn renew(&self, seen: Option<&Arc<KeySet>>) -> Option<Arc<KeySet>> {
        let Place::Remote(remote) = &self.place else { return self.get() };
        let mut is_fetching = remote.is_fetching.subscribe();
        let current = self.get();
        if current.as_ref().map(Arc::as_ptr) != seen.map(Arc::as_ptr) {
            return current;
        }
        if !*is_fetching.borrow() {
            if !remote.on_demand.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return current;
            }
            remote.is_fetching.send_replace(true);
            remote.wanted.notify_one();
        }
        // Where it takes too long, the request is refused with what is known.
        let _ = tokio::time::timeout(WAIT_MAX, is_fetching.wait_for(|is_fetching| !is_fetching)).await;
        self.get()
    }

    /// Reads the keys again and again, until the task ends. Each outcome is passed to `report`: the new keys, or why
    /// there are none.
    pub(super) async fn follow(&self, report: impl Fn(Result<Arc<KeySet>, String>)) {
        match &self.place {
            Place::Remote(remote) => self.follow_remote(remote, report).await,
            Place::File { field, path } => self.follow_file(field, path, report).await,
        }
    }

    async fn follow_remote(&self, remote: &Remote, report: impl Fn(Result<Arc<KeySet>, String>)) {
        let mut source = remote.fetcher.lock().await;
        let (mut failed, mut is_on_demand) = (0, false);
        loop {
            let fetched = source.fetch(!is_on_demand).await;
            let pause = if fetched.is_ok() { FETCH_EVERY } else { RETRY.pause(failed) };
            failed = if fetched.is_ok() { 0 } else { failed.saturating_add(1) };
            report(fetched.map(|fetched| self.set(fetched)));
            remote.is_fetching.send_replace(false);
            is_on_demand = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                () = remote.wanted.notified() => true,
            };
            remote.is_fetching.send_replace(true);
        }
    }

    async fn follow_file(&self, field: &str, path: &Path, report: impl Fn(Result<Arc<KeySet>, String>)) {
        let (name, place) = (field.to_owned(), path.to_owned());
        let take = |found: &Vec<u8>| -> Result<(), String> {
            self.set(KeySet::parse(found).map_err(|why| file_error(field, path, &why))?);
            Ok(())
        };
        let report = move |reason: Option<&str>| match (reason, self.get()) {
            (Some(why), _) => report(Err(why.to_owned())),
            (None, Some(keys)) => report(Ok(keys)),
            (None, None) => {}
        };
        contents::follow(move || read_file(&name, &place), take, report).await;
    }

    /// Takes over new keys. Those that did not change stay the same object.
    fn set(&self, keys: KeySet) -> Arc<KeySet> {
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(known) if **known == keys => known.clone(),
            Some(_) | None => current.insert(Arc::new(keys)).clone(),
        }
    }
}

fn read_file(field: &str, path: &Path) -> Result<Vec<u8>, String> {
    contents::read_at_most(path, DOCUMENT_BYTES_MAX).map_err(|why| file_error(field, path, &why))
}

fn file_error(field: &str, path: &Path, why: &str) -> String {
    format!("{field}: {}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_cause_one_fetch_in_ten_seconds() {
        let mut limit = OnDemand::default();
        let mut taken = 0;
        for _ in 0..300 {
            taken += u32::from(limit.take());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(taken, 3, "in 30 s");
    }
}
