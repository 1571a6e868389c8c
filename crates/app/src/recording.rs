//! Names of recordings.

use isthmus_types::RecordingId;

/// A name that no other recording has; `None` if the system gives no random numbers.
pub(crate) fn fresh() -> Option<RecordingId> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(RecordingId(u64::from_le_bytes(bytes)))
}
