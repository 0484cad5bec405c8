//! What JetStream is asked for, by purpose: the subjects of its API, of streams behind buckets, and of acks.

use contract::streams::{Bucket, Objects, Queue, Stream};

/// Whether there is JetStream at all: asked at each connect.
pub(super) fn info() -> String {
    "$JS.API.INFO".to_owned()
}

/// Whether every stream and consumer is there as it should be.
pub(super) fn verify() -> Vec<String> {
    let streams = streams().into_iter().map(|name| format!("$JS.API.STREAM.INFO.{name}"));
    let consumers = Queue::ALL.iter().map(|queue| format!("$JS.API.CONSUMER.INFO.{}", consumer(*queue)));
    streams.chain(consumers).collect()
}

/// How the stream behind an object store is set up: asked when the store is first read.
pub(super) fn objects_info(store: Objects) -> String {
    format!("$JS.API.STREAM.INFO.OBJ_{}", store.name())
}

/// Making every stream and consumer, and repairing them. Nothing is ever deleted this way.
pub(super) fn create() -> Vec<String> {
    let streams = streams()
        .into_iter()
        .flat_map(|name| [format!("$JS.API.STREAM.CREATE.{name}"), format!("$JS.API.STREAM.UPDATE.{name}")]);
    let consumers = Queue::ALL.iter().map(|queue| format!("$JS.API.CONSUMER.DURABLE.CREATE.{}", consumer(*queue)));
    streams.chain(consumers).collect()
}

/// Reading a stream from any replica.
pub(super) fn read_any(stream: Stream) -> String {
    format!("$JS.API.DIRECT.GET.{}", stream.name())
}

/// Reading a stream from its leader: what settles a doubt.
pub(super) fn read_leader(stream: Stream) -> String {
    format!("$JS.API.STREAM.MSG.GET.{}", stream.name())
}

/// Removing messages of a stream by their subject.
pub(super) fn purge(stream: Stream) -> String {
    format!("$JS.API.STREAM.PURGE.{}", stream.name())
}

/// Removing messages of a stream by their sequence.
pub(super) fn delete(stream: Stream) -> String {
    format!("$JS.API.STREAM.MSG.DELETE.{}", stream.name())
}

/// Taking items of a queue, and settling them.
pub(super) fn take(queue: Queue) -> [String; 2] {
    let consumer = consumer(queue);
    [format!("$JS.API.CONSUMER.MSG.NEXT.{consumer}"), format!("$JS.ACK.{consumer}.>")]
}

/// Listing a bucket.
pub(super) fn keys_list(bucket: Bucket) -> String {
    format!("$JS.API.DIRECT.GET.KV_{}", bucket.name())
}

/// Reading one key from the leader.
pub(super) fn keys_get(bucket: Bucket) -> String {
    format!("$JS.API.STREAM.MSG.GET.KV_{}", bucket.name())
}

/// Writing and deleting keys.
pub(super) fn keys_put(bucket: Bucket) -> String {
    format!("$KV.{}.>", bucket.name())
}

/// Reading objects: their description, then their chunks by a consumer of the moment.
pub(super) fn objects_get(store: Objects) -> [String; 4] {
    let name = store.name();
    [
        format!("$JS.API.DIRECT.GET.OBJ_{name}.$O.{name}.M.*"),
        format!("$JS.API.CONSUMER.CREATE.OBJ_{name}"),
        format!("$JS.API.CONSUMER.DELETE.OBJ_{name}.*"),
        format!("$JS.FC.OBJ_{name}.>"),
    ]
}

/// Writing objects. Of two who write the same one at once, the later removes the chunks of the earlier.
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
