//! The file `identity`: who this store is, on which machine, and how often it was opened.

use crate::error::{FormatError, OpenError};
use crate::format::VERSION;
use crate::key::{KeyId, fill_random};
use isthmus_types::StoreId;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the file in the store's directory.
pub(crate) const FILE_NAME: &str = "identity";
const TEMPORARY_NAME: &str = "identity.new";
/// An identity file is shorter than this.
const FILE_LEN_MAX: u64 = 4096;

/// What tells one machine and directory from another. A part that cannot be read is absent and does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Content of /etc/machine-id.
    pub machine_id: Option<String>,
    /// The firmware's product_uuid: differs between virtual machines made of one image.
    pub product_uuid: Option<String>,
    /// Inode number of the store's directory: differs when the directory was copied file by file. The device number is
    /// left out, since it may change from one boot to the next.
    pub inode: Option<u64>,
}

impl Machine {
    /// This machine, and this directory on it.
    pub fn here(dir: &Path) -> Machine {
        let text = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        Machine {
            machine_id: text("/etc/machine-id"),
            product_uuid: text("/sys/class/dmi/id/product_uuid"),
            inode: fs::metadata(dir).ok().map(|meta| meta.ino()),
        }
    }

    /// Hashes of the parts: the parts themselves are nobody's business.
    fn marks(&self, identity: StoreId) -> [Option<Mark>; 3] {
        let mark = |name: &str, part: &str| {
            let mut hasher = blake3::Hasher::new_derive_key("isthmus store machine binding v1");
            hasher.update(&identity.0).update(name.as_bytes()).update(part.as_bytes());
            let mut mark = [0; 16];
            hasher.finalize_xof().fill(&mut mark);
            mark
        };
        [
            self.machine_id.as_deref().map(|part| mark("machine-id", part)),
            self.product_uuid.as_deref().map(|part| mark("product-uuid", part)),
            self.inode.map(|inode| mark("inode", &inode.to_string())),
        ]
    }
}

type Mark = [u8; 16];

/// What the identity file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub id: StoreId,
    /// Raised at each opening.
    pub generation: u64,
    /// Notes of segments below this number belong to an older identity.
    pub first_segment: u32,
    /// No address below this is given out.
    pub address_floor: u64,
    /// The key that wraps the segments' keys.
    pub key: Option<KeyId>,
    marks: [Option<Mark>; 3],
}

impl Identity {
    /// A new random identity for `machine`.
    pub fn new(machine: &Machine, first_segment: u32) -> Result<Identity, OpenError> {
        let mut id = StoreId([0; 16]);
        fill_random(&mut id.0)?;
        let marks = machine.marks(id);
        Ok(Identity { id, generation: 0, first_segment, address_floor: 0, key: None, marks })
    }

    /// Whether `machine` may be the one that this identity was made on: no part known of both differs.
    pub fn is_bound_to(&self, machine: &Machine) -> bool {
        let here = machine.marks(self.id);
        self.marks.iter().zip(here).all(|(known, here)| known.is_none() || here.is_none() || *known == here)
    }

    /// Takes up parts of `machine` that were not known yet.
    pub fn learn(&mut self, machine: &Machine) {
        for (known, here) in self.marks.iter_mut().zip(machine.marks(self.id)) {
            *known = known.or(here);
        }
    }

    /// Reads the identity file. `None` if there is none.
    pub fn load(dir: &Path) -> Result<Option<Identity>, OpenError> {
        let path = dir.join(FILE_NAME);
        let text = match fs::metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(meta) if meta.len() > FILE_LEN_MAX => String::new(),
            _ => fs::read(&path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(OpenError::io(&path))?,
        };
        parse(&path, &text).map(Some)
    }

