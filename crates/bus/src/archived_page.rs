//! A page of the archive: what stands in its message.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use contract::Json;
use contract::commit::CommitHead;
use contract::limits::SLOTS_PER_PAGE;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::BusError;
use crate::json::{encode, parse};

/// Version of an archived page.
const VERSION: u32 = 2;

/// Most bytes of the commits of a page as JSON: nats-server takes messages of at most 1 MiB.
const COMMITS_BYTES_MAX: u64 = SLOTS_PER_PAGE << 20;

/// An archived page: the messages that were in the log, as they were, from the page's first slot on.
#[derive(Debug, Serialize, Deserialize)]
struct Page {
    meta: PageMeta,
    /// The commits as a JSON array, compressed by gzip, in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gzip: Option<String>,
    /// The commits of a page of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commits: Option<Vec<Json>>,
}

/// The first field of a page, which is read alone.
#[derive(Debug, Serialize, Deserialize)]
struct PageMeta {
    v: u32,
    page: u64,
    /// `seq` of its first commit's first public event.
    seq: u64,
    /// The slot of its first commit, where that is not the page's first: of a log that outlived the beginning of the
    /// page in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
}

#[derive(Deserialize)]
struct PageHead {
    meta: PageMeta,
}

/// The body of a page with these messages, by slot; `None` where there is none.
pub(crate) fn pack(page: u64, messages: &BTreeMap<u64, Bytes>) -> Result<Option<Bytes>, BusError> {
    let Some((first, message)) = messages.first_key_value() else { return Ok(None) };
    let head: CommitHead = parse(message)?;
    let commits = messages.values().map(|message| parse::<Json>(message)).collect::<Result<Vec<_>, _>>()?;
    let first = (*first != page * SLOTS_PER_PAGE).then_some(*first);
    let meta = PageMeta { v: VERSION, page, seq: head.meta.seq, first };
    let gzip = Some(STANDARD.encode(compress(&encode(&commits)?)?));
    encode(&Page { meta, gzip, commits: None }).map(Some)
}

/// The messages of a page by slot.
pub(crate) fn unpack(page: u64, body: &[u8]) -> Result<BTreeMap<u64, Bytes>, BusError> {
    let (meta, commits) = read(body)?;
    let slots = page * SLOTS_PER_PAGE..(page + 1) * SLOTS_PER_PAGE;
    let first = meta.first.unwrap_or(slots.start);
    if !slots.contains(&first) || commits.len() as u64 > slots.end - first {
        return Err(BusError::Malformed(format!("page {page} has {} commits from slot {first} on", commits.len())));
    }
    Ok((first..).zip(commits).collect())
}

/// The messages of a page in their order, whichever page it is.
pub(crate) fn messages(body: &[u8]) -> Result<Vec<Bytes>, BusError> {
    read(body).map(|(_, commits)| commits)
}

fn read(body: &[u8]) -> Result<(PageMeta, Vec<Bytes>), BusError> {
    let PageHead { meta } = parse(body)?;
    if meta.v > VERSION {
        // Not malformed: such a page is not to be replaced.
        return Err(BusError::Unavailable(format!("a newer version wrote page {} of the archive", meta.page)));
    }
    let Page { gzip, commits, .. } = parse(body)?;
    let commits: Vec<Json> = match (gzip, commits) {
        (Some(gzip), _) => parse(&decompress(&STANDARD.decode(gzip).map_err(malformed)?, COMMITS_BYTES_MAX)?)?,
        (None, Some(commits)) => commits,
        (None, None) => return Err(malformed("an archived page has no commits")),
    };
    Ok((meta, commits.into_iter().map(|commit| Bytes::from(commit.get().to_owned())).collect()))
}

/// The `seq` with which a page begins. A reference to a large page has it too.
pub(crate) fn first_seq(body: &[u8]) -> Result<u64, BusError> {
    parse::<PageHead>(body).map(|page| page.meta.seq)
}

fn compress(text: &[u8]) -> Result<Vec<u8>, BusError> {
    // Commits repeat each other, so the fastest level already makes them several times smaller.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).map_err(malformed)
}

