//! Connections: the API key, TLS, and fleets that are not there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ailoop_client::{Client, ErrorKind};
use ailoop_tests::model::ModelServer;
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tls::TlsFront;

const KEY: &str = "a-key-of-programs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_that_is_wrong_or_missing_has_its_code_and_is_not_sent_in_clear() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(Vec::new()).await?;
    let fleet = ProcessFleet::with(&[("test", &model.base_url())], &[("AILOOP__EDGE__TOKEN", KEY)]).await?;
    let edge = fleet.edge().await?;
    let wrong = Client::connect(edge.url()).api_key("another-key").await?;
    for client in [wrong, Client::connect(edge.url()).await?] {
        for error in [
            client.agents().await.unwrap_err(),
            client.start().await.unwrap_err(),
            client.session("s").turn("hello").await.unwrap_err(),
        ] {
            assert_eq!((error.code(), error.kind()), ("unauthorized", ErrorKind::AccessDenied));
        }
    }
    Client::connect(edge.url()).api_key(KEY).await?.agents().await?;

    // Nothing listens there: the refusal comes before any connection.
    for url in ["http://ailoop.invalid:7071", "192.0.2.1:7071"] {
        let refused = Client::connect(url).api_key(KEY).await.unwrap_err();
        assert_eq!((refused.code(), refused.kind()), ("unauthorized", ErrorKind::PlaintextKey), "{url}");
        assert!(!refused.to_string().contains(KEY), "{refused}");
    }

    let front = TlsFront::before(edge.addresses()?.1).await?;
    Client::connect(front.url()).api_key(KEY).ca_file(front.ca_file()).await?.agents().await?;
    let unknown_authority = Client::connect(front.url()).api_key(KEY).await.unwrap_err();
    assert_eq!(unknown_authority.kind(), ErrorKind::ConnectionFailed, "{unknown_authority}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_that_moved_is_found_and_one_that_is_gone_is_reported_in_time() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(Vec::new()).await?;
    let fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let mut edge = fleet.edge().await?;
    let address = Arc::new(Mutex::new(edge.url()));
    let known = address.clone();
    let locate = move || known.lock().ok().map(|url| url.clone());
    let client = Client::connect(edge.url()).locate(locate).retry_for(Duration::from_secs(20)).await?;
    client.agents().await?;
    edge.replica.kill()?;
    let mut second = fleet.edge().await?;
    second.url().clone_into(&mut address.lock().unwrap());
    client.agents().await?;
    assert_eq!(client.url(), second.url());

    let impatient = Client::connect(second.url()).retry_for(Duration::from_millis(500)).await?;
    second.replica.kill()?;
    let gone = impatient.agents().await.unwrap_err();
    assert_eq!((gone.code(), gone.kind()), ("unreachable", ErrorKind::ConnectionFailed));
    assert_eq!(Client::connect(second.url()).await.unwrap_err().code(), "unreachable");
    Ok(())
}
