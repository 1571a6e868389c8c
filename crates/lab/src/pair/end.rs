//! One proxy of the pair.

use crate::error::{Context as _, LabError, Result};
use crate::http::{self, Answer};
use crate::metrics::Metrics;
use crate::place::Place;
use crate::proc::{Proc, ProcSpec, Usage, tail};
use isthmus_types::Side;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a proxy has sent to and received from the other, as it counts at its sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WanBytes {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
}

impl WanBytes {
    /// Both directions.
    pub fn total(self) -> u64 {
        self.sent + self.received
    }
}

/// One proxy: its files, and its process while it runs.
pub struct End {
    side: Side,
    admin: SocketAddr,
    folder: PathBuf,
    spec: ProcSpec,
    process: Option<Proc>,
}

impl End {
    pub(super) fn new(
        side: Side,
        place: &Place,
        admin: SocketAddr,
        binary: &Path,
        folder: PathBuf,
        set: &[String],
    ) -> End {
        let file = folder.join(if side == Side::Client { "client.toml" } else { "server.toml" });
        let mut spec = ProcSpec::new(&format!("the {side} proxy"), binary, folder.join("log"))
            .args(["run", "--config"])
            .args([&file])
            .place(place);
        for assignment in set {
            spec = spec.args(["--set", assignment]);
        }
        End { side, admin, folder, spec, process: None }
    }

    /// Where it runs.
    pub fn place(&self) -> &Place {
        &self.spec.place
    }

    /// Its admin port, as seen from its place.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.folder.join(if self.side == Side::Client { "client.toml" } else { "server.toml" })
    }

    /// The folder of its store.
    pub fn store_path(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        tail(&self.spec.log)
    }

    /// Its whole log.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn log(&self) -> Result<String> {
        let bytes =
            std::fs::read(&self.spec.log).context(|| format!("reading {}", self.spec.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Its process.
    ///
    /// # Errors
    /// It is not running.
    pub fn process(&mut self) -> Result<&mut Proc> {
        let side = self.side;
        self.process.as_mut().ok_or_else(|| not_running(side))
    }

    /// Starts it, if it is not running.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(&mut self) -> Result<()> {
        if self.process.is_none() {
            self.process = Some(Proc::spawn(&self.spec)?);
        }
        Ok(())
    }

    /// Stops it with SIGTERM.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.stop().map(drop))
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// It does not end.
    pub fn kill9(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill9().map(drop))
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// It is not running.
    pub fn usage(&self) -> Result<Usage> {
        self.process.as_ref().ok_or_else(|| not_running(self.side))?.usage()
    }

    /// Asks its admin port.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn get(&self, path: &str) -> Result<Answer> {
        http::get(self.place(), self.admin, path)
    }

    /// Reads its metrics.
    ///
    /// # Errors
    /// Nobody answers, or not with metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::parse(&self.get("/metrics")?.body)
    }

    /// WAN bytes so far.
    ///
    /// # Errors
    /// As [`End::metrics`]; also when the metric is missing, so that no figure is 0 by mistake.
    pub fn wan_bytes(&self) -> Result<WanBytes> {
        let metrics = self.metrics()?;
        let count = |direction| count(&metrics, "isthmus_wan_bytes_total", &[("direction", direction)]);
        Ok(WanBytes { sent: count("sent")?, received: count("received")? })
    }

    /// LAN bytes carried so far, both directions.
    ///
    /// # Errors
    /// As [`End::metrics`].
    pub fn lan_bytes(&self) -> Result<u64> {
        Ok(self.metrics()?.sum("isthmus_lan_bytes_total", &[]) as u64)
    }

    /// Why it is not ready, or `None` when it is.
    ///
    /// # Errors
    /// It has ended; the error shows its log.
    pub fn why_not_ready(&mut self) -> Result<Option<String>> {
        let side = self.side;
        let process = self.process.as_mut().ok_or_else(|| not_running(side))?;
        if let Some(status) = process.exit_status()? {
            let output = process.log_tail();
            return Err(LabError::Command {
                program: format!("the {side} proxy"),
                status: status.to_string(),
                output,
            });
        }
        Ok(match self.get("/readyz") {
            Ok(Answer { status: 200, .. }) => None,
            Ok(answer) => Some(answer.body.trim().to_string()),
            Err(error) => Some(error.to_string()),
        })
    }

    /// Copies its store aside; the proxy should be stopped.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn save_store(&self, to: &Path) -> Result<()> {
        copy_folder(&self.store_path(), to)
    }

    /// Puts a saved store in place of the present one; the proxy must be stopped.
    ///
    /// # Errors
    /// A file cannot be removed or copied.
    pub fn restore_store(&self, from: &Path) -> Result<()> {
        self.remove_store()?;
        copy_folder(from, &self.store_path())
    }

    /// Removes its store; the proxy must be stopped.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_store(&self) -> Result<()> {
        match std::fs::remove_dir_all(self.store_path()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result.context(|| format!("removing {}", self.store_path().display())),
        }
    }
}

/// A counter that must be there.
fn count(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
    // A peer that has not been seen has no line of its own yet; then the whole metric may still be absent.
    let value = metrics.find(name, labels).or_else(|| metrics.find("isthmus_build_info", &[]).map(|_| 0.0));
    value.map(|value| value as u64).ok_or_else(|| LabError::Format {
        what: "the metrics of a proxy".into(),
        detail: format!("{name} is missing"),
    })
}

fn not_running(side: Side) -> LabError {
    LabError::Format { what: format!("the {side} proxy"), detail: "it is not running".into() }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).context(|| format!("making {}", to.display()))?;
    let entries = std::fs::read_dir(from).context(|| format!("listing {}", from.display()))?;
    for entry in entries {
        let entry = entry.context(|| format!("listing {}", from.display()))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            std::fs::copy(&source, &target).context(|| format!("copying {}", source.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_metric_is_not_a_zero() {
        let metrics =
            Metrics::parse("isthmus_build_info 1\nisthmus_wan_bytes_total{direction=\"sent\"} 5\n").unwrap();
        let read = |m: &Metrics, direction| count(m, "isthmus_wan_bytes_total", &[("direction", direction)]);
        assert_eq!(read(&metrics, "sent").unwrap(), 5);
        assert_eq!(read(&metrics, "received").unwrap(), 0);
        assert!(read(&Metrics::default(), "sent").is_err());
    }

    #[test]
    fn a_store_is_saved_and_restored_whole() {
        let dir = tempfile::tempdir().unwrap();
        let end = End::new(
            Side::Client,
            &Place::Local,
            SocketAddr::from(([127, 0, 0, 1], 1)),
            Path::new("x"),
            dir.path().into(),
            &["a=1".into()],
        );
        std::fs::create_dir_all(end.store_path().join("segments")).unwrap();
        std::fs::write(end.store_path().join("segments/1"), "one").unwrap();
        end.save_store(&dir.path().join("saved")).unwrap();
        std::fs::write(end.store_path().join("segments/2"), "two").unwrap();
        end.restore_store(&dir.path().join("saved")).unwrap();
        assert!(end.store_path().join("segments/1").is_file());
        assert!(!end.store_path().join("segments/2").exists());
        end.remove_store().unwrap();
        end.remove_store().unwrap();
        assert!(end.usage().is_err(), "it was never started");
    }
}
