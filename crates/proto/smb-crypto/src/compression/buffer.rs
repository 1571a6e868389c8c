//! Reading and writing with every bound checked.

use super::DecompressError;

/// Compressed bytes, read from the front.
#[derive(Clone, Copy)]
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DecompressError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DecompressError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline(always)]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecompressError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecompressError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline(always)]
    pub(super) fn u8(&mut self) -> Result<u8, DecompressError> {
        self.array().map(|[byte]| byte)
    }

    #[inline(always)]
    pub(super) fn u16(&mut self) -> Result<u16, DecompressError> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline(always)]
    pub(super) fn u32(&mut self) -> Result<u32, DecompressError> {
        self.array().map(u32::from_le_bytes)
    }
}

/// Decompressed bytes: behind what the vector held before, and never more than announced.
pub(super) struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    /// Where what may be referred back to begins.
    start: usize,
    end: usize,
}

impl<'a> Output<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>, len: usize) -> Self {
        let start = bytes.len();
        Self { bytes, start, end: start.saturating_add(len) }
    }

    /// Makes what was written so far unreachable for back references.
    pub(super) fn forget(&mut self) {
        self.start = self.bytes.len();
    }

    /// Bytes written since the beginning or the last [`forget`](Self::forget).
    #[inline(always)]
    pub(super) fn written(&self) -> usize {
        self.bytes.len() - self.start
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        self.end.saturating_sub(self.bytes.len())
    }

    #[inline(always)]
    pub(super) fn push(&mut self, byte: u8) -> Result<(), DecompressError> {
        self.claim(1)?;
        self.bytes.push(byte);
        Ok(())
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), DecompressError> {
        self.claim(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn fill(&mut self, byte: u8, count: usize) -> Result<(), DecompressError> {
        self.claim(count)?;
        self.bytes.resize(self.bytes.len() + count, byte);
        Ok(())
    }

    /// Lets `write` write into all the room there is and say how much it wrote.
    pub(super) fn fill_by(
        &mut self,
        write: impl FnOnce(&mut [u8]) -> Result<usize, DecompressError>,
    ) -> Result<(), DecompressError> {
        let from = self.bytes.len();
        self.bytes.resize(self.end, 0);
        let written = self.bytes.get_mut(from..).map_or(Ok(0), write);
        self.bytes.truncate(from + *written.as_ref().unwrap_or(&0));
        written.map(|_| ())
    }

    /// Repeats `len` bytes from `distance` bytes back. If that is less than `len`, the bytes written meanwhile are
    /// repeated too.
    #[inline]
    pub(super) fn repeat(&mut self, distance: usize, len: usize) -> Result<(), DecompressError> {
        if distance == 0 || distance > self.written() {
            return Err(DecompressError::Malformed);
        }
        self.claim(len)?;
        let from = self.bytes.len() - distance;
        let mut left = len;
        // Every turn doubles what can be copied at once.
        while left > 0 {
            let step = left.min(self.bytes.len() - from);
            self.bytes.extend_from_within(from..from + step);
            left -= step;
        }
        Ok(())
    }

    #[inline(always)]
    fn claim(&self, len: usize) -> Result<(), DecompressError> {
        if len <= self.room() { Ok(()) } else { Err(DecompressError::SizeMismatch) }
    }
}
