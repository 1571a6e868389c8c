//! AES-CCM with SMB's parameters: 11-byte nonce, 16-byte tag (RFC 3610, NIST SP 800-38C).
//!
//! aws-lc-rs does not offer CCM. CCM is two passes of AES over each block: the CBC-MAC, where every block waits for the
//! one before, and counter mode, where none does. Both are done in one loop here, inside the block cipher's own
//! instruction-set dispatch, so that the processor works on the next counter blocks while the MAC's chain makes it wait:
//! the whole is as fast as the MAC alone.

use aes::cipher::{
    Array, Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, Key,
    KeyInit, ParBlocks, consts::U16,
};
use aws_lc_rs::constant_time;
use zeroize::Zeroize;

use crate::aead::{AAD_LEN, Failed, TAG_LEN};

const BLOCK_LEN: usize = 16;
const NONCE_LEN: usize = 11;
/// First byte of the MAC's first block: associated data present, (16 − 2) / 2 for the tag, 4 − 1 for the length field.
const MAC_FLAGS: u8 = 0x40 | (7 << 3) | 3;
/// First byte of the counter blocks: 4 − 1 for the counter.
const COUNTER_FLAGS: u8 = 3;

/// A prepared key.
pub(crate) struct Ccm<C>(C);

impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit> Ccm<C> {
    pub(crate) fn new(key: &Key<C>) -> Self {
        Self(C::new(key))
    }

    /// Encrypts `data` where it lies and gives its tag; fails if `data` is 2³² bytes or longer.
    pub(crate) fn seal(
        &self,
        nonce: &[u8; 16],
        aad: &[u8; AAD_LEN],
        data: &mut [u8],
    ) -> Result<[u8; TAG_LEN], Failed> {
        let mut tag = [0; TAG_LEN];
        let start = Start::new(nonce, aad, data.len())?;
        self.0.encrypt_with_backend(Pass::<true> { start, data, tag: &mut tag });
        Ok(tag)
    }

    /// Decrypts `data` where it lies if `tag` is right; otherwise wipes it.
    pub(crate) fn open(
        &self,
        nonce: &[u8; 16],
        aad: &[u8; AAD_LEN],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Failed> {
        let mut computed = [0; TAG_LEN];
        let start = Start::new(nonce, aad, data.len())?;
        self.0.encrypt_with_backend(Pass::<false> { start, data, tag: &mut computed });
        constant_time::verify_slices_are_equal(&computed, tag).map_err(|_| {
            data.zeroize();
            Failed
        })
    }
}

/// What both passes begin with.
struct Start {
    /// Nonce, length and associated data, as the MAC takes them in.
    mac_blocks: [[u8; BLOCK_LEN]; 4],
    /// The counter block that makes the tag; those of the data follow.
    counter: u128,
}

impl Start {
    fn new(nonce: &[u8; 16], aad: &[u8; AAD_LEN], data_len: usize) -> Result<Self, Failed> {
        let data_len = u32::try_from(data_len).map_err(|_| Failed)?.to_be_bytes();
        let nonce = nonce.iter().copied().take(NONCE_LEN);
        let mut counter = [0; BLOCK_LEN];
        let bytes = [COUNTER_FLAGS].into_iter().chain(nonce.clone());
        counter.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);

        let mut mac_blocks = [[0; BLOCK_LEN]; 4];
        let aad_len = (AAD_LEN as u16).to_be_bytes();
        let bytes = [MAC_FLAGS].into_iter().chain(nonce).chain(data_len).chain(aad_len).chain(*aad);
        mac_blocks.as_flattened_mut().iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Ok(Self { mac_blocks, counter: u128::from_be_bytes(counter) })
    }
}

/// One run over a message, to encrypt (`SEAL`) or to decrypt.
struct Pass<'a, const SEAL: bool> {
    start: Start,
    data: &'a mut [u8],
    tag: &'a mut [u8; TAG_LEN],
}

impl<const SEAL: bool> BlockSizeUser for Pass<'_, SEAL> {
    type BlockSize = U16;
}

impl<const SEAL: bool> BlockCipherEncClosure for Pass<'_, SEAL> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut mac = 0;
        for block in &self.start.mac_blocks {
            mac = encrypt(backend, mac ^ u128::from_ne_bytes(*block));
        }
        let mut counter = self.start.counter;
        let tag_mask = encrypt(backend, u128::from_ne_bytes(counter.to_be_bytes()));

        let wide = ParBlocks::<B>::default().len();
        let mut groups = self.data.chunks_exact_mut(wide * BLOCK_LEN);
        for group in &mut groups {
            let mut stream = ParBlocks::<B>::from_fn(|_| {
                counter += 1;
                Array(counter.to_be_bytes())
            });
            backend.encrypt_par_blocks_inplace(&mut stream);
            for (block, stream) in group.as_chunks_mut().0.iter_mut().zip(&stream) {
                mac = crypt::<B, SEAL>(backend, mac, u128::from_ne_bytes(stream.0), block);
            }
        }
        let (blocks, tail) = groups.into_remainder().as_chunks_mut();
        for block in blocks {
            counter += 1;
            let stream = encrypt(backend, u128::from_ne_bytes(counter.to_be_bytes()));
            mac = crypt::<B, SEAL>(backend, mac, stream, block);
        }
        if !tail.is_empty() {
            counter += 1;
            let stream = encrypt(backend, u128::from_ne_bytes(counter.to_be_bytes()));
            mac = crypt_tail::<B, SEAL>(backend, mac, stream, tail);
        }
        *self.tag = (mac ^ tag_mask).to_ne_bytes();
    }
}

