//! Digests as text.

use sha2::Digest;
use sha2::Sha256;

/// SHA-256 of the parts, one behind the other, in lower case hexadecimal.
pub fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hex(&hash.finalize())
}

/// Lower case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard_and_parts_are_joined() {
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&[b"abc"]), abc);
        assert_eq!(sha256(&[b"a", b"", b"bc"]), abc);
        assert_eq!(hex(&[0, 0x9a, 0xff]), "009aff");
    }
}
