//! Changes that make a message longer or shorter. The results are elements by themselves:
//! [`crate::compound::join`] makes a compound of them again.

use crate::body::{Direction, Request, Response};
use crate::build::{NewContext, create_context};
use crate::create_context::{CreateContext, CreateContexts};
use crate::error::WireError;
use crate::field::{Field, slice};
use crate::header::HEADER_LEN;
use crate::negotiate_context::{NegotiateContextType, NegotiateContexts};
use std::ops::Range;

/// The same CREATE request or response with a create context added, in place of those of its name if there are any. All
/// other contexts stay as they are.
///
/// # Errors
/// When the message is no CREATE, or its contexts are malformed.
pub fn with_create_context(element: &[u8], context: &NewContext<'_>) -> Result<Vec<u8>, WireError> {
    rewrite_create(element, |kept| kept.name != context.name, Some(context))
}

/// The same CREATE request or response without the create contexts of a name.
///
/// # Errors
/// When the message is no CREATE, or its contexts are malformed.
pub fn without_create_context(element: &[u8], name: &[u8]) -> Result<Vec<u8>, WireError> {
    rewrite_create(element, |kept| kept.name != name, None)
}

/// The same NEGOTIATE request or response without the contexts of some types. It is no longer what the peer has hashed.
///
/// # Errors
/// When the message is no NEGOTIATE, or its contexts are malformed.
pub fn without_negotiate_contexts(
    message: &[u8],
    unwanted: impl Fn(NegotiateContextType) -> bool,
) -> Result<Vec<u8>, WireError> {
    let mut count = 0_u16;
    let mut contexts: Vec<u8> = Vec::new();
    let (all, offset_at, count_at, fixed_len, part_end) = negotiate(message)?;
    let all: Vec<_> = all.collect::<Result<_, _>>()?;
    for context in all.iter().filter(|context| !unwanted(context.kind)) {
        contexts.resize(contexts.len().next_multiple_of(8), 0);
        contexts.extend_from_slice(slice(message, context.offset..context.data_range().end));
        count += 1;
    }
    let Some(first) = all.first() else { return Ok(message.to_vec()) };
    // Whatever is before the contexts stays; a message that has something after them keeps everything.
    let head = if part_end <= first.offset { first.offset } else { message.len() };
    let mut edited = slice(message, 0..head.max(fixed_len)).to_vec();
    edited.resize(edited.len().next_multiple_of(8), 0);
    let offset = if count == 0 { 0 } else { length(edited.len())? };
    edited.extend_from_slice(&contexts);
    offset.write(&mut edited, offset_at);
    count.write(&mut edited, count_at);
    Ok(edited)
}

/// Contexts, places of their offset and count, end of the fixed part and of the other variable part.
fn negotiate(message: &[u8]) -> Result<(NegotiateContexts<'_>, usize, usize, usize, usize), WireError> {
    let direction = direction(message)?;
    let from = HEADER_LEN;
    if direction == Direction::Request {
        let view = crate::messages::NegotiateRequest::parse(message)?;
        let end = from + 36 + usize::from(view.dialect_count()) * 2;
        let contexts = if view.has_contexts() {
            NegotiateContexts::new(
                message,
                u32::read(message, from + 28),
                u16::read(message, from + 32),
                from + 36,
            )
        } else {
            NegotiateContexts::none()
        };
        return Ok((contexts, from + 28, from + 32, from + 36, end));
    }
    let view = crate::messages::NegotiateResponse::parse(message)?;
    let contexts = if view.dialect() == crate::messages::Dialect::SMB_3_1_1 {
        NegotiateContexts::new(
            message,
            u32::read(message, from + 60),
            u16::read(message, from + 6),
            from + 64,
        )
    } else {
        NegotiateContexts::none()
    };
    Ok((contexts, from + 60, from + 6, from + 64, view.security_buffer_range().end))
}

fn rewrite_create(
    element: &[u8],
    keep: impl Fn(&CreateContext<'_>) -> bool,
    added: Option<&NewContext<'_>>,
) -> Result<Vec<u8>, WireError> {
    let (range, offset_at, part_end, fixed_len) = create(element)?;
    let mut contexts: Vec<Vec<u8>> = Vec::new();
    for context in CreateContexts::new(element, range.clone()) {
        let context = context?;
        if keep(&context) {
            contexts.push(slice(element, context.range()).to_vec());
        }
    }
    if let Some(added) = added {
        contexts.push(create_context(added)?);
    }
    let head = match (range.is_empty(), part_end <= range.start) {
        (true, _) => part_end.max(fixed_len),
        (false, true) => range.start,
        // The name stands behind the contexts, so that these move to the end.
        (false, false) => element.len(),
    };
    let mut edited = slice(element, 0..head).to_vec();
    0_u32.write(&mut edited, 20);
    if contexts.is_empty() {
        // A structure of odd size wants a byte at least.
        edited.resize(edited.len().max(fixed_len + 1), 0);
        0_u64.write(&mut edited, offset_at);
        return Ok(edited);
    }
    edited.resize(edited.len().next_multiple_of(8), 0);
    let start = edited.len();
    let last = contexts.len() - 1;
    for (index, context) in contexts.iter().enumerate() {
        let at = edited.len();
        edited.extend_from_slice(context);
        let padded = context.len().next_multiple_of(8);
        let next = if index == last { 0 } else { length(padded)? };
        if index != last {
            edited.resize(at + padded, 0);
        }
        next.write(&mut edited, at);
    }
    length(start)?.write(&mut edited, offset_at);
    let all = length(edited.len() - start)?;
    all.write(&mut edited, offset_at + 4);
    Ok(edited)
}

/// Where the contexts are, the place of their offset, the end of the name and the end of the fixed part.
fn create(element: &[u8]) -> Result<(Range<usize>, usize, usize, usize), WireError> {
    let wrong = WireError::Value { what: "command of a message with create contexts" };
    if direction(element)? == Direction::Request {
        let Request::Create(view) = Request::parse(element)? else { return Err(wrong) };
        return Ok((view.contexts_range(), HEADER_LEN + 48, view.name_range().end, HEADER_LEN + 56));
    }
    let Response::Create(view) = Response::parse(element)? else { return Err(wrong) };
    Ok((view.contexts_range(), HEADER_LEN + 80, 0, HEADER_LEN + 88))
}

fn direction(message: &[u8]) -> Result<Direction, WireError> {
    let header = crate::header::Header::parse(message)?;
    Ok(if header.is_response() { Direction::Response } else { Direction::Request })
}

fn length(length: usize) -> Result<u32, WireError> {
    u32::try_from(length).map_err(|_| WireError::TooLong {
        what: "contexts",
        length,
        limit: u32::MAX as usize,
    })
}
