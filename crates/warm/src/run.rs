//! A job from its first listing to its last file.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::task::JoinSet;

use crate::limits::{
    DEPTH_MAX, FAILURES_TOLD_MAX, FILES_MAX, PARALLEL_FILES, RECONNECT_PAUSE, RECONNECTS_MAX, WINDOW_LOOK,
};
use crate::pace::Pace;
use crate::session::{Share, is_lost};
use crate::{Account, Done, Location};

/// What to read, and how.
#[derive(Clone)]
pub struct Job {
    pub location: Location,
    /// The proxy's listener that leads to the location's server.
    pub via: SocketAddr,
    pub account: Account,
    /// Most bytes a second.
    pub rate: Option<u64>,
    /// Folder for the notes of what was read.
    pub notes: PathBuf,
    /// Identity of the local store, which those notes are about.
    pub store: String,
    /// Read everything, whatever was read before.
    pub again: bool,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files to read, and their bytes.
    pub files: u64,
    pub bytes: u64,
    /// Files that were read before and have not changed since.
    pub known_files: u64,
    pub done_files: u64,
    pub done_bytes: u64,
    pub failed_files: u64,
}

/// Whoever watches a job.
#[async_trait::async_trait]
pub trait Progress: Send {
    /// The session is up. An error ends the job: reading would be of no use.
    ///
    /// # Errors
    /// Why, in words.
    async fn connected(&mut self) -> Result<(), String>;
    /// Something has moved. Called often.
    fn moved(&mut self, totals: &Totals);
    /// A file or a folder could not be read.
    fn failed(&mut self, path: &str, why: &str);
    /// The job waits: for its time window, or to connect again.
    fn waits(&mut self, why: &str);
    /// Whether now is a time to read.
    fn is_open(&self) -> bool;
}

/// Why a job did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    #[error("{via} (for {location}): {error}")]
    Connect { via: SocketAddr, location: Location, error: smb2::Error },
    #[error("{0}")]
    Useless(String),
    #[error("{location} cannot be listed: {error}")]
    List { location: Location, error: smb2::Error },
    #[error("there are more than {FILES_MAX} files; warm it folder by folder")]
    TooManyFiles,
    #[error("the notes of what was read: {0}")]
    Notes(#[from] io::Error),
    #[error(
        "the connection was lost again and again, at last with: {0}; what was read is noted, run it again to go on"
    )]
    Lost(smb2::Error),
    #[error("the program's own error: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl WarmError {
    /// Whether the server has refused the user.
    pub fn is_refusal(&self) -> bool {
        let (WarmError::Connect { error, .. } | WarmError::List { error, .. }) = self else { return false };
        matches!(
            error.kind(),
            smb2::ErrorKind::AuthRequired
                | smb2::ErrorKind::AccessDenied
                | smb2::ErrorKind::GuestSessionRefused
        )
    }
}

/// A file to read.
struct File {
    path: String,
    size: u64,
    modified: u64,
}

/// Runs a job to its end. Dropping the future ends it between two requests; what was read is noted.
///
/// # Errors
/// It cannot connect, or has lost the connection for good; or the connection is of no use, as `progress` says.
pub async fn run(job: &Job, progress: &mut dyn Progress) -> Result<Totals, WarmError> {
    // Capital letters make no difference to a file server.
    let name = format!("{} {}", job.location, job.account).to_lowercase();
    let mut done = Done::open(&job.notes, &name, &job.store, job.again)?;
    wait_until_open(progress).await;
    let mut share = connect(job).await?;
    share
        .list(&job.location.folder)
        .await
        .map_err(|error| WarmError::List { location: job.location.clone(), error })?;
    progress.connected().await.map_err(WarmError::Useless)?;
    let mut totals = Totals::default();
    let mut files = find(job, &mut share, &done, &mut totals, progress).await?;
    let pace = Arc::new(Mutex::new(Pace::new(job.rate, Instant::now())));
    let mut failed_in_a_row = 0;
    while !files.is_empty() {
        if !progress.is_open() {
            drop(share);
            wait_until_open(progress).await;
            share = reconnect(job, progress).await?;
        }
        let before = totals.done_files;
        match read_some(&share, &mut files, &mut done, &mut totals, &pace, progress).await? {
            None => failed_in_a_row = 0,
            Some(lost) => {
                failed_in_a_row = if totals.done_files > before { 0 } else { failed_in_a_row + 1 };
                if failed_in_a_row >= RECONNECTS_MAX {
                    return Err(WarmError::Lost(lost));
                }
                progress.waits(&format!("the connection was lost: {lost}"));
                share = reconnect(job, progress).await?;
            }
        }
    }
    Ok(totals)
}

