//! The frame that an encoder is putting together.

use bytes::Bytes;

use crate::content::{Addr, Pin};
use crate::frame::{RUN_PROOF_BYTES, TOKENS_MAX, Token};
use crate::learner::{Cut, Learner};
use crate::ledger::Name;

/// One part of the draft.
pub(crate) enum Part {
    Run { at: Name, len: u64, places: Vec<(Addr, u64)> },
    New { len: usize },
}

/// Parts, new bytes and proof of a frame that is not sent yet.
#[derive(Default)]
pub(crate) struct Draft {
    pub parts: Vec<Part>,
    pub new: Vec<u8>,
    /// Chunks of `new`, in order.
    pub cuts: Vec<Cut>,
    pub lan: usize,
    /// Bytes of runs that a chunk lookup found, for the byte ledger.
    pub by_chunk: u64,
    pub pins: Vec<Box<dyn Pin>>,
    runs: blake3::Hasher,
    has_runs: bool,
}

impl Draft {
    /// Whether no further part fits.
    pub fn is_full(&self) -> bool {
        self.parts.len() + 2 >= TOKENS_MAX
    }

    /// Appends bytes that equal stored content.
    pub fn push_run(&mut self, at: Name, addr: Addr, bytes: &[u8]) {
        let len = bytes.len() as u64;
        self.runs.update(bytes);
        self.has_runs = true;
        self.lan += bytes.len();
        if let Some(Part::Run { at: start, len: known, places }) = self.parts.last_mut()
            && start.recording == at.recording
            && start.position + *known == at.position
        {
            *known += len;
            match places.last_mut() {
                Some((place, there)) if place.plus(*there) == addr => *there += len,
                _ => places.push((addr, len)),
            }
            return;
        }
        self.parts.push(Part::Run { at, len, places: vec![(addr, len)] });
    }

    /// Appends new bytes that are one chunk.
    pub fn push_new(&mut self, bytes: &[u8], cut: Cut) {
        self.new.extend_from_slice(bytes);
        self.cuts.push(cut);
        self.lan += bytes.len();
        match self.parts.last_mut() {
            Some(Part::New { len }) => *len += bytes.len(),
            _ => self.parts.push(Part::New { len: bytes.len() }),
        }
    }

    /// The new bytes at the draft's end: what a run that is found now may reach back over.
    pub fn new_tail(&self) -> &[u8] {
        match self.parts.last() {
            Some(Part::New { len }) => &self.new[self.new.len() - len..],
            _ => &[],
        }
    }

    /// Takes the last `count` new bytes back.
    pub fn pop_new(&mut self, count: usize) -> Vec<u8> {
        let taken = self.new.split_off(self.new.len() - count);
        self.lan -= count;
        if let Some(Part::New { len }) = self.parts.last_mut() {
            *len -= count;
            if *len == 0 {
                self.parts.pop();
            }
        }
        let mut left = count as u32;
        while left > 0 {
            let Some(last) = self.cuts.last_mut() else { break };
            if last.len > left {
                *last = Cut { len: last.len - left, key: None, features: None };
                break;
            }
            left -= last.len;
            self.cuts.pop();
        }
        taken
    }

    /// The proof of the draft's runs, if it has any.
    pub fn run_proof(&self) -> Option<[u8; RUN_PROOF_BYTES]> {
        self.has_runs.then(|| {
            let mut proof = [0; RUN_PROOF_BYTES];
            proof.copy_from_slice(&self.runs.finalize().as_bytes()[..RUN_PROOF_BYTES]);
            proof
        })
    }

    /// The draft's tokens, with new bytes in the head if `inline`.
    pub fn tokens(&self, inline: bool) -> Vec<Token> {
        let mut at = 0;
        self.parts
            .iter()
            .map(|part| match part {
                Part::Run { at, len, .. } => Token::Run { at: *at, len: *len },
                Part::New { len } if inline => {
                    at += len;
                    Token::Inline(Bytes::copy_from_slice(&self.new[at - len..at]))
                }
                Part::New { len } => Token::New { len: *len as u32 },
            })
            .collect()
    }

    /// The draft's runs, as (position, name, length), if the draft ends at `end`.
    pub fn runs(&self, end: u64) -> Vec<(u64, Name, u64)> {
        let mut position = end - self.lan as u64;
        let mut runs = Vec::new();
        for part in &self.parts {
            match part {
                Part::Run { at, len, .. } => {
                    runs.push((position, *at, *len));
                    position += len;
                }
                Part::New { len } => position += *len as u64,
            }
        }
        runs
    }

    /// Hands the draft's parts to a learner, in order; its new bytes go with them.
    pub fn teach(&mut self, learner: &mut Learner) {
        learner.adopt(std::mem::take(&mut self.new));
        for part in &self.parts {
            match part {
                Part::Run { places, .. } => places.iter().for_each(|&(addr, len)| learner.old(addr, len)),
                Part::New { len } => learner.adopted(*len as u64),
            }
        }
    }
}
