//! Deployed parts: the NATS users with their permissions, a fleet under them, and the image's files.

mod credentials;
mod forgery;
mod image;
mod manifests;
mod matrix;
mod operators;
mod probe;
mod rotation;
mod session;
mod toolsmith;
