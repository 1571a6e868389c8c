//! A probe of a branch gateway: one datagram each way. The answer is signed with the key of the gateway's certificate.
//!
//! A probe is as long as the longest answer, so that nobody can use a gateway to flood others. It carries 32 random bytes,
//! which the gateway signs; who was asked, and that the answer is fresh, follows from them.

/// Length of every probe, in bytes; an answer is never longer. Fits a path of any usual MTU.
pub const PROBE_BYTES: usize = 1_200;
/// Random bytes of a probe.
pub const NONCE_BYTES: usize = 32;

const PROBE_MAGIC: &[u8; 8] = b"ISTPROB1";
const ANSWER_MAGIC: &[u8; 8] = b"ISTANSW1";
/// Keeps these signatures apart from whatever else a gateway's key signs.
const CONTEXT: &[u8] = b"isthmus gateway probe v1\0";
const LEN_BYTES: usize = 2;

/// The random bytes of one probe.
pub type Nonce = [u8; NONCE_BYTES];

/// What a gateway answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer<'b> {
    pub nonce: Nonce,
    /// ECDSA with P-256 and SHA-256, ASN.1, over [`statement`].
    pub signature: &'b [u8],
    /// The gateway's certificate, DER.
    pub certificate: &'b [u8],
}

/// A probe as a datagram.
pub fn probe(nonce: &Nonce) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(PROBE_BYTES);
    datagram.extend_from_slice(PROBE_MAGIC);
    datagram.extend_from_slice(nonce);
    datagram.resize(PROBE_BYTES, 0);
    datagram
}

/// The random bytes of a datagram, if it is a probe.
pub fn read_probe(datagram: &[u8]) -> Option<Nonce> {
    if datagram.len() != PROBE_BYTES {
        return None;
    }
    datagram.strip_prefix(PROBE_MAGIC)?.get(..NONCE_BYTES)?.try_into().ok()
}

/// The bytes that a gateway signs.
pub fn statement(nonce: &Nonce) -> Vec<u8> {
    [CONTEXT, nonce].concat()
}

/// An answer as a datagram; `None` if it would be longer than the probe.
pub fn answer(answer: &ProbeAnswer<'_>) -> Option<Vec<u8>> {
    let len = |bytes: &[u8]| u16::try_from(bytes.len()).ok().map(u16::to_le_bytes);
    let (signature, certificate) = (len(answer.signature)?, len(answer.certificate)?);
    let parts: [&[u8]; 6] =
        [ANSWER_MAGIC, &answer.nonce, &signature, answer.signature, &certificate, answer.certificate];
    let datagram = parts.concat();
    (datagram.len() <= PROBE_BYTES).then_some(datagram)
}

/// Takes an answer apart. Nothing is verified yet.
pub fn read_answer(datagram: &[u8]) -> Option<ProbeAnswer<'_>> {
    let rest = datagram.strip_prefix(ANSWER_MAGIC)?;
    let (nonce, rest) = rest.split_at_checked(NONCE_BYTES)?;
    let (signature, rest) = field(rest)?;
    let (certificate, rest) = field(rest)?;
    rest.is_empty().then_some(ProbeAnswer { nonce: nonce.try_into().ok()?, signature, certificate })
}

fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_at_checked(LEN_BYTES)?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(len.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn probes_and_answers_are_read_as_written() {
        let nonce = [9; NONCE_BYTES];
        assert_eq!(read_probe(&probe(&nonce)), Some(nonce));
        assert_eq!(
            read_probe(&probe(&nonce)[..PROBE_BYTES - 1]),
            None,
            "a short probe could not pay for its answer"
        );
        let said = ProbeAnswer { nonce, signature: &[1; 71], certificate: &[2; 600] };
        let datagram = answer(&said).unwrap();
        assert_eq!(read_answer(&datagram), Some(said));
        for cut in 0..datagram.len() {
            assert_eq!(read_answer(&datagram[..cut]), None);
        }
        assert!(answer(&ProbeAnswer { nonce, signature: &[], certificate: &[0; PROBE_BYTES] }).is_none());
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
            let mut datagram = if magic { ANSWER_MAGIC.to_vec() } else { Vec::new() };
            datagram.extend(bytes);
            let _ = read_answer(&datagram);
            let _ = read_probe(&datagram);
        }
    }
}
