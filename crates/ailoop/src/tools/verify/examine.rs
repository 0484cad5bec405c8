//! The examination: makes the calls, and has them judged.

use std::time::Duration;

use bus::BusError;
use bytes::Bytes;
use contract::tool::{EffectClass, ToolSpec};
use contract::{Json, Timestamp};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tool_schema::Schema;

use super::{Check, judge};
use crate::tools::ask::{Asker, Exchange, Found, Seen};
use crate::tools::call::{Call, Caller};
use crate::tools::sample;

/// How long an answer may take that needs no work: to what cannot be read, is cancelled, or comes too late.
const SOON: Duration = Duration::from_secs(5);
/// How far into a call it is cancelled.
const CANCEL_AFTER: Duration = Duration::from_millis(300);
/// How long a second reply to an answered call is waited for.
const QUIET: Duration = Duration::from_secs(1);
/// A deadline that has long passed.
const PASSED: Timestamp = Timestamp::from_millis(0);
/// What is no JSON: two lines, since a header holds only one, and some libraries put what they cannot read into one.
const GARBAGE: &[u8] = b"this is\nno JSON {";

/// What is not looked at where nobody answers.
const REST: &str = "everything else";

/// What is examined, once it is described.
pub struct Subject {
    /// What it says of itself.
    pub spec: ToolSpec,
    /// Its schema.
    pub schema: Schema,
    /// Who serves it.
    pub found: Found,
}

/// What the caller wants.
pub struct Wish {
    /// Arguments that ought to work; else some are made.
    pub arguments: Option<Json>,
    /// How long an answer may take.
    pub within: Duration,
}

/// Looks at what the tool says of itself; without a subject there is nothing to call.
pub async fn described(asker: &Asker<'_>) -> Result<(Vec<Check>, Option<Subject>), BusError> {
    let found = asker.find().await?;
    let (first, spec) = judge::described(&found);
    let Some(spec) = spec else { return Ok((vec![first], None)) };
    let compiled = Schema::compile(&spec.parameters);
    let checks = vec![
        first,
        judge::schema(&spec, compiled.as_ref().map(|_| ())),
        judge::replicas(&found),
        judge::catalogue(asker.is_known().await?),
    ];
    Ok((checks, compiled.ok().map(|schema| Subject { spec, schema, found })))
}

/// Arguments that fit: the caller's, or made from the schema. The error says that none could be made.
pub fn arguments(subject: &Subject, wish: &Wish) -> Result<Json, String> {
    let made = || Json::of(&sample::smallest(&schema_of(subject)));
    let arguments = wish.arguments.clone().unwrap_or_else(made);
    subject.schema.check(&arguments).map(|()| arguments)
}

