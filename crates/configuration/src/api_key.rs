//! The text of an API key of an edge.

use contract::tool::sha256_hex;

/// The beginning of each key, by which scanners of leaked secrets know it.
pub const PREFIX: &str = "ailoop_";
/// Hexadecimal digits of the random part: 160 bits.
const RANDOM_DIGITS: usize = 40;
/// Hexadecimal digits of the checksum, which distinguishes a mistyped key from a wrong one.
const CHECK_DIGITS: usize = 8;

/// Makes a new key: a prefix, 160 random bits, and a checksum of both.
pub fn generate_key() -> String {
    let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(|id| id.simple().to_string()).concat();
    // A version 4 UUID has six fixed bits: hashing spreads what is random over all digits.
    let body = format!("{PREFIX}{}", &sha256_hex(random.as_bytes())[..RANDOM_DIGITS]);
    let check = checksum(&body);
    body + &check
}

fn checksum(body: &str) -> String {
    sha256_hex(body.as_bytes())[..CHECK_DIGITS].to_owned()
}

/// Whether a text may be a key at all: most wrong ones are refused without a look at the keys.
pub fn is_well_formed(text: &str) -> bool {
    let has_length = text.len() == PREFIX.len() + RANDOM_DIGITS + CHECK_DIGITS;
    if !has_length || !text.is_ascii() || !text.starts_with(PREFIX) {
        return false;
    }
    let (body, check) = text.split_at(text.len() - CHECK_DIGITS);
    checksum(body) == check
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_differ_and_are_well_formed() {
        let (one, two) = (generate_key(), generate_key());
        assert_ne!(one, two);
        assert!(is_well_formed(&one) && is_well_formed(&two));
        let mistyped = one.replace(&one[10..11], if &one[10..11] == "0" { "1" } else { "0" });
        for wrong in ["", "ailoop_", &one[..54], &mistyped, &one.to_uppercase()] {
            assert!(!is_well_formed(wrong), "{wrong}");
        }
    }
}
