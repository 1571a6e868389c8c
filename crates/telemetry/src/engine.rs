//! What removes round trips on one connection, as it is asked for the console.

/// Whether round trips are removed on a connection, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acceleration {
    /// `bounded`, `strict` or `off`.
    pub mode: &'static str,
    /// Why nothing is done; empty while something is.
    pub reason: String,
    /// What is held at the moment that permits answers near the client.
    pub permits: u64,
}

/// One request of a client and its answer, as a trace has it. Names are shown to whoever has asked, and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRequest {
    /// Counts up from 1.
    pub number: u64,
    /// Microseconds since the connection was opened.
    pub at_micros: u64,
    /// The commands of its compound.
    pub request: String,
    /// The file, if that is known.
    pub name: String,
    /// `local`, `ahead` or `server`.
    pub answered: &'static str,
    /// The permit, or empty.
    pub permit: String,
    /// NTSTATUS of the answer.
    pub status: u32,
    /// Microseconds from the request to the answer.
    pub micros: u64,
}

/// Asked by the console for what it shows of a live connection.
pub trait Accelerator: Send + Sync {
    /// What it does now.
    fn acceleration(&self) -> Acceleration;

    /// Requests after one of a number, the oldest first; none where none are followed. They are kept from the first call on, and
    /// for as long as calls go on.
    fn trace(&self, after: u64) -> Option<Vec<TracedRequest>>;
}