async fn connect(job: &Job) -> Result<Share, WarmError> {
    Share::connect(job.via, &job.location, &job.account).await.map_err(|error| WarmError::Connect {
        via: job.via,
        location: job.location.clone(),
        error,
    })
}

/// Connects again, with growing pauses.
async fn reconnect(job: &Job, progress: &mut dyn Progress) -> Result<Share, WarmError> {
    let mut pause = RECONNECT_PAUSE;
    for attempt in 1.. {
        match connect(job).await {
            Ok(share) => return Ok(share),
            Err(WarmError::Connect { error, .. }) if attempt < RECONNECTS_MAX && is_lost(&error) => {
                progress.waits(&format!("connecting again in {} s: {error}", pause.as_secs()));
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            Err(error) => return Err(error),
        }
    }
    connect(job).await
}

async fn wait_until_open(progress: &mut dyn Progress) {
    if !progress.is_open() {
        progress.waits("waiting for the time to read");
    }
    while !progress.is_open() {
        tokio::time::sleep(WINDOW_LOOK).await;
    }
}

/// Lists everything below the location. A folder that cannot be listed is told and left out.
async fn find(
    job: &Job,
    share: &mut Share,
    done: &Done,
    totals: &mut Totals,
    progress: &mut dyn Progress,
) -> Result<VecDeque<File>, WarmError> {
    let mut files = VecDeque::new();
    let mut folders = vec![(job.location.folder.clone(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = match share.list(&folder).await {
            Ok(entries) => entries,
            Err(error) if is_lost(&error) => {
                return Err(WarmError::List { location: job.location.clone(), error });
            }
            Err(error) => {
                tell(totals, progress, &folder, &error.to_string());
                continue;
            }
        };
        for entry in entries {
            let path = join(&folder, &entry.name);
            if entry.is_folder && depth < DEPTH_MAX {
                folders.push((path, depth + 1));
            } else if entry.is_folder {
                tell(totals, progress, &path, &format!("more than {DEPTH_MAX} folders deep"));
            } else if done.has(&path, entry.size, entry.modified) {
                totals.known_files += 1;
            } else if entry.size > 0 {
                totals.files += 1;
                totals.bytes += entry.size;
                files.push_back(File { path, size: entry.size, modified: entry.modified });
            }
            if files.len() + folders.len() > FILES_MAX {
                return Err(WarmError::TooManyFiles);
            }
        }
        progress.moved(totals);
    }
    Ok(files)
}

/// Reads files until there are none, the window closes, or the session is lost: then with what.
async fn read_some(
    share: &Share,
    files: &mut VecDeque<File>,
    done: &mut Done,
    totals: &mut Totals,
    pace: &Arc<Mutex<Pace>>,
    progress: &mut dyn Progress,
) -> Result<Option<smb2::Error>, WarmError> {
    let mut reads = JoinSet::new();
    let mut lost = None;
    loop {
        while lost.is_none() && reads.len() < PARALLEL_FILES && progress.is_open() {
            let Some(file) = files.pop_front() else { break };
            reads.spawn(read(share.clone(), file, pace.clone()));
        }
        let Some(joined) = reads.join_next().await else { return Ok(lost) };
        let (file, outcome) = joined?;
        match outcome {
            Ok(bytes) => {
                done.add(&file.path, file.size, file.modified)?;
                totals.done_files += 1;
                totals.done_bytes += bytes;
            }
            Err(error) if is_lost(&error) => {
                files.push_front(file);
                lost = Some(error);
            }
            Err(error) => tell(totals, progress, &file.path, &error.to_string()),
        }
        progress.moved(totals);
    }
}

async fn read(mut share: Share, file: File, pace: Arc<Mutex<Pace>>) -> (File, smb2::Result<u64>) {
    let took = |bytes| {
        let wait = pace.lock().unwrap_or_else(PoisonError::into_inner).spend(bytes, Instant::now());
        tokio::time::sleep(wait)
    };
    let outcome = share.read(&file.path, file.size, took).await;
    (file, outcome)
}

fn tell(totals: &mut Totals, progress: &mut dyn Progress, path: &str, why: &str) {
    totals.failed_files += 1;
    if totals.failed_files <= FAILURES_TOLD_MAX {
        progress.failed(path, why);
    }
}

fn join(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, name) => format!("{folder}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined() {
        assert_eq!(
            (join("", "a"), join("a/b", "c"), join("a", "")),
            ("a".into(), "a/b/c".into(), "a".into())
        );
    }
}
