//! An issuer of access tokens, and clients with its tokens.

use std::path::PathBuf;

use ailoop_tests::client::Ws;
use ailoop_tests::http::Http;
use ailoop_tests::nats::now;
use ailoop_tests::wait::eventually;
use anyhow::{bail, ensure};
use futures::StreamExt as _;
use futures::stream;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hostile::attempts::Attempts;
use crate::hostile::keyed_fleet::{KeyedFleet, echo_user};

/// The issuer's name, at which nobody listens.
const NAME: &str = "https://issuer.example";
/// Requests that one holder may make in a minute.
const RATE: usize = 5;
/// Tokens that an edge keeps: with one more, the one that ends first makes room.
const TOKENS: usize = 10_000;
/// Requests with other tokens at the same time.
const AT_ONCE: usize = 32;

/// An issuer whose keys are a file.
struct Issuer {
    directory: TempDir,
}

/// A key pair of an issuer.
struct TokenKey {
    id: &'static str,
    pair: KeyPair,
}

impl Issuer {
    /// Makes an issuer with these keys.
    fn new(keys: &[&TokenKey]) -> anyhow::Result<Self> {
        let issuer = Self { directory: TempDir::with_prefix("ailoop-issuer-")? };
        issuer.publish(keys)?;
        Ok(issuer)
    }

    fn key_file(&self) -> PathBuf {
        self.directory.path().join("keys.json")
    }

    /// Names only these keys from now on.
    fn publish(&self, keys: &[&TokenKey]) -> anyhow::Result<()> {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        let new = self.directory.path().join("new.json");
        std::fs::write(&new, json!({"keys": keys}).to_string())?;
        Ok(std::fs::rename(new, self.key_file())?)
    }

    /// The value of `AILOOP__EDGE__ISSUERS`, with further fields.
    fn setting(&self, more: &Value) -> String {
        let mut issuer = json!({"issuer": NAME, "audience": "ailoop", "jwks_file": self.key_file()});
        for (name, value) in more.as_object().into_iter().flatten() {
            issuer[name] = value.clone();
        }
        json!([issuer]).to_string()
    }
}

impl TokenKey {
    fn new(id: &'static str) -> anyhow::Result<Self> {
        Ok(Self { id, pair: KeyPair::generate_for(&PKCS_ED25519)? })
    }

    fn jwk(&self) -> Value {
        let x = base64url(self.pair.der_bytes());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "use": "sig", "x": x})
    }

    /// A token of a holder. The number tells tokens of the same holder apart; later ones end later.
    fn token(&self, algorithm: &str, subject: &str, number: usize) -> anyhow::Result<String> {
        let header = json!({"alg": algorithm, "kid": self.id, "typ": "at+jwt"});
        let end = now() + 3_600 + i64::try_from(number)?;
        let scope = "ailoop:run ailoop:observe";
        let claims = json!({"iss": NAME, "aud": "ailoop", "sub": subject, "exp": end, "jti": number, "scope": scope});
        let encode = |part: &Value| base64url(part.to_string().as_bytes());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.pair.sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", base64url(&signature)))
    }
}

/// The encoding of JWT.
fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let group = |part: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(part.get(at).copied().unwrap_or_default()));
        let digits = [18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63]));
        digits.into_iter().take(part.len() + 1).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Forges tokens, beside good ones of each name of the algorithm.
pub(crate) async fn forged_tokens(attempts: Attempts) -> anyhow::Result<()> {
    let (key, stranger) = (TokenKey::new("a")?, TokenKey::new("a")?);
    let issuer = Issuer::new(&[&key])?;
    let setting = issuer.setting(&json!({}));
    let fleet = KeyedFleet::start(&[], &[("AILOOP__EDGE__ISSUERS", &setting)], echo_user).await?;
    let good = key.token("EdDSA", "ann", 0)?;
    let [_, claims, signature] = good.split('.').collect::<Vec<_>>()[..] else { bail!("no three parts: {good}") };
    let nothing = base64url(br#"{"alg":"none"}"#);
    for (token, status) in [
        (good.clone(), 200),
        (key.token("Ed25519", "ann", 0)?, 200),
        (stranger.token("EdDSA", "ann", 0)?, 401),
        (key.token("HS256", "ann", 0)?, 401),
        (key.token("none", "ann", 0)?, 401),
        (format!("{nothing}.{claims}."), 401),
        (format!("{nothing}.{claims}.{signature}"), 401),
    ] {
        let (found, answer) = Http::with_key(fleet.address()?, &token)?.get("/v1/sessions").await?;
        attempts.check(found == status, || format!("{found} in place of {status} for {token}: {answer}"));
    }
    Ok(())
}

/// Exceeds the rate of a holder with many tokens.
pub(crate) async fn rate_of_a_holder(attempts: Attempts) -> anyhow::Result<()> {
    let key = TokenKey::new("a")?;
    let issuer = Issuer::new(&[&key])?;
    let setting = issuer.setting(&json!({"requests_per_minute": RATE, "audience": ["ailoop", "https://host/mcp"]}));
    let fleet = KeyedFleet::start(&[], &[("AILOOP__EDGE__ISSUERS", &setting)], echo_user).await?;
    let address = fleet.address()?;
    let status = async |subject: &str, number: usize| {
        let token = key.token("EdDSA", subject, number)?;
        anyhow::Ok(Http::with_key(address, &token)?.get("/v1/sessions").await?.0)
    };
    let mut answered = 0;
    for number in 0..4 * RATE {
        answered += usize::from(status("ann", number).await? == 200);
    }
    // The minute may have ended once.
    attempts.check(answered <= 2 * RATE, || format!("{answered} requests of one holder, who may make {RATE} a minute"));
    ensure!(status("bob", 0).await? == 200, "another holder is refused");
    Ok(())
}

/// Keeps a stream whose token made room for others, after the issuer has taken its key back.
pub(crate) async fn key_taken_back(attempts: Attempts) -> anyhow::Result<()> {
    let (old, new) = (TokenKey::new("old")?, TokenKey::new("new")?);
    let issuer = Issuer::new(&[&old, &new])?;
    let setting = issuer.setting(&json!({}));
    let rate = ("AILOOP__EDGE__CONNECTIONS__REQUESTS_PER_S", "100000");
    let fleet = KeyedFleet::start(&[], &[("AILOOP__EDGE__ISSUERS", &setting), rate], echo_user).await?;
    // It ends first, so it makes room first.
    let token = old.token("EdDSA", "mallory", 0)?;
    let mut stream = Ws::connect_with_key(&format!("ws://{}/ws", fleet.address()?), &token).await?;
    stream.ok("caller.get", &json!({})).await?;
    let http = &Http::new(fleet.address()?)?;
    let tokens = (1..=TOKENS).map(|number| new.token("EdDSA", &format!("holder{number}"), number));
    let mut sent = stream::iter(tokens)
        .map(|token| async move {
            let bearer = format!("Bearer {}", token?);
            anyhow::Ok(http.get_with("/v1/caller", &[("authorization", &bearer)]).await?.0)
        })
        .buffer_unordered(AT_ONCE);
    while let Some(status) = sent.next().await {
        let status = status?;
        ensure!(status == 200, "a token of the other key: {status}");
    }
    issuer.publish(&[&new])?;
    // It reads its end, or the answers to calls.
    let ended = eventually("the stream ends", async || stream.call("caller.get", &json!({})).await.is_err()).await;
    attempts.check(ended.is_ok(), || "a stream outlives the key of its token".to_owned());
    Ok(())
}
