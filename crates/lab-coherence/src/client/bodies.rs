//! Requests that a proxy never makes by itself, so that the codec has views but no builders of them.

use isthmus_lab::{LabError, Result};
use isthmus_smb_wire::build::{self, Body, HeaderFields};
use isthmus_smb_wire::messages::{InfoClass, LockFlags};
use isthmus_smb_wire::name::utf16;
use isthmus_smb_wire::{Command, FileId, HEADER_LEN, Header};

/// Credits that every request asks for.
const CREDITS_ASKED: u16 = 64;

/// Offset of a body's variable part behind the header, by command.
const SESSION_SETUP_PART: u16 = HEADER_LEN as u16 + 24;
const TREE_CONNECT_PART: u16 = HEADER_LEN as u16 + 8;
const SET_INFO_PART: u16 = HEADER_LEN as u16 + 32;

/// A request without identifiers; they are filled in when it is sent.
pub(super) fn request(body: &impl Body) -> Result<Vec<u8>> {
    build::message(&fields(), body).map_err(|error| malformed(&error))
}

/// A request of a body that is made here.
pub(super) fn raw(command: Command, body: &[u8]) -> Result<Vec<u8>> {
    let mut message = request(&build::Echo)?;
    message.truncate(HEADER_LEN);
    message.extend_from_slice(body);
    let mut header = Header::parse(&mut message[..]).map_err(|error| malformed(&error))?;
    header.set_command(command);
    Ok(message)
}

/// SESSION_SETUP (MS-SMB2 2.2.5).
pub(super) fn session_setup(token: &[u8]) -> Result<Vec<u8>> {
    let mut body = vec![25, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&SESSION_SETUP_PART.to_le_bytes());
    body.extend_from_slice(&(token.len() as u16).to_le_bytes());
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(token);
    raw(Command::SESSION_SETUP, &body)
}

/// TREE_CONNECT (MS-SMB2 2.2.9).
pub(super) fn tree_connect(path: &str) -> Result<Vec<u8>> {
    let path = utf16(path);
    let mut body = vec![9, 0, 0, 0];
    body.extend_from_slice(&TREE_CONNECT_PART.to_le_bytes());
    body.extend_from_slice(&(path.len() as u16).to_le_bytes());
    body.extend_from_slice(&path);
    raw(Command::TREE_CONNECT, &body)
}

/// SET_INFO of a file (MS-SMB2 2.2.39).
pub(super) fn set_info(file_id: FileId, class: InfoClass, buffer: &[u8]) -> Result<Vec<u8>> {
    let mut body = vec![33, 0, 1, class.0];
    body.extend_from_slice(&(buffer.len() as u32).to_le_bytes());
    body.extend_from_slice(&SET_INFO_PART.to_le_bytes());
    body.extend_from_slice(&[0; 6]);
    put_file_id(&mut body, file_id);
    body.extend_from_slice(buffer);
    raw(Command::SET_INFO, &body)
}

/// FileRenameInformation (MS-FSCC 2.4.42.2).
pub(super) fn rename_information(to: &str, replace: bool) -> Vec<u8> {
    let name = utf16(to);
    let mut buffer = vec![0; 16];
    buffer[0] = replace.into();
    buffer.extend_from_slice(&(name.len() as u32).to_le_bytes());
    buffer.extend_from_slice(&name);
    buffer
}

/// FileBasicInformation (MS-FSCC 2.4.7) that changes the time of creation and nothing else.
pub(super) fn creation_time_information(creation_time: u64) -> Vec<u8> {
    let mut buffer = creation_time.to_le_bytes().to_vec();
    buffer.resize(40, 0);
    buffer
}

/// LOCK of one range (MS-SMB2 2.2.26).
pub(super) fn lock(file_id: FileId, offset: u64, length: u64, flags: LockFlags) -> Result<Vec<u8>> {
    let mut body = vec![48, 0, 1, 0, 0, 0, 0, 0];
    put_file_id(&mut body, file_id);
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(&flags.0.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    raw(Command::LOCK, &body)
}

pub(super) fn malformed(error: &dyn std::fmt::Display) -> LabError {
    LabError::Format { what: "an SMB message".into(), detail: error.to_string() }
}

fn put_file_id(body: &mut Vec<u8>, file_id: FileId) {
    body.extend_from_slice(&file_id.persistent.to_le_bytes());
    body.extend_from_slice(&file_id.volatile.to_le_bytes());
}

fn fields() -> HeaderFields {
    HeaderFields { credit_charge: 1, credits: CREDITS_ASKED, ..HeaderFields::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_smb_wire::Request;

    #[test]
    fn what_is_made_here_is_what_the_codec_reads() {
        let id = FileId { persistent: 7, volatile: 8 };
        let set = set_info(id, InfoClass::RENAME, &rename_information("a\\b", true)).unwrap();
        let Ok(Request::SetInfo(view)) = Request::parse(&set) else { panic!("SET_INFO") };
        assert_eq!((view.file_id(), view.info_class()), (id, InfoClass::RENAME));
        let rename = isthmus_smb_wire::fscc::FileRenameInformation::parse(view.buffer()).unwrap();
        assert!(rename.name().eq_str("a\\b") && rename.replace_if_exists() == 1);

        let message = lock(id, 5, 6, LockFlags::EXCLUSIVE_LOCK).unwrap();
        let Ok(Request::Lock(view)) = Request::parse(&message) else { panic!("LOCK") };
        let locks: Vec<_> = view.locks().collect();
        assert_eq!((view.file_id(), locks[0].offset, locks[0].length), (id, 5, 6));

        let message = session_setup(b"token").unwrap();
        let Ok(Request::SessionSetup(view)) = Request::parse(&message) else { panic!("SESSION_SETUP") };
        assert_eq!(view.security_buffer(), b"token");
        let message = tree_connect("\\\\s\\data").unwrap();
        let Ok(Request::TreeConnect(view)) = Request::parse(&message) else { panic!("TREE_CONNECT") };
        assert!(view.path().eq_str("\\\\s\\data"));
    }
}
