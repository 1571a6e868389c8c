//! Messages of all commands, made by either implementation from the same values.

use crate::agree::id;
use isthmus_smb_wire::build::{self, HeaderFields, NewContext};
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::messages as m;
use isthmus_smb_wire::{Command, HeaderFlags, Name};
use proptest::collection::vec;
use proptest::prelude::*;
use smb2::msg as o;
use smb2::msg::create_context as oc;
use smb2::msg::negotiate::NegotiateContext;
use smb2::msg::query_directory::FileInformationClass;
use smb2::pack::{FileTime, Guid, Pack, WriteCursor};
use smb2::types as ot;

/// Values from which messages are made.
#[derive(Clone, Debug)]
pub struct Seed {
    pub n: [u32; 8],
    pub w: [u64; 6],
    pub bytes: Vec<u8>,
    pub text: String,
}

impl Seed {
    fn open(&self) -> ot::FileId {
        ot::FileId { persistent: self.w[0], volatile: self.w[1] }
    }

    fn pick<T: Copy>(&self, all: &[T]) -> T {
        all[self.n[7] as usize % all.len()]
    }

    fn contexts(&self) -> Vec<u8> {
        let all: Vec<_> = (0..self.n[6] as usize % 4)
            .map(|index| {
                oc::CreateContext::new(b"DH2Q", self.bytes[..self.bytes.len() / (index + 1)].to_vec())
            })
            .collect();
        oc::pack_contexts(&all)
    }

    fn negotiate_contexts(&self) -> Vec<NegotiateContext> {
        let algorithms = vec![self.n[0] as u16, self.n[1] as u16];
        vec![
            NegotiateContext::PreauthIntegrity { hash_algorithms: vec![1], salt: self.bytes.clone() },
            NegotiateContext::Encryption { ciphers: algorithms.clone() },
            NegotiateContext::Compression { flags: self.n[2], algorithms: algorithms.clone() },
            NegotiateContext::Signing { algorithms },
            NegotiateContext::Unknown { context_type: 0x77, data: self.bytes.clone() },
        ]
    }
}

/// Any values.
pub fn seed() -> impl Strategy<Value = Seed> {
    (any::<[u32; 8]>(), any::<[u64; 6]>(), vec(any::<u8>(), 1..90), "[a-zA-Z\\\\日本🦀é]{0,20}")
        .prop_map(|(n, w, bytes, text)| Seed { n, w, bytes, text })
}

/// A message of the other implementation.
fn packed(seed: &Seed, command: ot::Command, flags: u32, body: &impl Pack) -> Vec<u8> {
    let mut header = o::Header::new_request(command);
    header.flags = ot::flags::HeaderFlags::new(flags);
    header.message_id = ot::MessageId(seed.w[2]);
    header.session_id = ot::SessionId(seed.w[3]);
    header.credits = seed.n[0] as u16;
    let mut cursor = WriteCursor::new();
    header.pack(&mut cursor);
    body.pack(&mut cursor);
    cursor.into_inner()
}

