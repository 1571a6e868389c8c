//! The store key, and the data keys of segments that it wraps.

use crate::error::OpenError;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a store key and of a segment's data key (AES-256).
pub const KEY_LEN: usize = 32;
/// Bytes of a wrapped data key: nonce, ciphertext, tag.
pub(crate) const WRAPPED_LEN: usize = NONCE_LEN + KEY_LEN + TAG_LEN;
/// Bytes of an AES-GCM tag.
pub(crate) const TAG_LEN: usize = 16;

const NONCE_LEN: usize = 12;
/// A key file holds 32 raw bytes, or 64 hexadecimal digits and perhaps a line end; anything longer is not one.
const KEY_FILE_LEN_MAX: u64 = 128;

/// Name of a store key that tells nothing about it; written beside what the key has wrapped. Never all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub [u8; 8]);

/// The key that wraps the data keys of all segments. Held in memory only, zeroised when dropped.
#[derive(Clone)]
pub struct StoreKey(Zeroizing<[u8; KEY_LEN]>);

impl StoreKey {
    /// A new random key. Error: the system has no random numbers.
    pub fn generate() -> Result<StoreKey, OpenError> {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        fill_random(key.as_mut_slice())?;
        Ok(StoreKey(key))
    }

    /// The key made of these 32 bytes.
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> StoreKey {
        StoreKey(Zeroizing::new(*bytes))
    }

    /// Reads a key file: 32 raw bytes or 64 hexadecimal digits. It must be a regular file that only its owner may
    /// read or write (mode 0600 or less).
    pub fn load(path: &Path) -> Result<StoreKey, OpenError> {
        let refuse = |what| OpenError::KeyFile { file: path.to_owned(), what };
        let file = File::open(path).map_err(OpenError::io(path))?;
        let meta = file.metadata().map_err(OpenError::io(path))?;
        if !meta.is_file() {
            return Err(refuse("not a regular file"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(refuse("others may read or write it; expected mode 0600"));
        }
        let mut text = Zeroizing::new(Vec::with_capacity(KEY_FILE_LEN_MAX as usize + 1));
        file.take(KEY_FILE_LEN_MAX + 1).read_to_end(&mut text).map_err(OpenError::io(path))?;
        let mut key = Zeroizing::new([0; KEY_LEN]);
        if text.len() == KEY_LEN {
            key.copy_from_slice(&text);
        } else {
            hex::decode_to_slice(text.trim_ascii(), key.as_mut_slice())
                .map_err(|_| refuse("expected 32 bytes or 64 hexadecimal digits"))?;
        }
        Ok(StoreKey(key))
    }

    /// Reads the key file, or makes one with a new random key if there is none.
    pub fn load_or_create(path: &Path) -> Result<StoreKey, OpenError> {
        match StoreKey::load(path) {
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let key = StoreKey::generate()?;
                key.save_new(path)?;
                Ok(key)
            }
            outcome => outcome,
        }
    }

    /// Writes the key in hexadecimal to a new file of mode 0600. Error if the file exists.
    pub fn save_new(&self, path: &Path) -> Result<(), OpenError> {
        let mut text = Zeroizing::new([0; 2 * KEY_LEN + 1]);
        text[2 * KEY_LEN] = b'\n';
        hex::encode_to_slice(self.0.as_slice(), &mut text[..2 * KEY_LEN])
            .map_err(|_| OpenError::KeyFile { file: path.to_owned(), what: "could not be encoded" })?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(OpenError::io(path))?;
        let written = file.write_all(text.as_slice()).and_then(|()| file.sync_all());
        if written.is_err() {
            // Half a key file would be refused at the next start, so none is better.
            let _ = fs::remove_file(path);
        }
        written.map_err(OpenError::io(path))
    }

    /// The key that follows from this one and another half that is kept elsewhere; neither half tells anything about it.
    pub fn combined(&self, other: &[u8; KEY_LEN]) -> StoreKey {
        let mut hasher = blake3::Hasher::new_derive_key("isthmus store key of two halves v1");
        hasher.update(self.0.as_slice()).update(other);
        let mut key = Zeroizing::new([0; KEY_LEN]);
        hasher.finalize_xof().fill(key.as_mut_slice());
        StoreKey(key)
    }

    /// The name of this key.
    pub fn id(&self) -> KeyId {
        let mut hasher = blake3::Hasher::new_derive_key("isthmus store key id v1");
        hasher.update(self.0.as_slice());
        let mut id = [0; 8];
        hasher.finalize_xof().fill(&mut id);
        id[0] |= 1;
        KeyId(id)
    }

    /// Wraps a segment's data key; `context` is bound to it. Error: no random numbers.
    pub(crate) fn wrap(&self, data: &DataKey, context: &[u8]) -> Result<[u8; WRAPPED_LEN], OpenError> {
        let mut wrapped = [0; WRAPPED_LEN];
        fill_random(&mut wrapped[..NONCE_LEN])?;
        wrapped[NONCE_LEN..NONCE_LEN + KEY_LEN].copy_from_slice(data.0.as_slice());
        let nonce = nonce_of(&wrapped);
        let tag = aead_key(&self.0)
            .ok_or(OpenError::Setting("AES-256-GCM is not available"))?
            .seal_in_place_separate_tag(
                nonce,
                Aad::from(context),
                &mut wrapped[NONCE_LEN..NONCE_LEN + KEY_LEN],
            )
            .map_err(|_| OpenError::Setting("AES-256-GCM is not available"))?;
        wrapped[NONCE_LEN + KEY_LEN..].copy_from_slice(tag.as_ref());
        Ok(wrapped)
    }

    /// Undoes [`StoreKey::wrap`]. `None` if key, context or bytes are not the ones that were wrapped.
    pub(crate) fn unwrap(&self, wrapped: &[u8; WRAPPED_LEN], context: &[u8]) -> Option<DataKey> {
        let mut rest = Zeroizing::new([0; KEY_LEN + TAG_LEN]);
        rest.copy_from_slice(&wrapped[NONCE_LEN..]);
        let plain = aead_key(&self.0)?
            .open_in_place(nonce_of(wrapped), Aad::from(context), rest.as_mut_slice())
            .ok()?;
        let mut key = Zeroizing::new([0; KEY_LEN]);
        key.copy_from_slice(plain);
        plain.zeroize();
        Some(DataKey(key))
    }
}

impl std::fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreKey")
    }
}

