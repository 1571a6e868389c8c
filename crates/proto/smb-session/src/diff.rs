//! Bytes as differences from a prediction.

use crate::error::AssembleError;
use isthmus_types::varint;

/// Equal bytes between two differences that are not worth a run of their own, which costs two bytes.
const GAP: usize = 2;

/// Number of bytes in which the two differ, where both are.
pub(crate) fn cost(predicted: &[u8], actual: &[u8]) -> usize {
    predicted.iter().zip(actual).filter(|(a, b)| a != b).count()
}

/// Appends the runs of `actual` that `predicted` does not have: their number, then for each how many bytes stay as
/// predicted before it, its length, its bytes. What `predicted` is too short for is one run. Appends nothing, and says
/// so, where there are none.
pub(crate) fn put(predicted: &[u8], actual: &[u8], out: &mut Vec<u8>) -> bool {
    let runs = runs(predicted, actual);
    if runs.is_empty() {
        return false;
    }
    varint::put(out, runs.len() as u64);
    let mut at = 0;
    for (start, end) in runs {
        varint::put(out, (start - at) as u64);
        varint::put(out, (end - start) as u64);
        out.extend_from_slice(actual.get(start..end).unwrap_or(&[]));
        at = end;
    }
    true
}

fn runs(predicted: &[u8], actual: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let both = predicted.len().min(actual.len());
    let differing = predicted.iter().zip(actual).enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at);
    for at in differing {
        match runs.last_mut() {
            Some((_, end)) if at - *end <= GAP => *end = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    if actual.len() > both {
        match runs.last_mut() {
            Some((_, end)) if both - *end <= GAP => *end = actual.len(),
            _ => runs.push((both, actual.len())),
        }
    }
    runs
}

/// Overwrites `predicted`, which has the right length already, by the runs at the front of `input`.
pub(crate) fn take(predicted: &mut [u8], input: &mut &[u8]) -> Result<(), AssembleError> {
    const BAD: AssembleError = AssembleError::Malformed("differences");
    let runs = varint::take(input).ok_or(BAD)?;
    if runs > predicted.len() as u64 {
        return Err(BAD);
    }
    let mut rest = predicted;
    for _ in 0..runs {
        let skip = usize::try_from(varint::take(input).ok_or(BAD)?).map_err(|_| BAD)?;
        let length = usize::try_from(varint::take(input).ok_or(BAD)?).map_err(|_| BAD)?;
        let (_, after) = rest.split_at_mut_checked(skip).ok_or(BAD)?;
        let (place, after) = after.split_at_mut_checked(length).ok_or(BAD)?;
        let (bytes, left) = input.split_at_checked(length).ok_or(BAD)?;
        place.copy_from_slice(bytes);
        *input = left;
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn differences_give_back_what_they_were_made_of(
            predicted in prop::collection::vec(0u8..3, 0..60),
            actual in prop::collection::vec(0u8..3, 0..60),
        ) {
            let mut out = Vec::new();
            let some = put(&predicted, &actual, &mut out);
            let mut made = predicted.clone();
            made.resize(actual.len(), 0);
            let mut rest = out.as_slice();
            if some {
                take(&mut made, &mut rest).unwrap();
            }
            prop_assert_eq!(made, actual);
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn runs_beyond_the_end_are_refused() {
        for bad in [&[1, 9, 1, 0][..], &[1, 0, 9, 0], &[1, 0, 2, 0], &[9], &[], &[1, 0x80]] {
            assert!(take(&mut [0; 8], &mut { bad }).is_err(), "{bad:?}");
        }
    }
}