/// One request of each command.
pub fn requests(s: &Seed) -> Vec<Vec<u8>> {
    let request = |command, body: &dyn PackDyn| body.message(s, command, 0);
    let dialects = vec![ot::Dialect::Smb2_0_2, ot::Dialect::Smb3_0_2, ot::Dialect::Smb3_1_1];
    vec![
        request(
            ot::Command::Negotiate,
            &o::negotiate::NegotiateRequest {
                security_mode: ot::flags::SecurityMode::new(s.n[0] as u16),
                capabilities: ot::flags::Capabilities::new(s.n[1]),
                client_guid: Guid { data1: s.n[2], data2: 3, data3: 4, data4: s.w[4].to_le_bytes() },
                dialects,
                negotiate_contexts: s.negotiate_contexts(),
            },
        ),
        request(
            ot::Command::SessionSetup,
            &o::session_setup::SessionSetupRequest {
                flags: o::session_setup::SessionSetupRequestFlags(s.n[0] as u8),
                security_mode: ot::flags::SecurityMode::new(u16::from(s.n[1] as u8)),
                capabilities: ot::flags::Capabilities::new(s.n[2]),
                channel: s.n[3],
                previous_session_id: s.w[4],
                security_buffer: s.bytes.clone(),
            },
        ),
        request(
            ot::Command::TreeConnect,
            &o::tree_connect::TreeConnectRequest {
                flags: o::tree_connect::TreeConnectRequestFlags(s.n[0] as u16 & !4),
                path: s.text.clone(),
            },
        ),
        request(
            ot::Command::Create,
            &o::create::CreateRequest {
                requested_oplock_level: s.pick(&[
                    ot::OplockLevel::None,
                    ot::OplockLevel::Batch,
                    ot::OplockLevel::Lease,
                ]),
                impersonation_level: o::create::ImpersonationLevel::Delegate,
                desired_access: ot::flags::FileAccessMask::new(s.n[0]),
                file_attributes: s.n[1],
                share_access: o::create::ShareAccess(s.n[2]),
                create_disposition: s.pick(&[
                    o::create::CreateDisposition::FileOpen,
                    o::create::CreateDisposition::FileCreate,
                ]),
                create_options: s.n[3],
                name: s.text.clone(),
                create_contexts: s.contexts(),
            },
        ),
        request(ot::Command::Close, &o::close::CloseRequest { flags: s.n[0] as u16, file_id: s.open() }),
        request(ot::Command::Flush, &o::flush::FlushRequest { file_id: s.open() }),
        request(
            ot::Command::Read,
            &o::read::ReadRequest {
                padding: s.n[0] as u8,
                flags: s.n[1] as u8,
                length: s.n[2],
                offset: s.w[4],
                file_id: s.open(),
                minimum_count: s.n[3],
                channel: s.n[4],
                remaining_bytes: s.n[5],
                read_channel_info: s.bytes.clone(),
            },
        ),
        request(
            ot::Command::Write,
            &o::write::WriteRequest {
                data_offset: 112,
                offset: s.w[4],
                file_id: s.open(),
                channel: s.n[0],
                remaining_bytes: s.n[1],
                write_channel_info_offset: 0,
                write_channel_info_length: 0,
                flags: s.n[2],
                data: s.bytes.clone(),
            },
        ),
        request(
            ot::Command::Lock,
            &o::lock::LockRequest {
                lock_sequence: s.n[0],
                file_id: s.open(),
                locks: (0..=s.n[1] % 3)
                    .map(|index| o::lock::LockElement {
                        offset: s.w[4],
                        length: s.w[5] ^ u64::from(index),
                        flags: s.n[2],
                    })
                    .collect(),
            },
        ),
        request(
            ot::Command::Ioctl,
            &o::ioctl::IoctlRequest {
                ctl_code: s.n[0],
                file_id: s.open(),
                max_input_response: s.n[1],
                max_output_response: s.n[2],
                flags: s.n[3],
                input_data: s.bytes.clone(),
            },
        ),
        request(
            ot::Command::QueryDirectory,
            &o::query_directory::QueryDirectoryRequest {
                file_information_class: s.pick(&[
                    FileInformationClass::FileNamesInformation,
                    FileInformationClass::FileIdBothDirectoryInformation,
                ]),
                flags: o::query_directory::QueryDirectoryFlags(s.n[0] as u8),
                file_index: s.n[1],
                file_id: s.open(),
                output_buffer_length: s.n[2],
                file_name: s.text.clone(),
            },
        ),
        request(
            ot::Command::ChangeNotify,
            &o::change_notify::ChangeNotifyRequest {
                flags: s.n[0] as u16,
                output_buffer_length: s.n[1],
                file_id: s.open(),
                completion_filter: s.n[2],
            },
        ),
        request(
            ot::Command::QueryInfo,
            &o::query_info::QueryInfoRequest {
                info_type: s.pick(&[o::query_info::InfoType::File, o::query_info::InfoType::Quota]),
                file_info_class: s.n[0] as u8,
                output_buffer_length: s.n[1],
                additional_information: s.n[2],
                flags: s.n[3],
                file_id: s.open(),
                input_buffer: s.bytes.clone(),
            },
        ),
        request(
            ot::Command::SetInfo,
            &o::set_info::SetInfoRequest {
                info_type: o::query_info::InfoType::Security,
                file_info_class: s.n[0] as u8,
                additional_information: s.n[1],
                file_id: s.open(),
                buffer: s.bytes.clone(),
            },
        ),
        request(
            ot::Command::OplockBreak,
            &o::oplock_break::OplockBreak { oplock_level: ot::OplockLevel::LevelII, file_id: s.open() },
        ),
        request(ot::Command::Logoff, &o::logoff::LogoffRequest),
        request(ot::Command::TreeDisconnect, &o::tree_disconnect::TreeDisconnectRequest),
        request(ot::Command::Cancel, &o::cancel::CancelRequest),
        request(ot::Command::Echo, &o::echo::EchoRequest),
    ]
}

