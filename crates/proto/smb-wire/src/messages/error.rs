//! The error response (MS-SMB2 2.2.2).

use crate::body::check_error;
use crate::error::WireError;
use crate::field::{Field, part, slice};
use crate::header::{HEADER_LEN, Header};
use crate::macros::{opaque, view};
use std::ops::Range;

view! {
    /// Error or interim response to any command (MS-SMB2 2.2.2).
    ErrorResponse [HEADER_LEN, 8usize] {
        /// Number of contexts, in dialect 3.1.1; reserved before.
        context_count, set_context_count: u8 = 2;
    }
    also check_error, check_data,
}

impl<B: AsRef<[u8]>> ErrorResponse<B> {
    /// Value of the structure size field.
    pub const STRUCTURE_SIZE: u16 = 9;

    /// The message's header.
    pub fn header(&self) -> Header<&[u8]> {
        Header::unchecked(self.bytes.as_ref())
    }

    /// Where the error data is; at least one byte is sent even where there is none.
    pub fn data_range(&self) -> Range<usize> {
        data(self.as_bytes()).unwrap_or(0..0)
    }

    /// The error data: contexts if there are any, else what the status has.
    pub fn data(&self) -> &[u8] {
        slice(self.as_bytes(), self.data_range())
    }

    /// The error contexts of dialect 3.1.1.
    pub fn contexts(&self) -> ErrorContexts<'_> {
        let data = self.data_range();
        ErrorContexts {
            message: self.as_bytes(),
            next: data.start,
            end: data.end,
            left: self.context_count(),
        }
    }
}

/// One error context (MS-SMB2 2.2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorContext<'a> {
    /// Identifier: 0, or 0x72645253 for a share that is elsewhere.
    pub id: u32,
    /// The data.
    pub data: &'a [u8],
}

/// The contexts of an error, in order; ends after the first that is malformed.
#[derive(Clone)]
pub struct ErrorContexts<'a> {
    message: &'a [u8],
    next: usize,
    end: usize,
    left: u8,
}

opaque!(ErrorContexts<'_>);

impl<'a> ErrorContexts<'a> {
    fn read(&self) -> Result<(ErrorContext<'a>, usize), WireError> {
        let what = "error context";
        let message = self.message.get(..self.end).unwrap_or(&[]);
        part(what, message, self.next, self.next as u64, 8)?;
        let start = self.next + 8;
        let data = part(what, message, start, start as u64, u32::read(message, self.next).into())?;
        let end = start + data.len();
        Ok((ErrorContext { id: u32::read(message, self.next + 4), data: slice(message, data) }, end))
    }
}

impl<'a> Iterator for ErrorContexts<'a> {
    type Item = Result<ErrorContext<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        match self.read() {
            Ok((context, end)) => {
                self.left -= 1;
                self.next = end.next_multiple_of(8);
                Some(Ok(context))
            }
            Err(error) => {
                self.left = 0;
                Some(Err(error))
            }
        }
    }
}

fn check_data(bytes: &[u8]) -> Result<(), WireError> {
    data(bytes).map(drop)
}

fn data(bytes: &[u8]) -> Result<Range<usize>, WireError> {
    let from = HEADER_LEN + 8;
    part("ErrorResponse", bytes, from, from as u64, u32::read(bytes, HEADER_LEN + 4).into())
}
