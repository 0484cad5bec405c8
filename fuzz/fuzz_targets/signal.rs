//! Continuation signal in a reply: any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::signal(data));