    /// Writes the identity file, whole or not at all, and waits until it is on disk.
    pub fn save(&self, dir: &Path) -> Result<(), OpenError> {
        let temporary = dir.join(TEMPORARY_NAME);
        let mut file = File::create(&temporary).map_err(OpenError::io(&temporary))?;
        file.write_all(self.text().as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, dir.join(FILE_NAME)))
            .and_then(|()| File::open(dir)?.sync_all())
            .map_err(OpenError::io(&temporary))
    }

    fn text(&self) -> String {
        let mark = |mark: &Option<Mark>| mark.map_or_else(|| "-".to_owned(), hex::encode);
        let body = format!(
            "isthmus-store {VERSION}\nidentity {}\ngeneration {}\nfirst-segment {}\naddress-floor {}\nkey {}\n\
             machine-id {}\nproduct-uuid {}\ninode {}\n",
            self.id,
            self.generation,
            self.first_segment,
            self.address_floor,
            self.key.map_or_else(|| "-".to_owned(), |key| hex::encode(key.0)),
            mark(&self.marks[0]),
            mark(&self.marks[1]),
            mark(&self.marks[2]),
        );
        let check = crc32fast::hash(body.as_bytes());
        format!("{body}check {check:08x}\n")
    }
}

fn parse(path: &Path, text: &str) -> Result<Identity, OpenError> {
    let bad = |offset: usize, what| FormatError { file: path.to_owned(), offset: offset as u64, what };
    let first = text.lines().next().unwrap_or_default();
    match first.strip_prefix("isthmus-store ").map(str::parse::<u16>) {
        Some(Ok(VERSION)) => {}
        Some(Ok(found)) => {
            return Err(OpenError::Version { file: PathBuf::from(path), found, known: VERSION });
        }
        _ => return Err(bad(0, "not an identity file").into()),
    }
    let body_len = text.rfind("check ").unwrap_or(0);
    let check = format!("check {:08x}\n", crc32fast::hash(&text.as_bytes()[..body_len]));
    if text[body_len..] != check {
        return Err(bad(body_len, "the identity file fails its check").into());
    }
    fields(text).ok_or_else(|| bad(0, "the identity file lacks a field").into())
}

fn fields(text: &str) -> Option<Identity> {
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let mark = |name: &str| match field(name)? {
        "-" => Some(None),
        digits => Some(Some(bytes::<16>(digits)?)),
    };
    Some(Identity {
        id: StoreId(bytes(field("identity")?)?),
        generation: field("generation")?.parse().ok()?,
        first_segment: field("first-segment")?.parse().ok()?,
        address_floor: field("address-floor")?.parse().ok()?,
        key: match field("key")? {
            "-" => None,
            digits => Some(KeyId(bytes(digits)?)),
        },
        marks: [mark("machine-id")?, mark("product-uuid")?, mark("inode")?],
    })
}

fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    hex::decode_to_slice(digits, &mut out).ok().map(|()| out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(id: &str) -> Machine {
        Machine { machine_id: Some(id.into()), product_uuid: None, inode: Some(5) }
    }

    #[test]
    fn an_identity_reads_back_and_damage_or_another_version_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Identity::load(dir.path()).unwrap(), None);
        let mut identity = Identity::new(&machine("a"), 3).unwrap();
        identity.key = Some(KeyId([9; 8]));
        identity.generation = 12;
        identity.save(dir.path()).unwrap();
        assert_eq!(Identity::load(dir.path()).unwrap(), Some(identity.clone()));

        let path = dir.path().join(FILE_NAME);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("generation 12", "generation 13")).unwrap();
        assert!(matches!(Identity::load(dir.path()), Err(OpenError::Format(_))));
        fs::write(&path, text.replace("isthmus-store 1", "isthmus-store 2")).unwrap();
        assert!(matches!(Identity::load(dir.path()), Err(OpenError::Version { found: 2, .. })));
        for len in 0..text.len() {
            fs::write(&path, &text[..len]).unwrap();
            assert!(Identity::load(dir.path()).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn a_part_that_differs_breaks_the_binding_and_one_that_is_absent_does_not() {
        let mut identity = Identity::new(&machine("a"), 1).unwrap();
        assert!(identity.is_bound_to(&machine("a")));
        assert!(!identity.is_bound_to(&machine("b")));
        assert!(!identity.is_bound_to(&Machine { inode: Some(6), ..machine("a") }));
        assert!(identity.is_bound_to(&Machine { machine_id: None, ..machine("a") }));

        let with_uuid = |uuid: &str| Machine { product_uuid: Some(uuid.into()), ..machine("a") };
        assert!(identity.is_bound_to(&with_uuid("u")));
        identity.learn(&with_uuid("u"));
        assert!(!identity.is_bound_to(&with_uuid("v")));
    }
}
