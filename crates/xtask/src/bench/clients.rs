//! Real clients over the published link, beside the published figures.

use super::{Context, Values};
use crate::progress::human_bytes;
use isthmus_lab::corpus::FileSpec;
use isthmus_lab::corpus::published::document_folders;
use isthmus_lab::corpus::random_bytes;
use isthmus_lab::scenario::{self, Client, Pass, Phase, Scenario, Session, Work};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Result};

/// Files of the folder.
const FOLDER_FILES: usize = 200;

/// Bytes of the large file.
const FILE_BYTES: usize = 100_000_000;

/// What was published for the same link.
const PUBLISHED: &str = "published, commercial pair, encrypted sessions: 100 MB file 37.4 s, cold 30.1 s, warm 8.0 s \
                         (1.24×, 4.69×); folder of 1,992 files 5.69 s a file, cold 1.21 s, warm 0.80 s (4.70×, 7.16×)";

/// The table, and every cell of it as a value.
pub fn measure(context: &mut Context) -> Result<Values> {
    let (file, folder) = (large_file(), real_folder()?);
    let mut values = Values::new();
    let mut lines = vec![format!(
        "{:<34}{:>10}{:>10}{:>10}{:>12}{:>12}",
        "236 ms, 29.3 down, 121.9 up", "direct", "cold", "warm", "cold WAN", "warm WAN"
    )];
    for client in [Client::Smbclient, Client::Kernel] {
        if client == Client::Kernel && context.level != Level::Ip {
            context.note("clients: the kernel's client needs the IP-level emulator, which needs root".into());
            continue;
        }
        for session in [Session::Unsigned, Session::Signed] {
            for (what, files) in [("file", &file), ("folder", &folder)] {
                let name = format!("{}.{}.{what}", client_word(client), session_word(session));
                if !is_wanted(&context.only, &name) {
                    continue;
                }
                let passes = one(context, &name, client, session, files)?;
                lines.push(line(&name, &passes));
                keep(&mut values, &name, &passes);
            }
        }
    }
    lines.push(PUBLISHED.into());
    lines.into_iter().for_each(|line| context.note(line));
    Ok(values)
}

fn one(
    context: &mut Context,
    name: &str,
    client: Client,
    session: Session,
    files: &[FileSpec],
) -> Result<Vec<Pass>> {
    let scenario = Scenario {
        name: name.into(),
        shape: WanShape::published(),
        level: context.level,
        client,
        session,
        work: Work::Download,
        phases: Phase::ALL.to_vec(),
    };
    let (binaries, options) = (context.binaries.clone(), context.options.clone());
    let progress = &mut context.progress;
    scenario::run(&scenario, files, &binaries, &options, &mut |phase| {
        progress.step(&format!("{name}: {phase}"))
    })
}

/// Whether the user wants this line: nothing named, the whole table, or a start of the line's name.
fn is_wanted(only: &[String], name: &str) -> bool {
    let full = format!("clients.{name}");
    let mut lines = only.iter().filter(|only| only.starts_with("clients"));
    only.is_empty() || lines.any(|only| full.starts_with(only.as_str()))
}

fn line(name: &str, passes: &[Pass]) -> String {
    let pass = |phase| passes.iter().find(|pass| pass.phase == phase);
    let seconds = |phase| pass(phase).map_or("—".into(), |pass| format!("{:.2} s", pass.seconds));
    let wan = |phase| pass(phase).map_or("—".into(), |pass| human_bytes(pass.measured.wan_bytes as f64));
    format!(
        "{name:<34}{:>10}{:>10}{:>10}{:>12}{:>12}",
        seconds(Phase::Baseline),
        seconds(Phase::Cold),
        seconds(Phase::Warm),
        wan(Phase::Cold),
        wan(Phase::Warm),
    )
}

fn keep(values: &mut Values, name: &str, passes: &[Pass]) {
    for pass in passes {
        let phase = pass.phase.as_str();
        values.insert(format!("clients.{name}.{phase}_s"), pass.seconds);
        if pass.phase != Phase::Baseline {
            values.insert(format!("clients.{name}.{phase}_wan"), pass.measured.wan_bytes as f64);
        }
    }
}

fn large_file() -> Vec<FileSpec> {
    vec![FileSpec { path: "large.pdf".into(), content: random_bytes(FILE_BYTES, 100) }]
}

/// Evenly picked from all the documents there are.
fn real_folder() -> Result<Vec<FileSpec>> {
    let set = document_folders()?;
    let count = set.files.len();
    if count < FOLDER_FILES {
        return Err(LabError::Format {
            what: "the folder of documents".into(),
            detail: format!("it has {count} files, {FOLDER_FILES} are needed"),
        });
    }
    let pick = |number: usize| {
        let (path, content) = &set.files[number * count / FOLDER_FILES];
        FileSpec { path: format!("{number:03}-{}", path.replace('/', "-")), content: content.to_vec() }
    };
    Ok((0..FOLDER_FILES).map(pick).collect())
}

fn client_word(client: Client) -> &'static str {
    match client {
        Client::Smbclient => "smbclient",
        Client::Kernel => "kernel",
    }
}

fn session_word(session: Session) -> &'static str {
    match session {
        Session::Unsigned => "unsigned",
        Session::Signed => "signed",
        Session::Encrypted => "encrypted",
    }
}
