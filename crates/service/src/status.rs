//! Status that this process reports when an operator asks the fleet.

use bus::Bus;
use bus::rpc::serve_until_cancelled;
use contract::commit::FOLD;
use contract::fleet::ReplicaStatus;

use crate::clock::{Clock, SystemClock};
use crate::health::Readiness;
use crate::tasks::Tasks;

/// Answers requests for the status of the fleet until the tasks end.
pub fn serve(bus: Bus, service: &str, readiness: Readiness, tasks: &Tasks) {
    let telemetry::build::BuildInfo { version, commit } = telemetry::build::current();
    let clock = SystemClock;
    let constant = ReplicaStatus {
        service: service.to_owned(),
        replica: bus::replica::name(),
        version: version.to_owned(),
        commit: commit.to_owned(),
        fold: FOLD,
        started: clock.now(),
        now: clock.now(),
        waiting_for: Vec::new(),
        warnings: Vec::new(),
        work: std::collections::BTreeMap::new(),
        models: Vec::new(),
        configuration: None,
    };
    let ending = tasks.token();
    tasks.spawn("status", async move {
        let serve = || {
            let (of, readiness, constant) = (bus.clone(), readiness.clone(), constant.clone());
            let describe = move || {
                let mut status = ReplicaStatus {
                    now: clock.now(),
                    waiting_for: readiness.waiting().map(str::to_owned).collect(),
                    warnings: readiness.warnings().map(|(part, warning)| format!("{part}: {warning}")).collect(),
                    work: of.loads().into_iter().map(|(queue, load)| (queue.to_owned(), load)).collect(),
                    ..constant.clone()
                };
                of.describe(&mut status);
                status
            };
            let bus = bus.clone();
            async move { bus.serve_status(describe).await }
        };
        serve_until_cancelled(&ending, serve).await;
    });
}
