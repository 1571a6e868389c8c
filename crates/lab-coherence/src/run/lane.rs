//! One seed's clients at work, and what is left when they are done.

use super::actor::{Actor, Part, Seen};
use crate::client::{Connection, Settings};
use crate::history::{History, Remains, Via, read_cells};
use crate::plan::steps;
use isthmus_lab::{LabError, Result};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Opens are kept for so long after the last step, so that late breaks are seen.
const HELD_AT_LAST: Duration = Duration::from_millis(700);

/// After the last close the disk is looked at when this has passed: a name may outlive its deletion by a second.
const SETTLED_AFTER: Duration = Duration::from_millis(1_200);

/// The connections of the clients that run one seed after another.
pub(super) struct Lane {
    pub clients: Vec<(Via, Settings)>,
    pub connections: Vec<Option<Arc<Connection>>>,
}

impl Lane {
    pub fn new(clients: Vec<(Via, Settings)>) -> Lane {
        let connections = clients.iter().map(|_| None).collect();
        Lane { clients, connections }
    }

    /// Runs a seed in a folder of its own.
    pub async fn run(&mut self, seed: u64, count: usize, share: &Path, epoch: Instant) -> Result<History> {
        let folder = format!("seed{seed}");
        let path = make_folder(share, &folder)?;
        let mut actors: Vec<Actor> = Vec::new();
        for (client, (_, settings)) in self.clients.iter().enumerate() {
            let part = Part { seed, client, folder: folder.clone(), settings: settings.clone(), epoch };
            let connection = self.connections.get_mut(client).and_then(Option::take);
            actors.push(Actor::new(part, connection));
        }
        if let Some(first) = actors.first_mut() {
            first.prepare().await;
        }
        let mut tasks = JoinSet::new();
        for (client, mut actor) in actors.into_iter().enumerate() {
            tasks.spawn_local(async move {
                actor.work(&steps(seed, client, count)).await;
                (client, actor)
            });
        }
        let mut actors: Vec<(usize, Actor)> = Vec::new();
        while let Some(done) = tasks.join_next().await {
            actors.push(done.map_err(|error| panicked(&error))?);
        }
        tokio::time::sleep(HELD_AT_LAST).await;
        let mut history = History {
            seed,
            clients: self.clients.iter().map(|(via, _)| *via).collect(),
            ..History::default()
        };
        let mut tasks = JoinSet::new();
        for (client, actor) in actors {
            tasks.spawn_local(async move { (client, actor.finish().await) });
        }
        while let Some(done) = tasks.join_next().await {
            let (client, Seen { events, breaks, connection }) = done.map_err(|error| panicked(&error))?;
            history.events.extend(events);
            history.breaks.extend(breaks);
            if let Some(place) = self.connections.get_mut(client) {
                *place = connection;
            }
        }
        history.events.sort_by_key(|event| event.call);
        tokio::time::sleep(SETTLED_AFTER).await;
        let at = epoch.elapsed().as_micros() as u64;
        history.remains = Some(Remains { at, files: remains(seed, &path)? });
        std::fs::remove_dir_all(&path).map_err(|source| io("removing", &path, source))?;
        Ok(history)
    }
}

/// A folder in which every user of the server may do everything.
fn make_folder(share: &Path, folder: &str) -> Result<PathBuf> {
    let path = share.join(folder);
    std::fs::create_dir(&path).map_err(|source| io("making", &path, source))?;
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&path, all).map_err(|source| io("opening to all", &path, source))?;
    Ok(path)
}

fn remains(seed: u64, path: &Path) -> Result<Vec<(String, Vec<crate::history::Cell>)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|source| io("listing", path, source))? {
        let entry = entry.map_err(|source| io("listing", path, source))?;
        let bytes = std::fs::read(entry.path()).map_err(|source| io("reading", &entry.path(), source))?;
        files.push((entry.file_name().to_string_lossy().into_owned(), read_cells(seed, &bytes)));
    }
    files.sort();
    Ok(files)
}

fn io(action: &str, path: &Path, source: std::io::Error) -> LabError {
    LabError::Io { action: format!("{action} {}", path.display()), source }
}

fn panicked(error: &tokio::task::JoinError) -> LabError {
    LabError::Format { what: "a client of the checker".into(), detail: error.to_string() }
}
