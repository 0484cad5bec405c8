//! Answers of providers: any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::answer(data));
