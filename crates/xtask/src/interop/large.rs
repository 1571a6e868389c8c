//! A file of more than 4 GiB up and down through the pair, for each family of ciphers. Full runs only.

use super::report::Part;
use super::{Context, or_failed};
use isthmus_lab::corpus::random_bytes;
use isthmus_lab::smb::{
    Account, Cipher, Protected, Protection, Samba, SambaOptions, SessionEncryption, Signing,
    SigningAlgorithm, SmbClient,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Network, Result, Scratch};
use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

const KINDS: [Protected; 3] = [
    Protected::Signed(SigningAlgorithm::AesGmac),
    Protected::Sealed(Cipher::Aes128Gcm),
    Protected::Sealed(Cipher::Aes128Ccm),
];

/// Bytes of the file: not a multiple of anything.
const FILE_BYTES: u64 = (4 << 30) + 12_345_679;

/// The file repeats a block of this length, each time with its number at the start, so that it is made quickly and every
/// place in it is still known.
const BLOCK_BYTES: usize = 32 << 20;

/// The file itself, on the share, and as it came back.
const DISK_BYTES: u64 = 3 * FILE_BYTES + (2 << 30);

const NAME: &str = "large.bin";

/// One part.
pub fn run(context: &mut Context) -> Part {
    let start = Instant::now();
    context.progress.step("large");
    let mut part = or_failed("large", measure(context));
    part.seconds = start.elapsed().as_secs_f64();
    part
}

fn measure(context: &mut Context) -> Result<Part> {
    let mut part = Part::new("large");
    let scratch = Scratch::new("large")?;
    let free = nix::sys::statvfs::statvfs(scratch.path())
        .map(|disk| disk.blocks_available() * disk.fragment_size())
        .unwrap_or(0);
    if free < DISK_BYTES {
        part.skipped.push(format!(
            "large: {} GB of free disk are needed, {} are there",
            DISK_BYTES >> 30,
            free >> 30
        ));
        return Ok(part);
    }
    let sent = scratch.join("sent");
    make_file(&sent)?;
    for kind in KINDS {
        let name = format!("large.{}", kind.as_str());
        if !context.is_wanted(&name) {
            continue;
        }
        let start = Instant::now();
        match one(context, &mut part, &scratch, &sent, kind) {
            Ok(()) => part.passed += 1,
            Err(error) => part.failures.push(format!("{name}: {error}")),
        }
        context.progress.step(&format!("  {name}: {:.0} s", start.elapsed().as_secs_f64()));
    }
    Ok(part)
}

fn one(
    context: &mut Context,
    part: &mut Part,
    scratch: &Scratch,
    sent: &Path,
    kind: Protected,
) -> Result<()> {
    let mut network = Network::start(Level::Ip, WanShape::symmetric(Duration::ZERO, None))?;
    let address = network.new_server_address()?;
    let mut options = SambaOptions {
        signing: Signing::Mandatory,
        accounts: vec![Account::alice()],
        ..SambaOptions::default()
    };
    match kind {
        Protected::Signed(algorithm) => options.signing_algorithms = vec![algorithm],
        Protected::Sealed(cipher) => {
            options.ciphers = vec![cipher];
            options.session_encryption = SessionEncryption::Required;
        }
    }
    let samba = Samba::start(&network.server_place(), address, &options)?;
    let rig = network.start_pair(&context.binaries, &[address], &context.pair_options(&[&samba]))?;
    let protection = if kind.is_sealed() { Protection::Encrypt } else { Protection::Sign };
    let client = SmbClient::new(&rig.client_place(), rig.through(0)?, &samba)?.protected(protection);
    client.put(sent, NAME)?;
    compare(sent, &samba.share_path().join(NAME))?;
    let back = scratch.join("back");
    client.get(NAME, &back)?;
    compare(sent, &back)?;
    part.look_at_pair(&rig, !context.is_plain)?;
    std::fs::remove_file(&back)
        .map_err(|source| LabError::Io { action: "removing what came back".into(), source })
}

fn make_file(path: &Path) -> Result<()> {
    let failed = |source| LabError::Io { action: format!("writing {}", path.display()), source };
    let mut file = File::create(path).map_err(failed)?;
    let mut block = random_bytes(BLOCK_BYTES, 17);
    let mut left = FILE_BYTES;
    let mut number = 0_u64;
    while left > 0 {
        if let Some(start) = block.first_chunk_mut::<8>() {
            *start = number.to_le_bytes();
        }
        let part = block.get(..left.min(BLOCK_BYTES as u64) as usize).unwrap_or(&block);
        file.write_all(part).map_err(failed)?;
        left -= part.len() as u64;
        number += 1;
    }
    Ok(())
}

/// Byte by byte, without either in memory.
fn compare(expected: &Path, got: &Path) -> Result<()> {
    let open = |path: &Path| {
        let failed = |source| LabError::Io { action: format!("opening {}", path.display()), source };
        File::open(path).map(|file| BufReader::with_capacity(1 << 20, file)).map_err(failed)
    };
    let (mut expected_file, mut got_file) = (open(expected)?, open(got)?);
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut offset = 0_u64;
    loop {
        let read = |file: &mut BufReader<File>, buffer: &mut [u8], path: &Path| {
            let failed = |source| LabError::Io { action: format!("reading {}", path.display()), source };
            fill(file, buffer).map_err(failed)
        };
        let a = read(&mut expected_file, &mut left, expected)?;
        let b = read(&mut got_file, &mut right, got)?;
        if left.get(..a) != right.get(..b) {
            let detail = format!("it differs after byte {offset}");
            return Err(LabError::Mismatch { what: got.display().to_string(), detail });
        }
        if a == 0 {
            return Ok(());
        }
        offset += a as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_to_their_ends() {
        let folder = std::env::temp_dir().join(format!("isthmus-large-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (a, b) = (folder.join("a"), folder.join("b"));
        let content = random_bytes(3_000_000, 2);
        std::fs::write(&a, &content).unwrap();
        std::fs::write(&b, &content).unwrap();
        assert!(compare(&a, &b).is_ok());
        std::fs::write(&b, &content[..content.len() - 1]).unwrap();
        assert!(compare(&a, &b).is_err() && compare(&b, &a).is_err());
        let mut other = content;
        other[2_500_000] ^= 1;
        std::fs::write(&b, &other).unwrap();
        assert!(compare(&a, &b).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
