//! Subjects of the JetStream API by purpose, also for the streams of buckets and for acknowledgements.

use contract::streams::{Bucket, Objects, Queue, Stream};

/// Asks whether the account has JetStream, at each connect.
pub(super) fn info() -> String {
    "$JS.API.INFO".to_owned()
}

/// Checks that every stream and consumer exists with the right settings.
pub(super) fn verify() -> Vec<String> {
    let streams = streams().into_iter().map(|name| format!("$JS.API.STREAM.INFO.{name}"));
    let consumers = Queue::ALL.iter().map(|queue| format!("$JS.API.CONSUMER.INFO.{}", consumer(*queue)));
    streams.chain(consumers).collect()
}

/// Creates and repairs every stream and consumer. It permits no deletion.
pub(super) fn create() -> Vec<String> {
    let streams = streams()
        .into_iter()
        .flat_map(|name| [format!("$JS.API.STREAM.CREATE.{name}"), format!("$JS.API.STREAM.UPDATE.{name}")]);
    let consumers = Queue::ALL.iter().map(|queue| format!("$JS.API.CONSUMER.DURABLE.CREATE.{}", consumer(*queue)));
    streams.chain(consumers).collect()
}

/// Reads messages of a stream from any replica.
pub(super) fn read_any(stream: Stream) -> String {
    format!("$JS.API.DIRECT.GET.{}", stream.name())
}

/// Reads messages of a stream from its leader, which is never stale.
pub(super) fn read_leader(stream: Stream) -> String {
    format!("$JS.API.STREAM.MSG.GET.{}", stream.name())
}

/// Removes messages of a stream by their subject.
pub(super) fn purge(stream: Stream) -> String {
    format!("$JS.API.STREAM.PURGE.{}", stream.name())
}

/// Removes messages of a stream by their sequence.
pub(super) fn delete(stream: Stream) -> String {
    format!("$JS.API.STREAM.MSG.DELETE.{}", stream.name())
}

/// Consumes and acknowledges items of a queue.
pub(super) fn take(queue: Queue) -> [String; 2] {
    let consumer = consumer(queue);
    [format!("$JS.API.CONSUMER.MSG.NEXT.{consumer}"), format!("$JS.ACK.{consumer}.>")]
}

/// Pauses and resets a queue.
pub(super) fn reset(queue: Queue) -> [String; 2] {
    let consumer = consumer(queue);
    [format!("$JS.API.CONSUMER.PAUSE.{consumer}"), format!("$JS.API.CONSUMER.RESET.{consumer}")]
}

/// Lists the entries of a bucket, from any replica.
pub(super) fn keys_list(bucket: Bucket) -> String {
    format!("$JS.API.DIRECT.GET.KV_{}", bucket.name())
}

/// Reads one key from the leader.
pub(super) fn keys_get(bucket: Bucket) -> String {
    format!("$JS.API.STREAM.MSG.GET.KV_{}", bucket.name())
}

/// Writes and deletes keys of a bucket.
pub(super) fn keys_put(bucket: Bucket) -> String {
    format!("$KV.{}.>", bucket.name())
}

/// Reads objects from any replica: their description, and then their chunks.
pub(super) fn objects_get(store: Objects) -> String {
    format!("$JS.API.DIRECT.GET.OBJ_{}", store.name())
}

/// Writes objects. If two clients write the same object at once, the later one removes the chunks of the earlier one.
pub(super) fn objects_put(store: Objects) -> [String; 4] {
    let name = store.name();
    [
        format!("$JS.API.DIRECT.GET.OBJ_{name}.$O.{name}.M.*"),
        format!("$O.{name}.C.*"),
        format!("$O.{name}.M.*"),
        format!("$JS.API.STREAM.PURGE.OBJ_{name}"),
    ]
}

/// Finds the messages of objects by their sequence, and removes them.
pub(super) fn objects_erase(store: Objects) -> [String; 2] {
    let name = store.name();
    [format!("$JS.API.STREAM.MSG.GET.OBJ_{name}"), format!("$JS.API.STREAM.MSG.DELETE.OBJ_{name}")]
}

/// Removes entries of a bucket, with the marks that deletions leave.
pub(super) fn keys_purge(bucket: Bucket) -> String {
    format!("$JS.API.STREAM.PURGE.KV_{}", bucket.name())
}

/// Lists the streams of the account.
pub(super) fn names() -> [String; 2] {
    ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"].map(str::to_owned)
}

/// Looks at the consumers of every stream.
pub(super) fn consumers_look() -> Vec<String> {
    let looks = |name: String| ["NAMES", "LIST"].map(|verb| format!("$JS.API.CONSUMER.{verb}.{name}"));
    let infos = streams().into_iter().map(|name| format!("$JS.API.CONSUMER.INFO.{name}.*"));
    streams().into_iter().flat_map(looks).chain(infos).collect()
}

/// Reads a stream page by page, by an ephemeral consumer. Only for streams that are no queue: there, a consumer would
/// take items.
pub(super) fn view(stream: Stream) -> [String; 4] {
    let name = stream.name();
    [
        format!("$JS.API.CONSUMER.CREATE.{name}"),
        format!("$JS.API.CONSUMER.CREATE.{name}.>"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{name}.*"),
        format!("$JS.API.CONSUMER.DELETE.{name}.*"),
    ]
}

/// Reads one key from any replica.
pub(super) fn read_key_any(bucket: Bucket) -> String {
    let name = bucket.name();
    format!("$JS.API.DIRECT.GET.KV_{name}.$KV.{name}.>")
}

/// Moves the leader of a stream or consumer, and a replica of a stream.
pub(super) fn lead() -> Vec<String> {
    let streams = streams().into_iter().flat_map(|name| {
        [
            format!("$JS.API.STREAM.LEADER.STEPDOWN.{name}"),
            format!("$JS.API.STREAM.PEER.REMOVE.{name}"),
            format!("$JS.API.CONSUMER.LEADER.STEPDOWN.{name}.*"),
        ]
    });
    streams.collect()
}

/// Reads a copy of a stream, and acknowledges its parts.
pub(super) fn backup() -> Vec<String> {
    let copies = |name: String| [format!("$JS.API.STREAM.SNAPSHOT.{name}"), format!("$JS.SNAPSHOT.ACK.{name}.>")];
    streams().into_iter().flat_map(copies).collect()
}

/// Puts a stream back from a copy. nats-server refuses it while the stream exists.
pub(super) fn restore() -> Vec<String> {
    let puts = |name: String| [format!("$JS.API.STREAM.RESTORE.{name}"), format!("$JS.SNAPSHOT.RESTORE.{name}.>")];
    streams().into_iter().flat_map(puts).collect()
}

/// Deletes every stream, and changes the settings of every stream.
pub(super) fn delete_streams() -> Vec<String> {
    let verbs = |name: String| ["DELETE", "UPDATE"].map(|verb| format!("$JS.API.STREAM.{verb}.{name}"));
    streams().into_iter().flat_map(verbs).collect()
}

fn streams() -> Vec<String> {
    let streams = Stream::ALL.iter().map(|stream| stream.name().to_owned());
    let buckets = Bucket::ALL.iter().map(|bucket| format!("KV_{}", bucket.name()));
    let stores = Objects::ALL.iter().map(|store| format!("OBJ_{}", store.name()));
    streams.chain(buckets).chain(stores).collect()
}

fn consumer(queue: Queue) -> String {
    format!("{}.{}", queue.stream().name(), queue.durable())
}
