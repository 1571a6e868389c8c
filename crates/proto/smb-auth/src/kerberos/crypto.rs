//! Decryption and checksums of the encryption types.
//!
//! AES and HMAC come from aws-lc-rs. The profiles around them are written here, since the libraries that have them
//! leave derived keys and plaintext behind in freed memory.

use super::EncryptionType;
use aws_lc_rs::cipher::{AES_128, AES_256, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac as sha;
use aws_lc_rs::iv::FixedLength;
use hmac::KeyInit;
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};
use zeroize::Zeroizing;

const BLOCK: usize = 16;

/// What a ciphertext is for; part of its key (RFC 4120, 7.5.1).
#[derive(Clone, Copy)]
pub(super) enum Usage {
    /// Ticket, under the service's key.
    Ticket = 2,
    /// AP-REQ authenticator, under the ticket's session key.
    Authenticator = 11,
    /// AP-REP, under the ticket's session key.
    Reply = 12,
    /// Signatures in a PAC, under the service's key (MS-PAC 2.8).
    PacSignature = 17,
}

/// Decrypts and verifies a ciphertext; `None` when the key does not fit or the bytes were altered.
pub(super) fn decrypt(
    encryption: EncryptionType,
    key: &[u8],
    usage: Usage,
    ciphertext: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    match encryption {
        EncryptionType::Rc4Hmac => decrypt_rc4(key, usage, ciphertext),
        _ => decrypt_aes(encryption, key, usage, ciphertext),
    }
}

/// Keyed checksum over `data`, as a PAC signature carries it (RFC 3961, RFC 4757, RFC 8009), and its type's number.
pub(super) fn checksum(encryption: EncryptionType, key: &[u8], usage: Usage, data: &[u8]) -> (i32, Vec<u8>) {
    match encryption {
        EncryptionType::Rc4Hmac => {
            let signing = hmac_md5(key, &[b"signaturekey\0"]);
            let digest = Md5::new().chain_update((usage as u32).to_le_bytes()).chain_update(data).finalize();
            (-138, hmac_md5(signing.as_slice(), &[&digest]).to_vec())
        }
        EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => {
            let number = if key.len() == BLOCK { 15 } else { 16 };
            (number, mac(encryption, &derive(encryption, key, usage, 0x99), &[data]))
        }
        EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384 => {
            (i32::from(encryption.number()), mac(encryption, &derive(encryption, key, usage, 0x99), &[data]))
        }
    }
}

/// RFC 4757, section 3: checksum (16), then confounder (8) and data under RC4.
fn decrypt_rc4(key: &[u8], usage: Usage, ciphertext: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (expected, body) = ciphertext.split_first_chunk::<16>()?;
    let first = hmac_md5(key, &[&(usage as u32).to_le_bytes()]);
    let second = hmac_md5(first.as_slice(), &[expected]);
    let mut plain = Zeroizing::new(body.to_vec());
    Rc4::new_from_slice(second.as_slice()).ok()?.try_apply_keystream(&mut plain).ok()?;
    verify_slices_are_equal(hmac_md5(first.as_slice(), &[&plain]).as_slice(), expected).ok()?;
    plain.get(8..).map(|data| Zeroizing::new(data.to_vec()))
}

/// RFC 3961, 5.3 with RFC 3962, and RFC 8009, section 5: confounder (16) and data under AES-CTS, then the checksum,
/// which covers the plaintext in the older profile and the ciphertext in the newer.
fn decrypt_aes(
    encryption: EncryptionType,
    key: &[u8],
    usage: Usage,
    ciphertext: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let body_bytes = ciphertext.len().checked_sub(mac_bytes(encryption))?;
    let (body, expected) = ciphertext.split_at_checked(body_bytes)?;
    let integrity = derive(encryption, key, usage, 0x55);
    let new_profile = matches!(encryption, EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384);
    if new_profile {
        verify_slices_are_equal(&mac(encryption, &integrity, &[&[0; BLOCK], body]), expected).ok()?;
    }
    let plain = decrypt_cts(&derive(encryption, key, usage, 0xaa), body)?;
    if !new_profile {
        verify_slices_are_equal(&mac(encryption, &integrity, &[&plain]), expected).ok()?;
    }
    plain.get(BLOCK..).map(|data| Zeroizing::new(data.to_vec()))
}

