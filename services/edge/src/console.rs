//! The web console: its page on `/` and its files below `/console/`, compiled into the binary.
//!
//! The files need no credential, as they are the same for everybody; the API that they use does. The sources are in
//! `services/edge/console`, and `make console` builds them.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use include_dir::{Dir, include_dir};

static DIST: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/console/dist");

const PAGE: &str = "index.html";
/// Nothing but the files of this edge: no inline script or style, no other host, no frame around the page, and no HTML
/// from text.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
const SECURITY_HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
/// The page names the files of its version, so it is asked for each time.
const CACHE_PAGE: &str = "no-cache";
/// The name of a file has the hash of its content.
const CACHE_FILE: &str = "public, max-age=31536000, immutable";

/// A file in the two forms in which it is sent.
struct Asset {
    plain: Bytes,
    gzip: Bytes,
    content_type: &'static str,
}

static ASSETS: LazyLock<HashMap<&'static str, Asset>> = LazyLock::new(|| {
    let files = DIST.files().filter_map(|file| Some((file.path().to_str()?, Asset::new(file.path(), file.contents()))));
    files.collect()
});

impl Asset {
    fn new(path: &std::path::Path, contents: &'static [u8]) -> Self {
        let content_type = match path.extension().and_then(|extension| extension.to_str()) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        Self { plain: Bytes::from_static(contents), gzip: compress(contents), content_type }
    }
}

/// Compresses a file once for all requests. Empty where that fails, and then the file is sent as it is.
fn compress(contents: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder.write_all(contents).and_then(|()| encoder.finish());
    compressed.map(Bytes::from).unwrap_or_default()
}

/// Builds the routes of the console. Programs that do not ask for HTML get `about` on `/`.
pub(crate) fn routes(about: &'static str) -> Router {
    let page = async move |headers: HeaderMap| {
        let accepts_html = contains(&headers, &header::ACCEPT, "text/html");
        let response = if accepts_html { serve(&headers, PAGE, CACHE_PAGE) } else { about.into_response() };
        ([(header::VARY, "accept, accept-encoding")], response).into_response()
    };
    Router::new().route("/", get(page)).route("/console/{file}", get(file))
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    // The page has its place on `/`, where it is not cached.
    if name == PAGE {
        return StatusCode::NOT_FOUND.into_response();
    }
    serve(&headers, &name, CACHE_FILE)
}

fn serve(headers: &HeaderMap, name: &str, cache: &'static str) -> Response {
    let Some(asset) = ASSETS.get(name) else {
        return (StatusCode::NOT_FOUND, "There is no such file in the console of this version.\n").into_response();
    };
    let accepts_gzip = contains(headers, &header::ACCEPT_ENCODING, "gzip") && !asset.gzip.is_empty();
    let body = if accepts_gzip { asset.gzip.clone() } else { asset.plain.clone() };
    let mut response = body.into_response();
    let added = response.headers_mut();
    added.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    added.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    added.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if accepts_gzip {
        added.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for (name, value) in SECURITY_HEADERS {
        added.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a list of a header has a word with a weight above 0, such as `gzip;q=0.8`.
fn contains(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| {
        let (item, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        item.trim().eq_ignore_ascii_case(word) && weight.is_none_or(|weight| weight > 0.0)
    })
}
