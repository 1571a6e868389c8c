use crate::KeysError;
use nix::sys::resource::{Resource, setrlimit};
use std::io;

/// Turns core dumps of this process off, and forbids other processes of its user to read its memory. To be called
/// once, before any secret is read.
///
/// Programs that it starts inherit the limit of zero for core files.
pub fn deny_core_dumps() -> Result<(), KeysError> {
    let denied = setrlimit(Resource::RLIMIT_CORE, 0, 0).and_then(|()| nix::sys::prctl::set_dumpable(false));
    denied.map_err(|error| KeysError::CoreDumps(io::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_confirms_it() {
        deny_core_dumps().unwrap();
        let core = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = core.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(line.split_whitespace().skip(4).collect::<Vec<_>>(), ["0", "0", "bytes"]);
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
    }
}
