//! `ailoop acp`: an agent of the Agent Client Protocol, by which editors use sessions of a fleet.
//!
//! One JSON-RPC message a line on stdin and stdout. Five files do IO: `lines` and `peer` talk to the editor, `edge_link`
//! to the fleet, `agent` takes the requests, and `session` follows one session. The others translate, and are pure.

mod agent;
mod edge_link;
mod gate;
mod lines;
mod listing;
mod peer;
mod prompt;
mod reply_chunks;
mod requests;
mod session;
mod settings;
mod stop_reason;
mod tool_call;
mod translate;
mod update;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use service::tasks::Tasks;
use terminal::failure::CommandFailure;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};

use self::agent::Agent;
pub use self::edge_link::EdgeLink;
use self::lines::{Line, read_line};
use self::peer::Peer;

/// Timeout for the end of the session tasks after the editor has disconnected.
const END_MAX: Duration = Duration::from_secs(2);

/// Serves an editor until it closes stdin. The sessions go on.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    link: EdgeLink,
    default_agent: String,
) -> Result<(), CommandFailure> {
    let tasks = Tasks::new();
    let (peer, written) = Peer::open(output, &tasks);
    let mut agent = Agent::new(peer.clone(), Arc::new(link), tasks.clone(), default_agent);
    let mut input = BufReader::new(input);
    loop {
        let read = tokio::select! {
            read = read_line(&mut input) => read,
            // Nobody reads the answers any more.
            () = written.cancelled() => break,
        };
        match read {
            Ok(Line::Text(message)) => agent.take(&message).await,
            Ok(Line::TooLong { bytes_max }) => agent.refuse_long_line(bytes_max).await,
            Ok(Line::End) => break,
            Err(error) => {
                tracing::warn!(%error, "stdin cannot be read");
                break;
            }
        }
    }
    drop(agent);
    peer.close().await;
    tasks.end(END_MAX).await;
    Ok(())
}