/// One response of each command.
pub fn responses(s: &Seed) -> Vec<Vec<u8>> {
    let response = |command, body: &dyn PackDyn| body.message(s, command, 1);
    let time = |index: usize| FileTime(s.w[index]);
    vec![
        response(
            ot::Command::Read,
            &o::ErrorResponse { error_context_count: 0, error_data: s.bytes.clone() },
        ),
        response(
            ot::Command::Negotiate,
            &o::negotiate::NegotiateResponse {
                security_mode: ot::flags::SecurityMode::new(s.n[0] as u16),
                dialect_revision: s.pick(&[ot::Dialect::Smb3_1_1, ot::Dialect::Smb2_1]),
                server_guid: Guid { data1: s.n[1], data2: 3, data3: 4, data4: s.w[4].to_le_bytes() },
                capabilities: ot::flags::Capabilities::new(s.n[2]),
                max_transact_size: s.n[3],
                max_read_size: s.n[4],
                max_write_size: s.n[5],
                system_time: s.w[2],
                server_start_time: s.w[3],
                security_buffer: s.bytes.clone(),
                negotiate_contexts: if s.n[7].is_multiple_of(2) {
                    s.negotiate_contexts()
                } else {
                    Vec::new()
                },
            },
        ),
        response(
            ot::Command::SessionSetup,
            &o::session_setup::SessionSetupResponse {
                session_flags: o::session_setup::SessionFlags(s.n[0] as u16),
                security_buffer: s.bytes.clone(),
            },
        ),
        response(
            ot::Command::TreeConnect,
            &o::tree_connect::TreeConnectResponse {
                share_type: o::tree_connect::ShareType::Pipe,
                share_flags: ot::flags::ShareFlags::new(s.n[0]),
                capabilities: ot::flags::ShareCapabilities::new(s.n[1]),
                maximal_access: s.n[2],
            },
        ),
        response(
            ot::Command::Create,
            &o::create::CreateResponse {
                oplock_level: ot::OplockLevel::Exclusive,
                flags: s.n[0] as u8,
                create_action: o::create::CreateAction::FileOverwritten,
                creation_time: time(0),
                last_access_time: time(1),
                last_write_time: time(2),
                change_time: time(3),
                allocation_size: s.w[4],
                end_of_file: s.w[5],
                file_attributes: s.n[1],
                file_id: s.open(),
                create_contexts: s.contexts(),
            },
        ),
        response(
            ot::Command::Close,
            &o::close::CloseResponse {
                flags: s.n[0] as u16,
                creation_time: time(0),
                last_access_time: time(1),
                last_write_time: time(2),
                change_time: time(3),
                allocation_size: s.w[4],
                end_of_file: s.w[5],
                file_attributes: s.n[1],
            },
        ),
        response(
            ot::Command::Read,
            &o::read::ReadResponse {
                data_offset: 80,
                data_remaining: s.n[0],
                flags: s.n[1],
                data: s.bytes.clone(),
            },
        ),
        response(
            ot::Command::Write,
            &o::write::WriteResponse {
                count: s.n[0],
                remaining: s.n[1],
                write_channel_info_offset: 0,
                write_channel_info_length: 0,
            },
        ),
        response(
            ot::Command::Ioctl,
            &o::ioctl::IoctlResponse {
                ctl_code: s.n[0],
                file_id: s.open(),
                flags: s.n[1],
                output_data: s.bytes.clone(),
            },
        ),
        response(
            ot::Command::QueryDirectory,
            &o::query_directory::QueryDirectoryResponse { output_buffer: s.bytes.clone() },
        ),
        response(
            ot::Command::ChangeNotify,
            &o::change_notify::ChangeNotifyResponse { output_data: s.bytes.clone() },
        ),
        response(
            ot::Command::QueryInfo,
            &o::query_info::QueryInfoResponse { output_buffer: s.bytes.clone() },
        ),
        response(
            ot::Command::OplockBreak,
            &o::oplock_break::OplockBreak { oplock_level: ot::OplockLevel::None, file_id: s.open() },
        ),
        response(ot::Command::SetInfo, &o::set_info::SetInfoResponse),
        response(ot::Command::Lock, &o::lock::LockResponse),
        response(ot::Command::Flush, &o::flush::FlushResponse),
        response(ot::Command::Logoff, &o::logoff::LogoffResponse),
        response(ot::Command::TreeDisconnect, &o::tree_disconnect::TreeDisconnectResponse),
        response(ot::Command::Echo, &o::echo::EchoResponse),
    ]
}

