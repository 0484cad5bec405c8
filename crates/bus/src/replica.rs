//! The name of this process, as operators see it.

/// Host and process id, as in `gateway-5d8f:1`. On Kubernetes the host is the pod.
pub fn name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", std::process::id())
}