/// The key that one segment's content is sealed with. Zeroised when dropped.
pub(crate) struct DataKey(Zeroizing<[u8; KEY_LEN]>);

impl DataKey {
    pub(crate) fn generate() -> Result<DataKey, OpenError> {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        fill_random(key.as_mut_slice())?;
        Ok(DataKey(key))
    }

    #[cfg(test)]
    pub(crate) fn from_bytes(bytes: [u8; KEY_LEN]) -> DataKey {
        DataKey(Zeroizing::new(bytes))
    }

    /// The cipher under this key. `None` if the library refuses it.
    pub(crate) fn cipher(&self) -> Option<LessSafeKey> {
        aead_key(&self.0)
    }
}

/// Fills `out` from the system's random number generator.
pub(crate) fn fill_random(out: &mut [u8]) -> Result<(), OpenError> {
    getrandom::fill(out).map_err(|_| OpenError::Random)
}

fn aead_key(key: &[u8; KEY_LEN]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new)
}

fn nonce_of(wrapped: &[u8; WRAPPED_LEN]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&wrapped[..NONCE_LEN]);
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_file_is_made_once_read_back_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let made = StoreKey::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(StoreKey::load_or_create(&path).unwrap().id(), made.id());
        assert!(made.save_new(&path).is_err(), "an existing key is never overwritten");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(StoreKey::load(&path), Err(OpenError::KeyFile { .. })));
    }

    #[test]
    fn raw_and_hexadecimal_key_files_mean_the_same_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = [0xa5; KEY_LEN];
        let write = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            StoreKey::load(&path)
        };
        let id = StoreKey::from_bytes(&bytes).id();
        assert_eq!(write("raw", &bytes).unwrap().id(), id);
        assert_eq!(write("hex", format!("{}\n", "A5".repeat(32)).as_bytes()).unwrap().id(), id);
        for (name, bad) in
            [("empty", &b""[..]), ("short", &bytes[..31]), ("word", &[b'g'; 64]), ("long", &[b'0'; 500])]
        {
            assert!(matches!(write(name, bad), Err(OpenError::KeyFile { .. })), "{name}");
        }
    }

    #[test]
    fn a_wrapped_key_opens_under_its_own_key_and_context_only() {
        let (a, b) = (StoreKey::generate().unwrap(), StoreKey::generate().unwrap());
        assert_ne!(a.id(), b.id());
        let data = DataKey::generate().unwrap();
        let wrapped = a.wrap(&data, b"segment 1").unwrap();
        assert_eq!(a.unwrap(&wrapped, b"segment 1").unwrap().0, data.0);
        assert!(a.unwrap(&wrapped, b"segment 2").is_none());
        assert!(b.unwrap(&wrapped, b"segment 1").is_none());
        assert!(!format!("{a:?}").contains(&hex::encode(a.0.as_slice())));
    }
}