/// [`packed`] for bodies of any type.
trait PackDyn {
    fn message(&self, seed: &Seed, command: ot::Command, flags: u32) -> Vec<u8>;
}

impl<T: Pack> PackDyn for T {
    fn message(&self, seed: &Seed, command: ot::Command, flags: u32) -> Vec<u8> {
        packed(seed, command, flags, self)
    }
}

/// Messages that this crate builds.
pub fn built(s: &Seed) -> Vec<Vec<u8>> {
    let fields = HeaderFields {
        flags: HeaderFlags(s.n[0] & 0x70),
        message_id: s.w[2],
        session_id: s.w[3],
        tree_id: s.n[1],
        credits: 3,
        ..HeaderFields::default()
    };
    let file_id = Some(id(s.open()));
    let name = isthmus_smb_wire::name::utf16(&s.text);
    let lease = build::lease_v2([9; 16], LeaseState(s.n[2]), Some([8; 16]), 4);
    let contexts = [NewContext { name: b"RqLs", data: &lease }, NewContext { name: b"QFid", data: &[] }];
    let attributes =
        FileTimesAndSizes { creation_time: s.w[4], end_of_file: s.w[5], ..FileTimesAndSizes::default() };
    let message = |body: &dyn BuildDyn| body.message(&fields);
    vec![
        message(&build::Echo),
        message(&build::Cancel),
        message(&build::Create {
            oplock_level: m::OplockLevel::LEASE,
            desired_access: m::AccessMask(s.n[3]),
            file_attributes: m::FileAttributes(s.n[4]),
            share_access: m::ShareAccess(s.n[5]),
            disposition: m::CreateDisposition::OPEN_IF,
            options: m::CreateOptions(s.n[6]),
            name: Name::new(&name),
            contexts: &contexts[..s.n[7] as usize % 3],
        }),
        message(&build::Close { flags: m::CloseFlags::POSTQUERY_ATTRIB, file_id }),
        message(&build::Flush { file_id }),
        message(&build::Read {
            flags: m::ReadFlags(1),
            file_id,
            offset: s.w[4],
            length: s.n[3],
            minimum_count: 1,
        }),
        message(&build::Write { flags: m::WriteFlags(1), file_id, offset: s.w[4], payload: &s.bytes }),
        message(&build::QueryInfo {
            info_type: m::InfoType::FILE,
            info_class: m::InfoClass::ALL,
            output_buffer_length: s.n[3],
            additional_information: s.n[4],
            flags: s.n[5],
            file_id,
            input: &s.bytes,
        }),
        message(&build::QueryDirectory {
            info_class: m::InfoClass::ID_BOTH_DIRECTORY,
            flags: m::QueryDirectoryFlags::REOPEN,
            file_index: s.n[3],
            file_id,
            pattern: Name::new(&name),
            output_buffer_length: s.n[4],
        }),
        message(&build::ChangeNotify {
            watch_tree: true,
            output_buffer_length: s.n[3],
            file_id,
            completion_filter: s.n[4],
        }),
        message(&build::OplockBreakAcknowledgement {
            oplock_level: m::OplockLevel::II,
            file_id: id(s.open()),
        }),
        message(&build::ErrorResponse { command: Command::WRITE, context_count: 0, data: &s.bytes }),
        message(&build::EchoResponse),
        message(&build::FlushResponse),
        message(&build::CreateResponse {
            oplock_level: m::OplockLevel::BATCH,
            flags: 1,
            create_action: m::CreateAction::CREATED,
            attributes,
            file_id: id(s.open()),
            contexts: &contexts[..s.n[7] as usize % 3],
        }),
        message(&build::CloseResponse { attributes: Some(attributes) }),
        message(&build::ReadResponse { payload: &s.bytes }),
        message(&build::WriteResponse { count: s.n[3] }),
        message(&build::IoctlResponse {
            control_code: m::ControlCode(s.n[3]),
            file_id: id(s.open()),
            output: &s.bytes,
        }),
        message(&build::OutputResponse { command: Command::QUERY_INFO, buffer: &s.bytes }),
        message(&build::OutputResponse { command: Command::QUERY_DIRECTORY, buffer: &s.bytes }),
        message(&build::OutputResponse { command: Command::CHANGE_NOTIFY, buffer: &s.bytes }),
    ]
}

/// [`build::message`] for bodies of any type.
trait BuildDyn {
    fn message(&self, fields: &HeaderFields) -> Vec<u8>;
}

impl<T: build::Body> BuildDyn for T {
    fn message(&self, fields: &HeaderFields) -> Vec<u8> {
        build::message(fields, self).unwrap()
    }
}
