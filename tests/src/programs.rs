//! The proxies under test.

use isthmus_lab::pair::{BINARIES_VARIABLE, Binaries};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

static PROGRAMS: OnceLock<Binaries> = OnceLock::new();

/// Both proxies: those that `ISTHMUS_BIN_DIR` names, or else built now from this check-out, so that no test ever runs
/// yesterday's.
pub fn programs() -> &'static Binaries {
    PROGRAMS.get_or_init(|| {
        if std::env::var_os(BINARIES_VARIABLE).is_none() {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args([
                    "build",
                    "--quiet",
                    "--profile",
                    "test",
                    "-p",
                    "isthmus-client",
                    "-p",
                    "isthmus-server",
                ])
                .current_dir(root)
                .status()
                .expect("cargo can be run");
            assert!(status.success(), "the proxies do not build");
        }
        Binaries::find().unwrap()
    })
}
