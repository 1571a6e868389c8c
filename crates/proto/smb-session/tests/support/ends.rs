//! A client and a server that make the messages of a session, signed or encrypted by their own keys.

use isthmus_smb_auth::Exchange;
use isthmus_smb_crypto::{
    Cipher, Dialect, Direction, PreauthHash, Sealer, SessionKey, SessionKeys, Signer, SigningAlgorithm,
    TRANSFORM_HEADER_LEN, TransformHeader, derive, derive_channel,
};
use isthmus_smb_session::{KeySource, Refused, Released};
use isthmus_smb_wire::build::{self, Body, HeaderFields};
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::messages::{
    AccessMask, CloseFlags, CreateAction, CreateDisposition, CreateOptions, FileAttributes, InfoClass,
    InfoType, OplockLevel, ReadFlags, ShareAccess, WriteFlags,
};
use isthmus_smb_wire::{Command, FileId, HeaderFlags, Name, Status, compound, name};
use std::sync::Mutex;
use zeroize::Zeroizing;

pub const KEY: [u8; 16] = *b"a session's key.";

/// Gives the same key whatever the tokens are.
pub struct Fixed(pub [u8; 16], pub Mutex<usize>);

impl Fixed {
    pub fn new(key: [u8; 16]) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self(key, Mutex::new(0)))
    }
}

impl KeySource for Fixed {
    fn release(&self, _: &Exchange) -> Result<Released, Refused> {
        *self.1.lock().unwrap() += 1;
        let session_key = Zeroizing::new(self.0.to_vec());
        Ok(Released { session_key, user: "alice".to_owned(), domain: "WAN".to_owned() })
    }
}

pub struct Refuses;

