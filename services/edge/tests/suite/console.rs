//! The files of the web console: headers, compression, and who gets them.

use std::path::Path;

use edge::EdgeConfig;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HOST};

use crate::support::{Fixture, config};

/// `Accept` header of a browser in which a person enters the address.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

async fn get(fixture: &Fixture, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
    // An earlier provider stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().no_gzip().build().unwrap();
    let mut request = client.get(format!("http://{}{path}", fixture.edge.addresses().ws));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

fn is_script(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "js")
}

/// The files that a page names, such as `/console/app-ABCDEFGH.js`.
fn files_of(page: &str) -> Vec<String> {
    page.split('"').filter(|part| part.starts_with("/console/")).map(str::to_owned).collect()
}

#[tokio::test]
async fn page_and_its_files_have_strict_headers_and_need_no_credential() {
    let config = EdgeConfig { token: Some(configuration::Secret::new("s3cret")), ..config() };
    let fixture = Fixture::with(config).await;
    let response = get(&fixture, "/", &[("accept", BROWSER)]).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(response.headers()["cache-control"], "no-cache");
    assert_eq!(response.headers()["vary"], "accept, accept-encoding");
    let mut checked = vec![response.headers().clone()];
    let page = response.text().await.unwrap();
    let files = files_of(&page);
    assert!(files.iter().any(|file| is_script(file)) && !files.iter().all(|file| is_script(file)), "{page}");
    for file in files {
        let response = get(&fixture, &file, &[]).await;
        assert_eq!(response.status(), StatusCode::OK, "{file}");
        assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable");
        checked.push(response.headers().clone());
        assert!(!response.text().await.unwrap().is_empty());
    }
    for headers in checked {
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("require-trusted-types-for"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
    }
    assert_eq!(get(&fixture, "/v1/agents", &[]).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn page_has_no_inline_script_or_style_and_names_no_other_host() {
    let fixture = Fixture::new().await;
    let page = get(&fixture, "/", &[("accept", BROWSER)]).await.text().await.unwrap();
    assert!(!page.contains("<style") && !page.contains("style=") && !page.contains("onload="), "{page}");
    assert!(page.matches("<script").count() == page.matches("></script>").count(), "{page}");
    let addresses = page.matches("http").count() - page.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(addresses, 0, "{page}");
}

#[tokio::test]
async fn file_is_compressed_for_clients_that_accept_it() {
    let fixture = Fixture::new().await;
    let page = get(&fixture, "/", &[("accept", BROWSER)]).await.text().await.unwrap();
    let script = files_of(&page).into_iter().find(|file| is_script(file)).unwrap();
    let plain = get(&fixture, &script, &[]).await;
    assert!(plain.headers().get("content-encoding").is_none());
    let plain = plain.bytes().await.unwrap();
    let compressed = get(&fixture, &script, &[(ACCEPT_ENCODING.as_str(), "br, gzip;q=0.8")]).await;
    assert_eq!(compressed.headers()["content-encoding"], "gzip");
    assert_eq!(compressed.headers()["vary"], "accept-encoding");
    let compressed = compressed.bytes().await.unwrap();
    assert!(compressed.starts_with(&[0x1F, 0x8B]) && compressed.len() * 2 < plain.len(), "{}", compressed.len());
    let refused = get(&fixture, &script, &[(ACCEPT_ENCODING.as_str(), "gzip;q=0")]).await;
    assert!(refused.headers().get("content-encoding").is_none());
}

#[tokio::test]
async fn unknown_file_is_not_found() {
    let fixture = Fixture::new().await;
    for path in ["/console/app-00000000.js", "/console/index.html", "/console/..%2f..%2fCargo.toml", "/console/a/b"] {
        assert_eq!(get(&fixture, path, &[]).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn foreign_host_on_loopback_is_refused() {
    let fixture = Fixture::new().await;
    for path in ["/", "/console/licences.txt"] {
        let headers = [(HOST.as_str(), "evil.example"), (ACCEPT.as_str(), BROWSER)];
        assert_eq!(get(&fixture, path, &headers).await.status(), StatusCode::UNAUTHORIZED, "{path}");
        let headers = [(HOST.as_str(), "localhost:7070"), (ACCEPT.as_str(), BROWSER)];
        assert_eq!(get(&fixture, path, &headers).await.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn program_that_asks_for_no_html_gets_the_description() {
    let fixture = Fixture::new().await;
    let text = get(&fixture, "/", &[("accept", "*/*")]).await.text().await.unwrap();
    assert!(text.starts_with("This is the edge of ailoop"), "{text}");
    assert!(text.contains("/v1/openapi.json"), "{text}");
}

#[tokio::test]
async fn console_that_is_switched_off_is_not_served() {
    let fixture = Fixture::with(EdgeConfig { console: false, ..config() }).await;
    let text = get(&fixture, "/", &[("accept", BROWSER)]).await.text().await.unwrap();
    assert!(text.starts_with("This is the edge of ailoop"), "{text}");
    assert_eq!(get(&fixture, "/console/licences.txt", &[]).await.status(), StatusCode::NOT_FOUND);
}
