//! What is deployed: the NATS users with what each may and may not do, a fleet under them, and the image's files.

mod forgery;
mod image;
mod manifests;
mod matrix;
mod probe;
mod session;
mod toolsmith;