impl KeySource for Refuses {
    fn release(&self, _: &Exchange) -> Result<Released, Refused> {
        Err(Refused("the user is not enrolled on this peer".to_owned()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    None,
    Signed,
    Sealed,
}

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub dialect: Dialect,
    pub signing: SigningAlgorithm,
    pub cipher: Option<Cipher>,
    pub protection: Protection,
    /// Whether the server signs its last SESSION_SETUP response.
    pub final_signed: bool,
}

pub const GMAC: Setting = Setting {
    dialect: Dialect::Smb311,
    signing: SigningAlgorithm::AesGmac,
    cipher: Some(Cipher::Aes128Gcm),
    protection: Protection::Signed,
    final_signed: true,
};

/// Every combination of dialect, algorithm and protection.
pub fn settings() -> Vec<Setting> {
    use {Cipher as C, Dialect as D, SigningAlgorithm as S};
    let mut all = vec![
        Setting { dialect: D::Smb202, signing: S::HmacSha256, cipher: None, ..GMAC },
        Setting { dialect: D::Smb210, signing: S::HmacSha256, cipher: None, ..GMAC },
    ];
    for dialect in [D::Smb300, D::Smb302] {
        let signed = Setting { dialect, signing: S::AesCmac, cipher: Some(C::Aes128Ccm), ..GMAC };
        all.extend([signed, Setting { protection: Protection::Sealed, ..signed }]);
    }
    all.extend([S::HmacSha256, S::AesCmac, S::AesGmac].map(|signing| Setting { signing, ..GMAC }));
    for cipher in [C::Aes128Ccm, C::Aes128Gcm, C::Aes256Ccm, C::Aes256Gcm] {
        all.push(Setting { cipher: Some(cipher), protection: Protection::Sealed, ..GMAC });
    }
    all
}

/// Both ends of one session on one connection.
pub struct Ends {
    pub setting: Setting,
    pub hash: PreauthHash,
    pub keys: Option<SessionKeys>,
    pub signer: Option<Signer>,
    sealers: Option<[Sealer; 2]>,
    pub session_id: u64,
    pub tree_id: u32,
    pub message_id: u64,
}

impl Ends {
    pub fn new(setting: Setting) -> Self {
        Self {
            setting,
            hash: PreauthHash::new(),
            keys: None,
            signer: None,
            sealers: None,
            session_id: 0x0000_7000_1234_5678,
            tree_id: 0,
            message_id: 0,
        }
    }

    /// NEGOTIATE, request and response.
    pub fn negotiate(&mut self) -> [Vec<u8>; 2] {
        let mut body = vec![0; 36];
        body[0] = 36;
        body[2] = 1;
        body.extend_from_slice(&self.setting.dialect.as_u16().to_le_bytes());
        let request = [header(Command::NEGOTIATE, 0, 0, 0, Status::SUCCESS), body].concat();

        let mut body = vec![0; 64];
        body[0] = 65;
        body[4..6].copy_from_slice(&self.setting.dialect.as_u16().to_le_bytes());
        body[8..24].fill(0x5e);
        if self.setting.dialect == Dialect::Smb311 {
            body[6] = 2;
            body[60] = 128;
            let cipher = self.setting.cipher.map_or(0, Cipher::as_u16).to_le_bytes();
            let signing = self.setting.signing.as_u16().to_le_bytes();
            for (kind, value) in [(2, cipher), (8, signing)] {
                body.extend_from_slice(&[kind, 0, 4, 0, 0, 0, 0, 0, 1, 0, value[0], value[1], 0, 0, 0, 0]);
            }
        }
        let response = [header(Command::NEGOTIATE, 1, 0, 0, Status::SUCCESS), body].concat();
        self.hash = PreauthHash::new();
        self.hash.update(&request);
        self.hash.update(&response);
        self.message_id = 1;
        [request, response]
    }

    /// SESSION_SETUP of two round trips, and the keys. `flags` is of the last response; binding if `bind`.
    pub fn session_setup(&mut self, flags: u16, bind: Option<&SessionKeys>) -> Vec<(bool, Vec<u8>)> {
        let mut hash = self.hash.clone();
        let mut messages = Vec::new();
        for round in 0..2 {
            let known = if round == 1 || bind.is_some() { self.session_id } else { 0 };
            let mut body = vec![0; 24];
            body[0] = 25;
            body[2] = u8::from(bind.is_some());
            body[12] = 88;
            body[14] = 5;
            body.extend_from_slice(b"token");
            let request =
                [header(Command::SESSION_SETUP, 0, self.message_id, known, Status::SUCCESS), body].concat();
            hash.update(&request);
            let status = if round == 0 { Status::MORE_PROCESSING_REQUIRED } else { Status::SUCCESS };
            let mut response = header(Command::SESSION_SETUP, 1, self.message_id, self.session_id, status);
            let flags = if round == 0 { 0 } else { flags.to_le_bytes()[0] };
            response.extend_from_slice(&[9, 0, flags, 0, 72, 0, 4, 0]);
            response.extend_from_slice(b"back");
            if round == 0 {
                hash.update(&response);
            } else {
                self.derive(&hash, bind);
                if self.setting.final_signed {
                    response[16] |= 8;
                    self.signer.as_ref().unwrap().sign(&mut response, true).unwrap();
                }
            }
            self.message_id += 1;
            messages.extend([(false, request), (true, response)]);
        }
        messages
    }

    fn derive(&mut self, hash: &PreauthHash, bind: Option<&SessionKeys>) {
        let Setting { dialect, cipher, signing, .. } = self.setting;
        let key = SessionKey::new(&KEY).unwrap();
        let hash = Some(hash).filter(|_| dialect == Dialect::Smb311);
        let keys = match bind {
            Some(keys) => keys.with_channel(&derive_channel(dialect, &key, hash).unwrap()),
            None => derive(dialect, cipher, &key, hash).unwrap(),
        };
        self.signer = Some(keys.signer(signing).unwrap());
        if keys.cipher().is_some() {
            let sealer = |way, random| keys.sealer(way, random).unwrap();
            self.sealers = Some([
                sealer(Direction::ClientToServer, [0xc1; 7]),
                sealer(Direction::ServerToClient, [0x5e; 7]),
            ]);
        }
        self.keys = Some(keys);
    }

    pub fn fields(&self, from_server: bool, status: Status) -> HeaderFields {
        let signed = self.setting.protection == Protection::Signed;
        HeaderFields {
            flags: if signed { HeaderFlags::SIGNED } else { HeaderFlags::NONE },
            status: if from_server { status } else { Status::SUCCESS },
            credit_charge: 1,
            credits: 1,
            message_id: self.message_id,
            session_id: self.session_id,
            tree_id: self.tree_id,
            async_id: None,
        }
    }

    pub fn request(&mut self, body: &impl Body) -> Vec<u8> {
        let message = build::message(&self.fields(false, Status::SUCCESS), body).unwrap();
        self.protect(message, false)
    }

    /// Answers the last request.
    pub fn response(&mut self, body: &impl Body, status: Status) -> Vec<u8> {
        let message = build::message(&self.fields(true, status), body).unwrap();
        let message = self.protect(message, true);
        self.message_id += 1;
        message
    }

    pub fn sign(&self, message: &mut [u8], from_server: bool) {
        let ranges: Vec<_> = compound::elements(message).map(Result::unwrap).collect();
        for range in ranges {
            let element = &mut message[range];
            if element[16] & 8 != 0 {
                self.signer.as_ref().unwrap().sign(element, from_server).unwrap();
            }
        }
    }

    /// Signs each element, or encrypts the whole.
    pub fn protect(&mut self, mut message: Vec<u8>, from_server: bool) -> Vec<u8> {
        match self.setting.protection {
            Protection::None => message,
            Protection::Signed => {
                self.sign(&mut message, from_server);
                message
            }
            Protection::Sealed => self.seal(&message, from_server),
        }
    }

    pub fn seal(&mut self, message: &[u8], from_server: bool) -> Vec<u8> {
        let mut sealed = [&[0; TRANSFORM_HEADER_LEN], message].concat();
        self.sealers.as_mut().unwrap()[usize::from(from_server)].seal(self.session_id, &mut sealed).unwrap();
        sealed
    }

    /// What is in a sealed message.
    pub fn open(&self, message: &[u8], from_server: bool) -> Vec<u8> {
        let way = if from_server { Direction::ServerToClient } else { Direction::ClientToServer };
        assert_eq!(TransformHeader::parse(message).unwrap().session_id, self.session_id);
        let mut plain = Vec::new();
        self.keys.as_ref().unwrap().opener(way).unwrap().open_copy(message, &mut plain).unwrap();
        plain
    }

    /// TREE_CONNECT, request and response.
    pub fn tree_connect(&mut self) -> [Vec<u8>; 2] {
        let path = name::utf16(r"\\files\share");
        let flags = if self.setting.protection == Protection::Signed { 8 } else { 0 };
        let mut request =
            header(Command::TREE_CONNECT, flags, self.message_id, self.session_id, Status::SUCCESS);
        request.extend_from_slice(&[9, 0, 0, 0, 72, 0, path.len() as u8, 0]);
        request.extend_from_slice(&path);
        self.tree_id = 7;
        let mut response =
            header(Command::TREE_CONNECT, flags | 1, self.message_id, self.session_id, Status::SUCCESS);
        response[36] = 7;
        response.extend_from_slice(&[16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 1, 0x1f, 0]);
        self.message_id += 1;
        [self.protect(request, false), self.protect(response, true)]
    }

    /// The whole beginning of a session, in order.
    pub fn begin(&mut self) -> Vec<(bool, Vec<u8>)> {
        let [request, response] = self.negotiate();
        let mut messages = vec![(false, request), (true, response)];
        messages.extend(self.session_setup(0, None));
        let [request, response] = self.tree_connect();
        messages.extend([(false, request), (true, response)]);
        messages
    }

    /// SESSION_SETUP on the session that is there already, protected like all else.
    pub fn authenticate_again(&mut self) -> Vec<(bool, Vec<u8>)> {
        let (keys, signer, sealers) = (self.keys.clone(), self.signer.take(), self.sealers.take());
        self.signer = keys.as_ref().map(|keys| keys.signer(self.setting.signing).unwrap());
        let unsigned = Setting { final_signed: false, ..self.setting };
        let setting = std::mem::replace(&mut self.setting, unsigned);
        let mut messages = self.session_setup(0, None);
        (self.setting, self.keys, self.signer, self.sealers) = (setting, keys, signer, sealers);
        for (from_server, message) in &mut messages {
            message[40..48].copy_from_slice(&self.session_id.to_le_bytes());
            if self.setting.protection == Protection::Signed {
                message[16] |= 8;
            }
            *message = self.protect(std::mem::take(message), *from_server);
        }
        messages
    }

    pub fn log_off(&mut self) -> Vec<(bool, Vec<u8>)> {
        let flags = if self.setting.protection == Protection::Signed { 8 } else { 0 };
        let message = |way: u8, id, session| {
            let head = header(Command::LOGOFF, flags | way, id, session, Status::SUCCESS);
            [head, vec![4, 0, 0, 0]].concat()
        };
        let (request, response) =
            (message(0, self.message_id, self.session_id), message(1, self.message_id, self.session_id));
        self.message_id += 1;
        vec![(false, self.protect(request, false)), (true, self.protect(response, true))]
    }

    /// A related compound, a request with an interim response that is cancelled, a break without a request, a message of an
    /// unknown command, and a long listing.
    pub fn unusual(&mut self, round: u64) -> Vec<(bool, Vec<u8>)> {
        let file = File::new(500 + round, 5_000);
        let mut messages = Vec::new();
        let first = self.fields(false, Status::SUCCESS);
        let next = |by: u64| HeaderFields { message_id: first.message_id + by, ..first.related() };
        let query = build::OutputResponse { command: Command::QUERY_INFO, buffer: &[7; 40] };
        let any = build::Close { file_id: None, flags: CloseFlags(0) };
        let ask = build::QueryInfo {
            info_type: InfoType::FILE,
            info_class: InfoClass(4),
            output_buffer_length: 40,
            additional_information: 0,
            flags: 0,
            file_id: None,
            input: &[],
        };
        let requests = [
            build::message(&first, &file.create()).unwrap(),
            build::message(&next(1), &ask).unwrap(),
            build::message(&next(2), &any).unwrap(),
        ];
        let whole = compound::join(&requests).unwrap();
        messages.push((false, self.protect(whole, false)));
        let answers = [
            build::message(&first, &file.created()).unwrap(),
            build::message(&HeaderFields { message_id: first.message_id + 1, ..first }, &query).unwrap(),
            build::message(&next(2), &build::CloseResponse { attributes: None }).unwrap(),
        ];
        let whole = compound::join(&answers).unwrap();
        messages.push((true, self.protect(whole, true)));
        self.message_id += 3;

        let watch = build::ChangeNotify {
            watch_tree: true,
            output_buffer_length: 65_536,
            file_id: Some(file.id()),
            completion_filter: 0x17,
        };
        messages.push((false, self.request(&watch)));
        let watched = HeaderFields { async_id: Some(700 + round), ..self.fields(true, Status::PENDING) };
        let interim = build::ErrorResponse { command: Command::CHANGE_NOTIFY, context_count: 0, data: &[] };
        // Interim responses are not signed.
        let unsigned = HeaderFields { flags: HeaderFlags::NONE, ..watched };
        let message = build::message(&unsigned, &interim).unwrap();
        messages.push((
            true,
            if self.setting.protection == Protection::Sealed { self.seal(&message, true) } else { message },
        ));
        self.message_id += 1;
        messages.extend(self.exchange(&build::Echo, &build::EchoResponse));
        let cancel = HeaderFields {
            flags: self.fields(false, Status::SUCCESS).flags,
            status: Status::SUCCESS,
            credit_charge: 0,
            ..watched
        };
        let message = build::message(&cancel, &build::Cancel).unwrap();
        messages.push((false, self.protect(message, false)));
        let message =
            build::message(&HeaderFields { status: Status::CANCELLED, ..watched }, &interim).unwrap();
        messages.push((true, self.protect(message, true)));

        let mut unsolicited = header(Command::OPLOCK_BREAK, 1, u64::MAX, 0, Status::SUCCESS);
        unsolicited.extend_from_slice(&[44, 0, 1, 0, 1, 0, 0, 0]);
        unsolicited.extend_from_slice(&[round as u8; 36]);
        messages.push((true, unsolicited));

        let mut unknown = header(Command(0x77), 0, self.message_id, self.session_id, Status::SUCCESS);
        unknown.extend_from_slice(b"what is this?");
        messages.push((false, unknown));
        self.message_id += 1;

        let listing: Vec<u8> = (0..9_000u32).flat_map(|number| number.to_le_bytes()).collect();
        let list = build::QueryDirectory {
            info_class: InfoClass(37),
            flags: isthmus_smb_wire::messages::QueryDirectoryFlags(0),
            file_index: 0,
            file_id: Some(file.id()),
            pattern: Name::new(b"*\0"),
            output_buffer_length: 65_536,
        };
        let answer = build::OutputResponse { command: Command::QUERY_DIRECTORY, buffer: &listing };
        messages.extend(self.exchange(&list, &answer));
        messages
    }

    /// A request and its response.
    pub fn exchange(&mut self, request: &impl Body, response: &impl Body) -> [(bool, Vec<u8>); 2] {
        let request = self.request(request);
        [(false, request), (true, self.response(response, Status::SUCCESS))]
    }

    /// CREATE, QUERY_INFO, READ, CLOSE of one file, as a small client does it.
    pub fn small_read(&mut self, file: &File, data: &[u8]) -> Vec<(bool, Vec<u8>)> {
        let file_id = Some(file.id());
        let information = file.all_information();
        let query = build::QueryInfo {
            info_type: InfoType::FILE,
            info_class: InfoClass(18),
            output_buffer_length: 0xffff,
            additional_information: 0,
            flags: 0,
            file_id,
            input: &[],
        };
        let answer = build::OutputResponse { command: Command::QUERY_INFO, buffer: &information };
        let mut messages = self.exchange(&file.create(), &file.created()).to_vec();
        messages.extend(self.exchange(&query, &answer));
        messages.extend(self.exchange(&file.read(0, 4096), &build::ReadResponse { payload: data }));
        messages.extend(self.exchange(&file.close(), &build::CloseResponse { attributes: None }));
        messages
    }
}

/// One file of a made-up server.
pub struct File {
    pub number: u64,
    pub size: u64,
    path: Vec<u8>,
}

impl File {
    pub fn new(number: u64, size: u64) -> Self {
        Self { number, size, path: name::utf16(&format!("folder\\report {number:04}.docx")) }
    }

    /// As random as those of Samba, whose halves have 32 random bits each.
    pub fn id(&self) -> FileId {
        let half = |salt| self.number.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        FileId { persistent: half(1), volatile: half(77_777) }
    }

    fn facts(&self) -> FileTimesAndSizes {
        let made = 0x01dd_80a7_9e79_9868 + self.number * 31_337;
        FileTimesAndSizes {
            creation_time: made,
            last_access_time: made,
            last_write_time: made + 4_711 + self.number,
            change_time: made + 4_711 + self.number,
            allocation_size: self.size.next_multiple_of(4096),
            end_of_file: self.size,
            file_attributes: FileAttributes(0x20),
        }
    }

    pub fn create(&self) -> build::Create<'_> {
        build::Create {
            oplock_level: OplockLevel(0),
            desired_access: AccessMask(0x0012_0089),
            file_attributes: FileAttributes(0),
            share_access: ShareAccess(3),
            disposition: CreateDisposition(1),
            options: CreateOptions(0x40),
            name: Name::new(&self.path),
            contexts: &[],
        }
    }

    pub fn created(&self) -> build::CreateResponse<'static> {
        build::CreateResponse {
            oplock_level: OplockLevel(0),
            flags: 0,
            create_action: CreateAction(1),
            attributes: self.facts(),
            file_id: self.id(),
            contexts: &[],
        }
    }

