//! Prepopulation: a folder is read over the WAN in advance, as one user, and then copied by another.

use super::{Context, Values, median};
use isthmus_lab::corpus::many_small_files;
use isthmus_lab::pair::{KeyOptions, PairOptions};
use isthmus_lab::proc::run;
use isthmus_lab::smb::{Account, Protection, SHARE, Samba, SambaOptions, SmbClient, compare_folders};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Network, Result, Rig, Scratch};
use isthmus_types::Side;
use std::os::unix::fs::PermissionsExt;

/// Files of the folder.
const FILES: usize = 1_000;

/// The share of its LAN bytes that the first user's copy still sends over the WAN.
pub fn measure(context: &mut Context) -> Result<Values> {
    let mut shares = Vec::new();
    for number in 1..=context.repetitions {
        let share = share(context, number)?;
        shares.push(share);
    }
    Ok([("warm.wan_share".to_string(), median(&shares))].into())
}

fn share(context: &mut Context, number: usize) -> Result<f64> {
    let mut network = Network::start(context.level, WanShape::hundred_megabit())?;
    let address = network.new_server_address()?;
    let accounts = Account::many(2);
    let options = SambaOptions { accounts: accounts.clone(), encrypt: true, ..SambaOptions::default() };
    let samba = Samba::start(&network.server_place(), address, &options)?;
    samba.store("", &many_small_files(FILES, number as u64))?;
    let keys = KeyOptions { keytabs: Vec::new(), password_hashes: vec![samba.password_hashes()] };
    let options = PairOptions { keys: Some(keys), ..context.options.clone() };
    let rig = network.start_pair(&context.binaries, &[address], &options)?;
    let scratch = Scratch::new("warm")?;
    let ((), read) = rig.measure(|| read_ahead(context, &rig, &scratch, &accounts[1]))?;
    let folder = scratch.make_dir("copy")?;
    let client = SmbClient::new(&rig.client_place(), rig.through(0)?, &samba)?.protected(Protection::Encrypt);
    let (_, copied) = rig.measure(|| client.get_folder("", &folder))?;
    compare_folders(samba.share_path(), &folder)?;
    context.progress.step(&format!(
        "run {number}: {FILES} files read in {:.1} s with {} WAN bytes; then copied in {:.1} s, {} LAN bytes, {} WAN bytes",
        read.seconds, read.wan_bytes, copied.seconds, copied.lan_bytes, copied.wan_bytes
    ));
    Ok(copied.wan_bytes as f64 / copied.lan_bytes as f64)
}

/// Runs `isthmus-client warm` beside the client-side proxy.
fn read_ahead(context: &Context, rig: &Rig, scratch: &Scratch, account: &Account) -> Result<()> {
    let password = scratch.write("password", &account.password)?;
    std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600))
        .map_err(|source| LabError::Io { action: "hiding a password".into(), source })?;
    let client = rig.pair.end(Side::Client);
    let words = |path: &std::path::Path| path.display().to_string();
    let mut command =
        vec![words(&context.binaries.client), "warm".into(), format!("//{}/{SHARE}", rig.through(0)?.ip())];
    command.extend(["--via".into(), rig.through(0)?.to_string()]);
    command.extend(["--config".into(), words(&client.config_path())]);
    command.extend(["--user".into(), account.name.clone(), "--password-file".into(), words(&password)]);
    command.extend(context.options.client_set.iter().flat_map(|set| ["--set".into(), set.clone()]));
    command.push("--quiet".into());
    let said = run(client.place(), &command)?;
    if said.contains(&format!("{FILES} files")) {
        return Ok(());
    }
    Err(LabError::Mismatch { what: "what was read in advance".into(), detail: said })
}
