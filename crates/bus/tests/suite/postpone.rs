//! Items that are postponed are stored anew in the end, whatever the server says meanwhile, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bus::transport::header;
use bus::{Delivery, Handler, Settle, Worker};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::ToolName;
use contract::ids::{CallAttempt, CallId, SessionId, TenantId};
use contract::streams::Queue;
use contract::subject::{self, SessionKey};
use contract::tool::header::AGAIN;

/// Postpones an item until it was stored anew.
#[derive(Default)]
struct Postponer {
    deliveries: AtomicU64,
    stored_anew: AtomicU64,
}

#[async_trait]
impl Handler for Postponer {
    async fn handle(&self, delivery: &Delivery) -> Settle {
        self.deliveries.fetch_add(1, Ordering::SeqCst);
        if header(&delivery.headers, AGAIN).is_none() {
            return Settle::Postpone(Duration::from_secs(1));
        }
        assert!(delivery.delivered == 1, "it counts anew");
        self.stored_anew.fetch_add(1, Ordering::SeqCst);
        Settle::Done
    }
}

/// Answers the worker's first appends with a fault.
struct Doubts(Fault, AtomicU32);

impl Faults for Doubts {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let appended = op.client == "worker" && op.action == Action::Append;
        if appended && self.1.fetch_add(1, Ordering::SeqCst) < 5 { self.0 } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn append_is_doubtful_item_is_stored_anew() {
    for fault in [
        Fault::None,
        Fault::NotDone,
        Fault::AckLost,
        Fault::Doubtful { code: 10_077, stored: false },
        Fault::Doubtful { code: 10_077, stored: true },
        Fault::Doubtful { code: 0, stored: false },
    ] {
        let server = MemoryServer::with_faults(Arc::new(Doubts(fault, AtomicU32::new(0))));
        let (bus, handler) = (server.bus(), Arc::new(Postponer::default()));
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
        let at = subject::tool_item(&key, &ToolName::new("act").unwrap(), &call);
        bus.transport().append(&at, false, Vec::new(), Bytes::from_static(b"{}")).await.unwrap();
        let worker = Worker::start(server.client("worker").0, Queue::Tool, 8, handler.clone());
        tokio::time::sleep(Duration::from_mins(5)).await;
        let stored_anew = handler.stored_anew.load(Ordering::SeqCst);
        match fault {
            // Handled before anybody knew that it was there, and so appended again: a worker asks the log before it
            // begins.
            Fault::AckLost | Fault::Doubtful { stored: true, .. } => assert!(stored_anew >= 1, "{fault:?}"),
            _ => assert_eq!(stored_anew, 1, "{fault:?}"),
        }
        let depth = bus.transport().depth(Queue::Tool).await.unwrap();
        assert_eq!((depth.waiting, depth.held), (0, 0), "{fault:?}");
        worker.drain(Duration::ZERO).await;
    }
}