    pub fn read(&self, offset: u64, length: u32) -> build::Read {
        build::Read { flags: ReadFlags(0), file_id: Some(self.id()), offset, length, minimum_count: 0 }
    }

    pub fn write<'a>(&self, offset: u64, payload: &'a [u8]) -> build::Write<'a> {
        build::Write { flags: WriteFlags(0), file_id: Some(self.id()), offset, payload }
    }

    pub fn close(&self) -> build::Close {
        build::Close { flags: CloseFlags(0), file_id: Some(self.id()) }
    }

    /// FileAllInformation (MS-FSCC 2.4.2), with the path from the share's root.
    fn all_information(&self) -> Vec<u8> {
        let facts = self.facts();
        let mut all = Vec::new();
        for time in [facts.creation_time, facts.last_access_time, facts.last_write_time, facts.change_time] {
            all.extend_from_slice(&time.to_le_bytes());
        }
        all.extend_from_slice(&[0x20, 0, 0, 0, 0, 0, 0, 0]);
        all.extend_from_slice(&facts.allocation_size.to_le_bytes());
        all.extend_from_slice(&facts.end_of_file.to_le_bytes());
        all.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        all.extend_from_slice(&(0x0099_04ce + self.number * 3).to_le_bytes());
        all.extend_from_slice(&[0; 4]);
        all.extend_from_slice(&[0x89, 0, 0x12, 0]);
        all.extend_from_slice(&[0; 16]);
        let path = [&name::utf16("\\")[..], &self.path].concat();
        all.extend_from_slice(&(path.len() as u32).to_le_bytes());
        all.extend_from_slice(&path);
        all
    }
}

/// A header without signature.
fn header(command: Command, flags: u8, message_id: u64, session_id: u64, status: Status) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(b"\xfeSMB");
    bytes[4] = 64;
    bytes[8..12].copy_from_slice(&status.0.to_le_bytes());
    bytes[12..14].copy_from_slice(&command.0.to_le_bytes());
    bytes[14] = 1;
    bytes[16] = flags;
    bytes[24..32].copy_from_slice(&message_id.to_le_bytes());
    bytes[40..48].copy_from_slice(&session_id.to_le_bytes());
    bytes
}