fn hash_of(encryption: EncryptionType) -> sha::Algorithm {
    match encryption {
        EncryptionType::Aes128Sha256 => sha::HMAC_SHA256,
        EncryptionType::Aes256Sha384 => sha::HMAC_SHA384,
        _ => sha::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
    }
}

/// Length of the truncated checksum.
fn mac_bytes(encryption: EncryptionType) -> usize {
    match encryption {
        EncryptionType::Aes128Sha256 => 16,
        EncryptionType::Aes256Sha384 => 24,
        _ => 12,
    }
}

fn mac(encryption: EncryptionType, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut context = sha::Context::with_key(&sha::Key::new(hash_of(encryption), key));
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().iter().copied().take(mac_bytes(encryption)).collect()
}

pub(super) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; 16]> {
    crate::ntlm::hmac_md5(key, parts)
}

/// The key for one usage and purpose: 0xaa encryption, 0x55 integrity, 0x99 checksums.
fn derive(encryption: EncryptionType, key: &[u8], usage: Usage, purpose: u8) -> Zeroizing<Vec<u8>> {
    let [a, b, c, d] = (usage as u32).to_be_bytes();
    let constant = [a, b, c, d, purpose];
    match encryption {
        EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384 => {
            let bytes = match (purpose, encryption) {
                (0xaa, _) => encryption.key_bytes(),
                (_, EncryptionType::Aes128Sha256) => 16,
                _ => 24,
            };
            derive_sha2(encryption, key, &constant, bytes)
        }
        _ => derive_sha1(key, &constant),
    }
}

/// RFC 8009, section 3: one block of the counter-mode derivation.
fn derive_sha2(encryption: EncryptionType, key: &[u8], label: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    let mut context = sha::Context::with_key(&sha::Key::new(hash_of(encryption), key));
    context.update(&1u32.to_be_bytes());
    context.update(label);
    context.update(&[0]);
    context.update(&((bytes * 8) as u32).to_be_bytes());
    Zeroizing::new(context.sign().as_ref().iter().copied().take(bytes).collect())
}

/// RFC 3961, 5.1: the folded constant, encrypted again and again until there is enough.
fn derive_sha1(key: &[u8], constant: &[u8; 5]) -> Zeroizing<Vec<u8>> {
    let mut derived = Zeroizing::new(Vec::with_capacity(key.len() + BLOCK));
    let mut block = fold_constant(constant);
    while derived.len() < key.len() && encrypt_block(key, &mut block).is_some() {
        derived.extend_from_slice(&block);
    }
    derived.truncate(key.len());
    derived
}

/// n-fold of five bytes to one block (RFC 3961, 5.1): copies, each turned right by 13 bits, added with end-around
/// carry.
fn fold_constant(constant: &[u8; 5]) -> [u8; BLOCK] {
    const COPIES: usize = BLOCK; // lcm(5, 16) = 80 bytes: sixteen copies of five bytes.
    let bits = constant.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
    let mut turned = bits;
    let mut long = [0u8; 5 * COPIES];
    for copy in long.as_chunks_mut::<5>().0 {
        copy.iter_mut().zip(turned.to_be_bytes().into_iter().skip(3)).for_each(|(to, from)| *to = from);
        turned = (turned >> 13 | turned << 27) & 0xff_ffff_ffff;
    }
    let blocks = long.as_chunks::<BLOCK>().0.iter();
    blocks.fold(0u128, |sum, block| add_end_around(sum, u128::from_be_bytes(*block))).to_be_bytes()
}

fn add_end_around(one: u128, other: u128) -> u128 {
    let (sum, carry) = one.overflowing_add(other);
    sum.wrapping_add(u128::from(carry))
}

fn encrypt_block(key: &[u8], block: &mut [u8; BLOCK]) -> Option<()> {
    use aws_lc_rs::cipher::EncryptingKey;
    let key = EncryptingKey::ecb(unbound(key)?).ok()?;
    key.encrypt(block).ok().map(drop)
}

fn unbound(key: &[u8]) -> Option<UnboundCipherKey> {
    let algorithm = if key.len() == BLOCK { &AES_128 } else { &AES_256 };
    UnboundCipherKey::new(algorithm, key).ok()
}

