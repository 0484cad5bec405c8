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

/// Reads the settings of the stream of an object store, before its first read.
pub(super) fn objects_info(store: Objects) -> String {
    format!("$JS.API.STREAM.INFO.OBJ_{}", store.name())
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

/// Reads objects: their description, and then their chunks by an ephemeral consumer.
pub(super) fn objects_get(store: Objects) -> [String; 4] {
    let name = store.name();
    [
        format!("$JS.API.DIRECT.GET.OBJ_{name}.$O.{name}.M.*"),
        format!("$JS.API.CONSUMER.CREATE.OBJ_{name}"),
        format!("$JS.API.CONSUMER.DELETE.OBJ_{name}.*"),
        format!("$JS.FC.OBJ_{name}.>"),
    ]
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

fn streams() -> Vec<String> {
    let streams = Stream::ALL.iter().map(|stream| stream.name().to_owned());
    let buckets = Bucket::ALL.iter().map(|bucket| format!("KV_{}", bucket.name()));
    let stores = Objects::ALL.iter().map(|store| format!("OBJ_{}", store.name()));
    streams.chain(buckets).chain(stores).collect()
}

fn consumer(queue: Queue) -> String {
    format!("{}.{}", queue.stream().name(), queue.durable())
}