/// Calls the tool, again and again. How often it takes effect is what [`effects`] says.
pub async fn called(
    asker: &Asker<'_>,
    subject: &Subject,
    arguments: &Json,
    wish: &Wish,
    mut caller: Caller,
    now: impl Fn() -> Timestamp,
) -> Result<Vec<Check>, BusError> {
    let mut exam = Exam { asker, exchanges: Vec::new(), within: wish.within };
    let fitting = Bytes::copy_from_slice(arguments.get().as_bytes());
    let deadline = |within: Duration| now().after(within);

    let call = caller.call(fitting.clone(), deadline(wish.within));
    let first = exam.answered(&call, wish.within).await?;
    let error = if first.answer().is_none() { asker.last_error().await? } else { None };
    let mut checks = vec![judge::fitting(&first, arguments.get(), wish.arguments.is_some(), error.as_deref())];
    if first.answer().is_none() {
        checks.push(Check::skip(REST, "not tried: it does not answer"));
        return Ok(checks);
    }

    // What it cannot use.
    let soon = SOON.min(wish.within);
    let value: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
    let fits = |made: &Value| subject.schema.check(&Json::of(made)).is_ok();
    let spoiled = sample::spoiled(&schema_of(subject), &value, fits);
    if spoiled.is_empty() {
        checks.push(Check::skip("wrong arguments", "its schema lets everything pass"));
    }
    for (what, made) in spoiled {
        let call = caller.call(made.to_string(), deadline(wish.within));
        checks.push(judge::refused("wrong arguments", &what, &exam.answered(&call, soon).await?));
    }
    let garbage = caller.call(GARBAGE, deadline(wish.within));
    checks.push(judge::refused("garbage", "no JSON", &exam.answered(&garbage, soon).await?));
    let again = match subject.spec.effect {
        // Not a second effect.
        EffectClass::Idempotent => call.again(),
        EffectClass::Pure | EffectClass::AtMostOnce | EffectClass::Reconcilable => {
            caller.call(fitting.clone(), deadline(wish.within))
        }
    };
    let still = exam.answered(&again, wish.within).await?;
    let left = asker.find().await?.replicas.len();
    checks.push(judge::still_there(&still, subject.found.replicas.len(), left));
    if still.answer().is_none() {
        checks.push(Check::skip(REST, "not tried: it does not answer any more"));
        return Ok(checks);
    }

    // The same call twice.
    match subject.spec.effect {
        EffectClass::AtMostOnce => checks.push(Check::skip("repeated", "no call of an at_most_once tool is repeated")),
        EffectClass::Reconcilable => {
            let unheard = caller.call(fitting.clone(), deadline(wish.within));
            checks.push(judge::probed(asker.probe(&unheard, soon).await?.as_ref()));
        }
        effect @ (EffectClass::Pure | EffectClass::Idempotent) => {
            let second = exam.answered(&call.again(), wish.within).await?;
            checks.push(judge::repeated("repeated", effect, &first, &second));
            let call = caller.call(fitting.clone(), deadline(wish.within));
            let (one, other) = exam.both(&call, wish.within).await?;
            checks.push(judge::repeated("twice at once", effect, &one, &other));
        }
    }

    // Nobody waits.
    let late = caller.call(fitting.clone(), PASSED);
    checks.push(judge::late(&exam.answered(&late, soon).await?));
    let call = caller.call(fitting, deadline(wish.within));
    let (at, seen) = exam.cancelled(&call).await?;
    checks.push(judge::cancelled(at, &seen));

    // All of them together.
    let seen = exam.quiet().await;
    let seen: Vec<&Seen> = seen.iter().collect();
    checks.push(judge::single(&seen, subject.found.replicas.len()));
    checks.push(judge::progress(&seen));
    checks.push(judge::size(&seen, &subject.spec));
    checks.push(judge::trace(&first, caller.trace()));
    Ok(checks)
}

/// How many calls of ids of their own may take effect.
pub const fn effects(effect: EffectClass) -> usize {
    match effect {
        EffectClass::Pure => 0,
        // The first, a late one, a cancelled one; and two at once that are one, or the one after what it cannot use.
        EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => 4,
    }
}

fn schema_of(subject: &Subject) -> Value {
    serde_json::from_str(subject.spec.parameters.get()).unwrap_or_default()
}

/// Every call so far; they are listened to until the end, since a reply too many may come late.
struct Exam<'a> {
    asker: &'a Asker<'a>,
    exchanges: Vec<Exchange>,
    within: Duration,
}

impl Exam<'_> {
    async fn answered(&mut self, call: &Call, within: Duration) -> Result<Seen, BusError> {
        let mut exchange = self.asker.call(call).await?;
        let seen = exchange.answered(within).await.clone();
        self.exchanges.push(exchange);
        Ok(seen)
    }

    async fn both(&mut self, call: &Call, within: Duration) -> Result<(Seen, Seen), BusError> {
        let (mut one, mut other) = (self.asker.call(call).await?, self.asker.call(&call.again()).await?);
        let (seen, seen_of_other) = tokio::join!(one.answered(within), other.answered(within));
        let both = (seen.clone(), seen_of_other.clone());
        self.exchanges.extend([one, other]);
        Ok(both)
    }

    /// Cancels a call that runs; the first is when that was, where it ran long enough.
    async fn cancelled(&mut self, call: &Call) -> Result<(Option<Duration>, Seen), BusError> {
        let mut exchange = self.asker.call(call).await?;
        exchange.answered(CANCEL_AFTER).await;
        let at = exchange.seen.answers.is_empty().then(|| exchange.elapsed());
        if let Some(at) = at {
            self.asker.cancel(call.cancel()).await?;
            exchange.answered(at + SOON.min(self.within)).await;
        }
        let seen = exchange.seen.clone();
        self.exchanges.push(exchange);
        Ok((at, seen))
    }

    async fn quiet(mut self) -> Vec<Seen> {
        sleep(QUIET).await;
        let end = Instant::now();
        for exchange in &mut self.exchanges {
            exchange.listen(end).await;
        }
        self.exchanges.into_iter().map(|exchange| exchange.seen).collect()
    }
}