fn decompress(compressed: &[u8], bytes_max: u64) -> Result<Vec<u8>, BusError> {
    let mut text = Vec::new();
    GzDecoder::new(compressed).take(bytes_max + 1).read_to_end(&mut text).map_err(malformed)?;
    if text.len() as u64 > bytes_max {
        return Err(malformed(format_args!("an archived page has more than {bytes_max} bytes")));
    }
    Ok(text)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn malformed(error: impl std::fmt::Display) -> BusError {
    BusError::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits(slots: std::ops::Range<u64>) -> BTreeMap<u64, Bytes> {
        slots.map(|slot| (slot, message(slot))).collect()
    }

    fn message(slot: u64) -> Bytes {
        let meta = serde_json::json!({
            "v": 1, "commit": format!("c{slot}"), "fold": 1, "phase": "running", "open": [], "control_seq": 0,
            "seq": slot + 1, "time": "2024-01-15T10:30:45.123Z",
        });
        serde_json::to_vec(&serde_json::json!({"meta": meta, "events": []})).unwrap().into()
    }

    #[test]
    fn page_reads_as_it_was_written_and_is_smaller() {
        for slots in [64..128, 100..128, 127..128] {
            let messages = commits(slots.clone());
            let body = pack(1, &messages).unwrap().unwrap();
            assert_eq!(unpack(1, &body).unwrap(), messages, "{slots:?}");
            assert_eq!(first_seq(&body).unwrap(), slots.start + 1);
        }
        let body = pack(1, &commits(64..128)).unwrap().unwrap();
        let plain: usize = commits(64..128).values().map(Bytes::len).sum();
        assert!(body.len() * 4 < plain, "{} of {plain} bytes", body.len());
        assert_eq!(pack(1, &BTreeMap::new()).unwrap(), None);
    }

    #[test]
    fn page_of_the_first_version_is_read() {
        let plain: Vec<Json> = commits(64..128).values().map(|message| parse(message).unwrap()).collect();
        let body = serde_json::json!({"meta": {"v": 1, "page": 1, "seq": 65}, "commits": plain});
        let body = serde_json::to_vec(&body).unwrap();
        assert_eq!(unpack(1, &body).unwrap(), commits(64..128));
        assert_eq!(first_seq(&body).unwrap(), 65);
    }

    #[test]
    fn commits_outside_of_their_page_are_refused() {
        let body = pack(1, &commits(64..128)).unwrap().unwrap();
        assert!(matches!(unpack(2, &pack(1, &commits(100..128)).unwrap().unwrap()), Err(BusError::Malformed(_))));
        assert_eq!(unpack(2, &body).unwrap().len(), 64, "the subject says which page it is");
        let moved = String::from_utf8(body.to_vec()).unwrap().replace(r#""seq":65"#, r#""seq":65,"first":65"#);
        assert!(matches!(unpack(1, moved.as_bytes()), Err(BusError::Malformed(_))), "64 commits from slot 65 on");
    }

    #[test]
    fn page_is_decompressed_up_to_its_limit() {
        let compressed = compress(&[b' '; 1_000]).unwrap();
        assert!(compressed.len() < 100);
        assert_eq!(decompress(&compressed, 1_000).unwrap().len(), 1_000);
        let refused = decompress(&compressed, 999);
        assert!(matches!(&refused, Err(BusError::Malformed(why)) if why.contains("more than 999")), "{refused:?}");
    }

    #[test]
    fn page_that_is_damaged_or_of_a_newer_version_is_refused() {
        let packed = |gzip: &str| serde_json::json!({"meta": {"v": 2, "page": 0, "seq": 1}, "gzip": gzip}).to_string();
        let of = |text: &[u8]| STANDARD.encode(compress(text).unwrap());
        let half = of(b"[1,2,3]");
        let newer = br#"{"meta": {"v": 3, "page": 0, "seq": 1}}"#;
        assert!(matches!(unpack(0, newer), Err(BusError::Unavailable(_))), "nothing replaces it");
        let empty = br#"{"meta": {"v": 2, "page": 0, "seq": 1}}"#;
        assert!(matches!(unpack(0, empty), Err(BusError::Malformed(_))));
        for (gzip, why) in [
            (of(b"[1,"), "EOF"),
            (half[..half.len() / 2 / 4 * 4].to_owned(), "incomplete"),
            ("no Base64".to_owned(), "Invalid"),
            (STANDARD.encode(b"[1,2,3] and no gzip"), "gzip"),
        ] {
            let refused = unpack(0, packed(&gzip).as_bytes());
            assert!(matches!(&refused, Err(BusError::Malformed(text)) if text.contains(why)), "{why}: {refused:?}");
        }
    }
}
