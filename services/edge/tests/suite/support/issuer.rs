//! A scripted `OpenID` Connect issuer over HTTP, with keys of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use edge::IssuerConfig;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Answer of the issuer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Answers,
    /// Each answer is an error.
    Away,
    /// The document is that of another issuer.
    OtherIssuer,
    Redirects,
    /// The keys come with 2 MiB of white space.
    Huge,
    /// The document names keys over plain HTTP on another host.
    ClearKeys,
}

struct State {
    base: String,
    keys: Mutex<Vec<Value>>,
    mode: Mutex<Mode>,
    discoveries: AtomicUsize,
    fetches: AtomicUsize,
}

pub(crate) struct Issuer {
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl Issuer {
    pub(crate) async fn start(keys: &[&SigningKey]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            base: format!("http://{address}"),
            keys: Mutex::new(keys.iter().map(|key| key.jwk()).collect()),
            mode: Mutex::new(Mode::Answers),
            discoveries: AtomicUsize::new(0),
            fetches: AtomicUsize::new(0),
        });
        let (documents, sets) = (state.clone(), state.clone());
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(async move || documents.discovery()))
            .route("/keys", get(async move || sets.set()));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { state, _tasks: tasks }
    }

    /// Returns the configuration of the issuer, with further fields.
    pub(crate) fn config(&self, more: &Value) -> IssuerConfig {
        let mut config = json!({"issuer": self.state.base, "audience": "ailoop"});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(config).unwrap()
    }

    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        *self.state.keys.lock().unwrap() = keys.iter().map(|key| key.jwk()).collect();
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
    }

    /// Returns how many requests there were for the document and for the keys.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.state.discoveries.load(Ordering::SeqCst), self.state.fetches.load(Ordering::SeqCst))
    }

    /// Returns good claims with some changed, or removed by null.
    pub(crate) fn claims(&self, changes: &Value) -> Value {
        let mut claims = json!({
            "iss": self.state.base,
            "aud": "ailoop",
            "sub": "ann",
            "exp": now() + 300,
            "scope": "openid ailoop:run ailoop:observe",
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    }

    /// Makes a token of these claims.
    pub(crate) fn token(&self, key: &SigningKey, changes: &Value) -> String {
        key.sign(&key.header(), &self.claims(changes))
    }
}

impl State {
    fn discovery(&self) -> Response {
        self.discoveries.fetch_add(1, Ordering::SeqCst);
        let Self { base, .. } = self;
        let document = |issuer: &str, keys: &str| json!({"issuer": issuer, "jwks_uri": keys}).to_string();
        let keys = format!("{base}/keys");
        match *self.mode.lock().unwrap() {
            Mode::Answers | Mode::Huge => document(base, &keys).into_response(),
            Mode::Away => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Mode::OtherIssuer => document(&format!("{base}/other"), &keys).into_response(),
            Mode::Redirects => (StatusCode::FOUND, [(header::LOCATION, "/elsewhere")]).into_response(),
            Mode::ClearKeys => document(base, "http://keys.example.org/keys").into_response(),
        }
    }

    fn set(&self) -> Response {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let set = json!({"keys": *self.keys.lock().unwrap()}).to_string();
        match *self.mode.lock().unwrap() {
            Mode::Away => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Mode::Huge => (set + &" ".repeat(2 << 20)).into_response(),
            Mode::Answers | Mode::OtherIssuer | Mode::Redirects | Mode::ClearKeys => set.into_response(),
        }
    }
}

/// A key of an issuer.
pub(crate) struct SigningKey {
    pub(crate) kid: &'static str,
    pair: Pair,
}

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    pub(crate) fn new(algorithm: &str, kid: &'static str) -> Self {
        let random = SystemRandom::new();
        let ecdsa = |parameters| {
            let document = EcdsaKeyPair::generate_pkcs8(parameters, &random).unwrap();
            EcdsaKeyPair::from_pkcs8(parameters, document.as_ref(), &random).unwrap()
        };
        let pair = match algorithm {
            "ES256" => Pair::P256(ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING)),
            "ES384" => Pair::P384(ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING)),
            _ => {
                let document = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
            }
        };
        Self { kid, pair }
    }

    fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm(), "kid": self.kid, "typ": "at+jwt"})
    }

    pub(crate) fn public_bytes(&self) -> &[u8] {
        match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => pair.public_key().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
        }
    }

    pub(crate) fn jwk(&self) -> Value {
        let (bytes, kid) = (self.public_bytes(), self.kid);
        let point = |curve: &str| {
            let (x, y) = bytes[1..].split_at(bytes.len() / 2);
            json!({"kty": "EC", "crv": curve, "kid": kid, "use": "sig", "x": encode(x), "y": encode(y)})
        };
        match self.pair {
            Pair::P256(_) => point("P-256"),
            Pair::P384(_) => point("P-384"),
            Pair::Ed25519(_) => json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": encode(bytes)}),
        }
    }

    /// Signs claims under any header.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => {
                pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encode(signature))
    }
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
