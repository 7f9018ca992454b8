//! Sealing with a key of the state directory.

use std::fmt;
use std::fs;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::KeyInit;
use chacha20poly1305::Nonce;
use chacha20poly1305::aead::Aead;
use hmac::Hmac;
use hmac::Mac;
use sha2::Sha256;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// Hex characters of a fingerprint: enough to tell secrets apart, too few to search for one offline.
const FINGERPRINT_CHARS: usize = 12;

/// Encrypts leaves so that they may be stored. Equal values have equal seals: expressions may compare them, and a
/// `track` of one does not flutter. Who reads the store learns which values are equal, and no more.
pub struct Sealer {
    key: Zeroizing<[u8; KEY_BYTES]>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// Reads the key file, or makes it (0600) if there is none.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(mut file) => {
                getrandom::fill(key.as_mut()).map_err(io::Error::other)?;
                file.write_all(key.as_ref())?;
                file.sync_all()?;
                if let Some(dir) = path.parent() {
                    fs::File::open(dir)?.sync_all()?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::File::open(path)?.read_exact(key.as_mut())?;
            }
            Err(error) => return Err(error),
        }
        Ok(Self { key })
    }

    /// A key for one purpose, from the key of the file.
    fn derived(&self, purpose: &str, message: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(self.key.as_ref()).expect("any length is a key");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(message);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(&(*self.derived("seal", &[])).into())
    }

    /// The value, encrypted, in base64. The nonce is a keyed hash of the value, so no two values share one.
    pub(super) fn seal(&self, value: &str) -> String {
        let hash = self.derived("nonce", value.as_bytes());
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&hash[..NONCE_BYTES]);
        let sealed = self.cipher().encrypt(&Nonce::from(nonce), value.as_bytes());
        let sealed = sealed.expect("a text in memory is shorter than the cipher's limit of 256 GiB");
        BASE64_STANDARD.encode([&nonce[..], &sealed].concat())
    }

    /// The inverse of [`Sealer::seal`]; none if the text was sealed with another key, or damaged.
    pub(super) fn open(&self, text: &str) -> Option<Zeroizing<String>> {
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
        let value = self.cipher().decrypt(&Nonce::from(nonce), sealed).ok()?;
        String::from_utf8(value).ok().map(Zeroizing::new)
    }

    /// A keyed hash of a value.
    pub fn fingerprint(&self, value: &str) -> String {
        let hash = self.derived("fingerprint", value.as_bytes());
        let number =
            hash.iter().take(FINGERPRINT_CHARS / 2).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        format!("{number:0FINGERPRINT_CHARS$x}")
    }
}
