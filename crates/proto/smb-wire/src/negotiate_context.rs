//! Negotiate contexts of dialect 3.1.1 (MS-SMB2 2.2.3.1 and 2.2.4.1).

use crate::error::WireError;
use crate::field::{Field, fixed, part, slice};
use crate::macros::{flags, number, opaque, record};
use std::ops::Range;

/// Most contexts that are looked at in one message.
pub const NEGOTIATE_CONTEXTS_MAX: usize = 64;

const CONTEXT_HEADER_LEN: usize = 8;

number! {
    /// Type of a negotiate context.
    NegotiateContextType(u16) {
        /// Hash of the connection's beginning.
        PREAUTH_INTEGRITY = 0x0001;
        /// Ciphers.
        ENCRYPTION = 0x0002;
        /// Compression algorithms.
        COMPRESSION = 0x0003;
        /// Name of the server as the client knows it.
        NETNAME = 0x0005;
        /// Security given by the transport.
        TRANSPORT = 0x0006;
        /// Transforms for remote direct memory access.
        RDMA_TRANSFORM = 0x0007;
        /// Signing algorithms.
        SIGNING = 0x0008;
    }
}

number! {
    /// Hash algorithm of pre-authentication integrity (MS-SMB2 2.2.3.1.1).
    HashAlgorithm(u16) {
        /// SHA-512.
        SHA_512 = 0x0001;
    }
}

number! {
    /// Cipher (MS-SMB2 2.2.3.1.2).
    Cipher(u16) {
        /// AES-128-CCM.
        AES_128_CCM = 0x0001;
        /// AES-128-GCM.
        AES_128_GCM = 0x0002;
        /// AES-256-CCM.
        AES_256_CCM = 0x0003;
        /// AES-256-GCM.
        AES_256_GCM = 0x0004;
    }
}

number! {
    /// Signing algorithm (MS-SMB2 2.2.3.1.7).
    SigningAlgorithm(u16) {
        /// HMAC-SHA256.
        HMAC_SHA256 = 0x0000;
        /// AES-128-CMAC.
        AES_CMAC = 0x0001;
        /// AES-128-GMAC.
        AES_GMAC = 0x0002;
    }
}

number! {
    /// Compression algorithm (MS-SMB2 2.2.3.1.3).
    CompressionAlgorithm(u16) {
        /// Not compressed.
        NONE = 0x0000;
        /// LZNT1.
        LZNT1 = 0x0001;
        /// Plain LZ77.
        LZ77 = 0x0002;
        /// LZ77 with Huffman coding.
        LZ77_HUFFMAN = 0x0003;
        /// Runs of one byte.
        PATTERN_V1 = 0x0004;
        /// LZ4.
        LZ4 = 0x0005;
    }
}

flags! {
    /// Flags of a compression context (MS-SMB2 2.2.3.1.3).
    CompressionFlags(u32) {
        /// Several algorithms in one message.
        CHAINED = 0x0000_0001;
    }
}

/// One negotiate context.
#[derive(Clone, Copy)]
pub struct NegotiateContext<'a> {
    /// Type, also one that is not known.
    pub kind: NegotiateContextType,
    /// The data.
    pub data: &'a [u8],
    /// Where the context's header begins in the message.
    pub offset: usize,
}

impl NegotiateContext<'_> {
    /// Where the data is in the message.
    pub fn data_range(&self) -> Range<usize> {
        let start = self.offset + CONTEXT_HEADER_LEN;
        start..start + self.data.len()
    }
}

impl std::fmt::Debug for NegotiateContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} bytes at {}", self.kind, self.data.len(), self.offset)
    }
}

/// The contexts of a message, in order; ends after the first that is malformed.
#[derive(Clone)]
pub struct NegotiateContexts<'a> {
    message: &'a [u8],
    from: usize,
    next: usize,
    left: usize,
}

