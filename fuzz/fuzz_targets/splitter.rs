//! Visible text of a reply: any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::splitter(data));
