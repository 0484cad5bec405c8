//! What of a reply is shown: any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::splitter(data));