/// CBC with ciphertext stealing, the last two blocks always swapped, and a zero initial vector (RFC 3962, section 5).
fn decrypt_cts(key: &[u8], ciphertext: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let length = ciphertext.len();
    if length < BLOCK {
        return None;
    }
    let mut work = Zeroizing::new(ciphertext.to_vec());
    if length > BLOCK {
        unsteal(key, &mut work)?;
    }
    let cbc = DecryptingKey::cbc(unbound(key)?).ok()?;
    cbc.decrypt(&mut work, DecryptionContext::Iv128(FixedLength::from([0; BLOCK]))).ok()?;
    work.truncate(length);
    Some(work)
}

/// Turns the end of a stolen ciphertext (… last-but-one block, partial last block, in swapped order) into plain CBC
/// over whole blocks.
fn unsteal(key: &[u8], work: &mut Zeroizing<Vec<u8>>) -> Option<()> {
    let tail = (work.len() - 1) % BLOCK + 1;
    let start = work.len() - tail - BLOCK;
    let mut stolen: [u8; BLOCK] = work.get(start..start + BLOCK)?.try_into().ok()?;
    let whole = stolen;
    let ecb = DecryptingKey::ecb(unbound(key)?).ok()?;
    ecb.decrypt(&mut stolen, DecryptionContext::None).ok()?;
    let mut last = stolen;
    let partial = work.get(start + BLOCK..)?;
    last.iter_mut().zip(partial).for_each(|(to, &from)| *to = from);
    work.truncate(start);
    work.extend_from_slice(&last);
    work.extend_from_slice(&whole);
    Some(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        hex::decode(text.replace(' ', "")).unwrap()
    }

    /// Encrypts as a key distribution centre or client would, with a fixed confounder.
    pub(crate) fn encrypt(encryption: EncryptionType, key: &[u8], usage: Usage, plain: &[u8]) -> Vec<u8> {
        if encryption == EncryptionType::Rc4Hmac {
            let plain = [&[7u8; 8][..], plain].concat();
            let first = hmac_md5(key, &[&(usage as u32).to_le_bytes()]);
            let sum = hmac_md5(first.as_slice(), &[&plain]);
            let mut body = plain;
            Rc4::new_from_slice(hmac_md5(first.as_slice(), &[sum.as_slice()]).as_slice())
                .unwrap()
                .apply_keystream(&mut body);
            return [sum.as_slice(), &body].concat();
        }
        let plain = [&[7u8; BLOCK][..], plain].concat();
        let body = encrypt_cts(&derive(encryption, key, usage, 0xaa), &plain);
        let integrity = derive(encryption, key, usage, 0x55);
        let sum = match encryption {
            EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384 => {
                mac(encryption, &integrity, &[&[0; BLOCK], &body])
            }
            _ => mac(encryption, &integrity, &[&plain]),
        };
        [body, sum].concat()
    }

    fn encrypt_cts(key: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut previous = [0; BLOCK];
        let mut blocks: Vec<[u8; BLOCK]> = Vec::new();
        for chunk in plain.chunks(BLOCK) {
            let mut block = previous;
            block.iter_mut().zip(chunk).for_each(|(to, from)| *to ^= from);
            encrypt_block(key, &mut block).unwrap();
            blocks.push(block);
            previous = block;
        }
        let count = blocks.len();
        if count > 1 {
            blocks.swap(count - 1, count - 2);
        }
        let mut stolen = blocks.concat();
        stolen.truncate(plain.len());
        stolen
    }

    #[test]
    fn stolen_ciphertext_of_rfc_3962_is_read() {
        let key = bytes("636869636b656e207465726979616b69");
        let plain = b"I would like the General Gau's Chicken, please, and wonton soup.";
        let vectors = [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f 97"),
            (31, "fc00783e0efdb2c1d445d4c8eff7ed22 97687268d6ecccc0c07b25e25ecfe5"),
            (32, "39312523a78662d5be7fcbcc98ebf5a8 97687268d6ecccc0c07b25e25ecfe584"),
            (
                47,
                "97687268d6ecccc0c07b25e25ecfe584 b3fffd940c16a18c1b5549d2f838029e 39312523a78662d5be7fcbcc98ebf5",
            ),
        ];
        for (length, text) in vectors {
            assert_eq!(*decrypt_cts(&key, &bytes(text)).unwrap(), plain[..length], "{length}");
            assert_eq!(encrypt_cts(&key, &plain[..length]), bytes(text), "{length}");
        }
    }

    #[test]
    fn derivation_of_rfc_8009_is_met() {
        let key = bytes("3705D96080C17728A0E800EAB6E0D23C");
        let derived =
            |purpose, bytes| derive_sha2(EncryptionType::Aes128Sha256, &key, &[0, 0, 0, 2, purpose], bytes);
        assert_eq!(*derived(0x99, 16), bytes("B31A018A48F54776F403E9A396325DC3"));
        assert_eq!(*derived(0xaa, 16), bytes("9B197DD1E8C5609D6E67C3E37C62C72E"));
        assert_eq!(*derived(0x55, 16), bytes("9FDA0E56AB2D85E1569A688696C26A6C"));
        let key = bytes("6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52");
        let derived =
            |purpose, bytes| derive_sha2(EncryptionType::Aes256Sha384, &key, &[0, 0, 0, 2, purpose], bytes);
        assert_eq!(*derived(0x99, 24), bytes("EF5718BE86CC84963D8BBB5031E9F5C4BA41F28FAF69E73D"));
        assert_eq!(
            *derived(0xaa, 32),
            bytes("56AB22BEE63D82D7BC5227F6773F8EA7A5EB1C825160C38312980C442E5C7E49")
        );
        assert_eq!(*derived(0x55, 24), bytes("69B16514E3CD8E56B82010D5C73012B622C4D00FFC23ED1F"));
    }

    #[test]
    fn ciphertext_of_rfc_8009_is_read() {
        let key = bytes("3705D96080C17728A0E800EAB6E0D23C");
        let text = bytes("84D7F30754ED987BAB0BF3506BEB09CF B55402CEF7E6 877CE99E247E52D16ED4421DFDF8976C");
        let plain = decrypt_aes(EncryptionType::Aes128Sha256, &key, Usage::Ticket, &text).unwrap();
        assert_eq!(*plain, [0, 1, 2, 3, 4, 5]);
    }

    /// Made with another implementation of these types, impacket's.
    #[test]
    fn what_others_wrote_is_read() {
        let vectors = [
            (
                EncryptionType::Rc4Hmac,
                "4a597408c83f15bfcabea2d06a29cbae0179d26c972f3e1373218e07054da7e03cbfd9ffe21f0d7dd646a2a57215018\
                 9b5154afa0709ec0268",
                "268bdfa5e99b7139548020f1ba61e60f",
            ),
            (
                EncryptionType::Aes128Sha1,
                "fa4f957fb97ea806cc7d6ff926a7e022e7aa171793a1812a1247d4b4e5bba51b08f321cfdcd737ddd978d64b513467d\
                 2361cda930e929f229b016cdd09",
                "8c1754682a4579e8055ee667",
            ),
            (
                EncryptionType::Aes256Sha1,
                "2d86f529b529c03d2a9f45714e8fd31319c426e12517fbd1e13c8809faa7979a2ac087fc026a27356750b0158a6af25\
                 962c10fbd58178d9c03f25689c7",
                "e204acc9444d3d066e8d42cb",
            ),
        ];
        for (encryption, text, sum) in vectors {
            let key: Vec<u8> = (0..encryption.key_bytes() as u8).collect();
            let plain = decrypt(encryption, &key, Usage::Ticket, &bytes(text)).unwrap();
            assert_eq!(*plain, b"thirty-three bytes of plain text.", "{encryption}");
            assert_eq!(
                checksum(encryption, &key, Usage::PacSignature, b"checked").1,
                bytes(sum),
                "{encryption}"
            );
        }
    }

    #[test]
    fn each_type_reads_what_it_wrote_and_nothing_altered() {
        for encryption in EncryptionType::ALL {
            let key = vec![3u8; encryption.key_bytes()];
            for length in [0usize, 1, 15, 16, 17, 31, 32, 33, 100] {
                let plain: Vec<u8> = (0..length as u8).collect();
                let text = encrypt(encryption, &key, Usage::Ticket, &plain);
                assert_eq!(*decrypt(encryption, &key, Usage::Ticket, &text).unwrap(), plain, "{encryption}");
                assert!(decrypt(encryption, &key, Usage::Reply, &text).is_none(), "another usage");
                for place in [0, text.len() / 2, text.len() - 1] {
                    let mut altered = text.clone();
                    altered[place] ^= 1;
                    assert!(
                        decrypt(encryption, &key, Usage::Ticket, &altered).is_none(),
                        "{encryption} {place}"
                    );
                }
            }
            for length in 0..60 {
                assert!(decrypt(encryption, &key, Usage::Ticket, &vec![0; length]).is_none());
            }
        }
    }
}