/// One block through the block cipher. Numbers stand for blocks in the machine's byte order, since they are only xored.
#[inline(always)]
fn encrypt<B: BlockCipherEncBackend<BlockSize = U16>>(backend: &B, block: u128) -> u128 {
    let mut block: Block<B> = Array(block.to_ne_bytes());
    backend.encrypt_block_inplace(&mut block);
    u128::from_ne_bytes(block.0)
}

/// Applies the key stream to one block and gives the MAC after its plaintext.
#[inline(always)]
fn crypt<B: BlockCipherEncBackend<BlockSize = U16>, const SEAL: bool>(
    backend: &B,
    mac: u128,
    stream: u128,
    block: &mut [u8; BLOCK_LEN],
) -> u128 {
    let before = u128::from_ne_bytes(*block);
    let after = before ^ stream;
    *block = after.to_ne_bytes();
    encrypt(backend, mac ^ if SEAL { before } else { after })
}

/// The same for a last piece shorter than a block, which the MAC takes in followed by zeros.
#[inline(always)]
fn crypt_tail<B: BlockCipherEncBackend<BlockSize = U16>, const SEAL: bool>(
    backend: &B,
    mac: u128,
    stream: u128,
    piece: &mut [u8],
) -> u128 {
    let mut plain = [0; BLOCK_LEN];
    for ((byte, stream), plain) in piece.iter_mut().zip(stream.to_ne_bytes()).zip(&mut plain) {
        let after = *byte ^ stream;
        *plain = if SEAL { *byte } else { after };
        *byte = after;
    }
    encrypt(backend, mac ^ u128::from_ne_bytes(plain))
}

#[cfg(test)]
mod tests {
    use aes::{Aes128Enc, Aes256Enc};
    use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
    use aws_lc_rs::iv::FixedLength;

    use super::*;

    /// CCM written out from its definition over another library's AES, with nothing clever.
    fn reference(key: &[u8], nonce: &[u8; 16], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
        let aes = |block: [u8; 16]| {
            let algorithm = if key.len() == 16 { &AES_128 } else { &AES_256 };
            let key = EncryptingKey::cbc(UnboundCipherKey::new(algorithm, key).unwrap()).unwrap();
            let mut block = block;
            let zero = EncryptionContext::Iv128(FixedLength::from([0; 16]));
            key.less_safe_encrypt(&mut block, zero).unwrap();
            block
        };
        let mut mac_input = vec![0x7B];
        mac_input.extend(&nonce[..11]);
        mac_input.extend((data.len() as u32).to_be_bytes());
        mac_input.extend((aad.len() as u16).to_be_bytes());
        mac_input.extend(aad);
        mac_input.resize(mac_input.len().next_multiple_of(16), 0);
        mac_input.extend(&*data);
        mac_input.resize(mac_input.len().next_multiple_of(16), 0);
        let mut mac = [0; 16];
        for block in mac_input.chunks(16) {
            mac = aes(std::array::from_fn(|at| mac[at] ^ block[at]));
        }
        let stream = |counter: u32| {
            let mut block = [3; 16];
            block[1..12].copy_from_slice(&nonce[..11]);
            block[12..].copy_from_slice(&counter.to_be_bytes());
            aes(block)
        };
        for (at, piece) in data.chunks_mut(16).enumerate() {
            piece.iter_mut().zip(stream(at as u32 + 1)).for_each(|(byte, stream)| *byte ^= stream);
        }
        let mask = stream(0);
        std::array::from_fn(|at| mac[at] ^ mask[at])
    }

    #[test]
    fn agrees_with_the_definition_at_every_length_around_a_block_and_a_wide_step() {
        let (short, long) = ([0x42; 16], [0x24; 32]);
        let (nonce, aad) =
            (std::array::from_fn(|at| at as u8 + 1), std::array::from_fn(|at| at as u8 ^ 0x5A));
        let ccm_short = Ccm::<Aes128Enc>::new(&short.into());
        let ccm_long = Ccm::<Aes256Enc>::new(&long.into());
        for length in (0..600).chain([4_095, 4_096, 70_001]) {
            let plain: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let (mut ours, mut theirs) = (plain.clone(), plain.clone());
            let tag = ccm_short.seal(&nonce, &aad, &mut ours).ok().unwrap();
            assert_eq!(tag, reference(&short, &nonce, &aad, &mut theirs), "tag at {length}");
            assert!(ours == theirs, "ciphertext at {length}");
            assert!(ccm_short.open(&nonce, &aad, &mut ours, &tag).is_ok());
            assert!(ours == plain, "plaintext at {length}");

            let (mut ours, mut theirs) = (plain.clone(), plain.clone());
            let tag = ccm_long.seal(&nonce, &aad, &mut ours).ok().unwrap();
            assert_eq!(tag, reference(&long, &nonce, &aad, &mut theirs), "long tag at {length}");
            assert!(ours == theirs, "long ciphertext at {length}");
        }
    }

    #[test]
    fn what_cannot_be_opened_is_wiped() {
        let ccm = Ccm::<Aes128Enc>::new(&[1; 16].into());
        let mut data = vec![0x55; 100];
        let mut tag = ccm.seal(&[2; 16], &[3; 32], &mut data).ok().unwrap();
        tag[15] ^= 1;
        assert!(ccm.open(&[2; 16], &[3; 32], &mut data, &tag).is_err());
        assert_eq!(data, [0; 100]);
    }
}