opaque!(NegotiateContexts<'_>);

impl<'a> NegotiateContexts<'a> {
    pub(crate) fn none() -> Self {
        Self { message: &[], from: 0, next: 0, left: 0 }
    }

    pub(crate) fn new(message: &'a [u8], offset: u32, count: u16, from: usize) -> Self {
        Self { message, from, next: offset as usize, left: count.into() }
    }

    fn read(&self) -> Result<NegotiateContext<'a>, WireError> {
        let what = "negotiate context";
        if self.left > NEGOTIATE_CONTEXTS_MAX {
            return Err(WireError::TooMany { what, limit: NEGOTIATE_CONTEXTS_MAX });
        }
        let offset = self.next;
        part(what, self.message, self.from, offset as u64, CONTEXT_HEADER_LEN as u64)?;
        let length = u16::read(self.message, offset + 2);
        let start = offset + CONTEXT_HEADER_LEN;
        let data = part(what, self.message, start, start as u64, length.into())?;
        let kind = NegotiateContextType::read(self.message, offset);
        Ok(NegotiateContext { kind, data: slice(self.message, data), offset })
    }
}

impl<'a> Iterator for NegotiateContexts<'a> {
    type Item = Result<NegotiateContext<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let read = self.read();
        match &read {
            Ok(context) => {
                self.left -= 1;
                self.next = context.data_range().end.next_multiple_of(8);
            }
            Err(_) => self.left = 0,
        }
        Some(read)
    }
}

record! {
    /// Data of a pre-authentication integrity context (MS-SMB2 2.2.3.1.1).
    PreauthIntegrity: 4 {}
    also check_preauth
}

impl<B: AsRef<[u8]>> PreauthIntegrity<B> {
    /// Hash algorithms, in order.
    pub fn algorithms(&self) -> impl Iterator<Item = HashAlgorithm> + '_ {
        numbers(self.as_bytes(), 4, u16::read(self.as_bytes(), 0)).map(HashAlgorithm)
    }

    /// Where the salt is within the data.
    pub fn salt_range(&self) -> Range<usize> {
        salt(self.as_bytes()).unwrap_or(0..0)
    }

    /// The salt.
    pub fn salt(&self) -> &[u8] {
        slice(self.as_bytes(), self.salt_range())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> PreauthIntegrity<B> {
    /// Overwrites the salt with one of the same length.
    ///
    /// # Errors
    /// When the length differs.
    pub fn set_salt(&mut self, value: &[u8]) -> Result<(), WireError> {
        let range = self.salt_range();
        if range.len() != value.len() {
            return Err(WireError::Value { what: "salt" });
        }
        if let Some(place) = self.bytes.as_mut().get_mut(range) {
            place.copy_from_slice(value);
        }
        Ok(())
    }
}

fn check_preauth(bytes: &[u8]) -> Result<(), WireError> {
    salt(bytes).map(drop)
}

fn salt(bytes: &[u8]) -> Result<Range<usize>, WireError> {
    let start = 4 + usize::from(u16::read(bytes, 0)) * 2;
    part("PreauthIntegrity", bytes, start, start as u64, u16::read(bytes, 2).into())
}

/// The values of a context that is a counted list of them: ciphers and signing algorithms (MS-SMB2 2.2.3.1.2, 2.2.3.1.7).
///
/// # Errors
/// When the list is not whole.
pub fn counted(data: &[u8]) -> Result<impl Iterator<Item = u16> + Clone + '_, WireError> {
    list("algorithms", data, 2)
}

/// Flags and algorithms of a compression context (MS-SMB2 2.2.3.1.3).
///
/// # Errors
/// When the list is not whole.
pub fn compression(
    data: &[u8],
) -> Result<(CompressionFlags, impl Iterator<Item = CompressionAlgorithm> + '_), WireError> {
    let algorithms = list("compression algorithms", data, 8)?;
    Ok((CompressionFlags::read(data, 4), algorithms.map(CompressionAlgorithm)))
}

/// A list whose count is the first field and whose values begin at `from`.
fn list<'a>(
    what: &'static str,
    data: &'a [u8],
    from: usize,
) -> Result<impl Iterator<Item = u16> + Clone + 'a, WireError> {
    fixed(what, data, from)?;
    let count = u16::read(data, 0);
    part(what, data, from, from as u64, u64::from(count) * 2)?;
    Ok(numbers(data, from, count))
}

fn numbers(bytes: &[u8], from: usize, count: u16) -> impl Iterator<Item = u16> + Clone + '_ {
    let (pairs, _) = slice(bytes, from..from + usize::from(count) * 2).as_chunks::<2>();
    pairs.iter().map(|pair| u16::from_le_bytes(*pair))
}
