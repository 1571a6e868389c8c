//! Each field of each view is where the document has it, as wide as it is there, and a setter writes nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isthmus_smb_wire::create_context as context;
use isthmus_smb_wire::fscc;
use isthmus_smb_wire::messages as m;
use isthmus_smb_wire::negotiate_context::PreauthIntegrity;
use isthmus_smb_wire::transform::TransformHeader;
use isthmus_smb_wire::{Command, Header, HeaderFlags};
use std::ops::Range;

/// Bytes of a template: room for whatever a count says.
const TEMPLATE_LEN: usize = 1024;

/// Value and place of each field. The place is written with bytes that differ, read as a field, and the field written to
/// a second copy: the copies are the same only if getter and setter have exactly this place.
macro_rules! fields {
    ($template:expr, $view:ty { $($get:ident $set:ident $range:expr;)* }) => {{
        let template: Vec<u8> = $template;
        let mut taken = vec![false; TEMPLATE_LEN];
        $(
            let range: Range<usize> = $range;
            let name = concat!(stringify!($view), "::", stringify!($get));
            let mut source = template.clone();
            for (index, byte) in source[range.clone()].iter_mut().enumerate() {
                assert!(!std::mem::replace(&mut taken[range.start + index], true), "{name} overlaps");
                *byte = 0x21 + index as u8;
            }
            let mut target = template.clone();
            let value = <$view>::parse(&mut source[..]).unwrap().$get();
            <$view>::parse(&mut target[..]).unwrap().$set(value);
            assert_eq!(target, source, "{name}");
            let shown = format!("{:?}", <$view>::parse(&mut target[..]).unwrap());
            assert!(shown.contains(stringify!($get)), "{name}: {shown}");
        )*
    }};
}

/// A message of a command with a body of zeros.
fn message(command: Command, flags: HeaderFlags, structure_size: u16) -> Vec<u8> {
    let mut bytes = vec![0; TEMPLATE_LEN];
    bytes[..4].copy_from_slice(&[0xfe, b'S', b'M', b'B']);
    bytes[4] = 64;
    bytes[64..66].copy_from_slice(&structure_size.to_le_bytes());
    let mut header = Header::parse(&mut bytes[..]).unwrap();
    header.set_command(command);
    header.set_flags(flags);
    bytes
}

fn request(command: Command, structure_size: u16) -> Vec<u8> {
    message(command, HeaderFlags::NONE, structure_size)
}

fn response(command: Command, structure_size: u16) -> Vec<u8> {
    message(command, HeaderFlags::SERVER_TO_REDIR, structure_size)
}

/// Place of a field of a body.
fn at(offset: usize, length: usize) -> Range<usize> {
    64 + offset..64 + offset + length
}

type Bytes<'a> = &'a mut [u8];

#[test]
fn header() {
    fields!(request(Command::ECHO, 4), Header<Bytes<'_>> {
        credit_charge set_credit_charge 6..8;
        status set_status 8..12;
        command set_command 12..14;
        credits set_credits 14..16;
        flags set_flags 16..20;
        next_command set_next_command 20..24;
        message_id set_message_id 24..32;
        session_id set_session_id 40..48;
        signature set_signature 48..64;
    });
    fields!(request(Command::ECHO, 4), Header<Bytes<'_>> { channel_sequence set_channel_sequence 8..10; });
}

#[test]
fn tree_and_asynchronous_identifiers_exclude_each_other() {
    let mut bytes = request(Command::READ, 49);
    let before = bytes.clone();
    let mut header = Header::parse(&mut bytes[..]).unwrap();
    header.set_async_id(5);
    assert_eq!((header.async_id(), header.tree_id()), (None, Some(0)));
    assert_eq!(bytes, before);
    let mut header = Header::parse(&mut bytes[..]).unwrap();
    header.set_tree_id(0x0403_0201);
    assert_eq!(header.tree_id(), Some(0x0403_0201));
    assert_eq!(bytes[36..40], [1, 2, 3, 4]);
    let mut header = Header::parse(&mut bytes[..]).unwrap();
    header.set_flags(HeaderFlags::ASYNC_COMMAND);
    header.set_tree_id(9);
    assert_eq!((header.async_id(), header.tree_id()), (Some(0x0403_0201_0000_0000), None));
    header.set_async_id(0x0807_0605_0403_0201);
    assert_eq!(bytes[32..40], [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn negotiate_and_session() {
    fields!(request(Command::NEGOTIATE, 36), m::NegotiateRequest<Bytes<'_>> {
        security_mode set_security_mode at(4, 2);
        capabilities set_capabilities at(8, 4);
        client_guid set_client_guid at(12, 16);
    });
    fields!(response(Command::NEGOTIATE, 65), m::NegotiateResponse<Bytes<'_>> {
        security_mode set_security_mode at(2, 2);
        dialect set_dialect at(4, 2);
        server_guid set_server_guid at(8, 16);
        capabilities set_capabilities at(24, 4);
        max_transact_size set_max_transact_size at(28, 4);
        max_read_size set_max_read_size at(32, 4);
        max_write_size set_max_write_size at(36, 4);
        system_time set_system_time at(40, 8);
        server_start_time set_server_start_time at(48, 8);
    });
    fields!(request(Command::SESSION_SETUP, 25), m::SessionSetupRequest<Bytes<'_>> {
        flags set_flags at(2, 1);
        security_mode set_security_mode at(3, 1);
        capabilities set_capabilities at(4, 4);
        channel set_channel at(8, 4);
        previous_session_id set_previous_session_id at(16, 8);
    });
    fields!(response(Command::SESSION_SETUP, 9), m::SessionSetupResponse<Bytes<'_>> {
        session_flags set_session_flags at(2, 2);
    });
    fields!(request(Command::TREE_CONNECT, 9), m::TreeConnectRequest<Bytes<'_>> { flags set_flags at(2, 2); });
    fields!(response(Command::TREE_CONNECT, 16), m::TreeConnectResponse<Bytes<'_>> {
        share_type set_share_type at(2, 1);
        share_flags set_share_flags at(4, 4);
        capabilities set_capabilities at(8, 4);
        maximal_access set_maximal_access at(12, 4);
    });
}

#[test]
fn create_and_close() {
    fields!(request(Command::CREATE, 57), m::CreateRequest<Bytes<'_>> {
        security_flags set_security_flags at(2, 1);
        oplock_level set_oplock_level at(3, 1);
        impersonation_level set_impersonation_level at(4, 4);
        create_flags set_create_flags at(8, 8);
        desired_access set_desired_access at(24, 4);
        file_attributes set_file_attributes at(28, 4);
        share_access set_share_access at(32, 4);
        disposition set_disposition at(36, 4);
        options set_options at(40, 4);
    });
    fields!(response(Command::CREATE, 89), m::CreateResponse<Bytes<'_>> {
        oplock_level set_oplock_level at(2, 1);
        flags set_flags at(3, 1);
        create_action set_create_action at(4, 4);
        creation_time set_creation_time at(8, 8);
        last_access_time set_last_access_time at(16, 8);
        last_write_time set_last_write_time at(24, 8);
        change_time set_change_time at(32, 8);
        allocation_size set_allocation_size at(40, 8);
        end_of_file set_end_of_file at(48, 8);
        file_attributes set_file_attributes at(56, 4);
        file_id set_file_id at(64, 16);
    });
    fields!(request(Command::CLOSE, 24), m::CloseRequest<Bytes<'_>> {
        flags set_flags at(2, 2);
        file_id set_file_id at(8, 16);
    });
    fields!(response(Command::CLOSE, 60), m::CloseResponse<Bytes<'_>> {
        flags set_flags at(2, 2);
        creation_time set_creation_time at(8, 8);
        last_access_time set_last_access_time at(16, 8);
        last_write_time set_last_write_time at(24, 8);
        change_time set_change_time at(32, 8);
        allocation_size set_allocation_size at(40, 8);
        end_of_file set_end_of_file at(48, 8);
        file_attributes set_file_attributes at(56, 4);
    });
}

#[test]
fn reading_writing_and_locking() {
    fields!(request(Command::FLUSH, 24), m::FlushRequest<Bytes<'_>> { file_id set_file_id at(8, 16); });
    fields!(request(Command::READ, 49), m::ReadRequest<Bytes<'_>> {
        padding set_padding at(2, 1);
        flags set_flags at(3, 1);
        length set_length at(4, 4);
        offset set_offset at(8, 8);
        file_id set_file_id at(16, 16);
        minimum_count set_minimum_count at(32, 4);
        channel set_channel at(36, 4);
        remaining_bytes set_remaining_bytes at(40, 4);
    });
    fields!(response(Command::READ, 17), m::ReadResponse<Bytes<'_>> {
        data_remaining set_data_remaining at(8, 4);
        flags set_flags at(12, 4);
    });
    fields!(request(Command::WRITE, 49), m::WriteRequest<Bytes<'_>> {
        offset set_offset at(8, 8);
        file_id set_file_id at(16, 16);
        channel set_channel at(32, 4);
        remaining_bytes set_remaining_bytes at(36, 4);
        flags set_flags at(44, 4);
    });
    fields!(response(Command::WRITE, 17), m::WriteResponse<Bytes<'_>> {
        count set_count at(4, 4);
        remaining set_remaining at(8, 4);
    });
    fields!(request(Command::LOCK, 48), m::LockRequest<Bytes<'_>> {
        lock_sequence set_lock_sequence at(4, 4);
        file_id set_file_id at(8, 16);
    });
}

#[test]
fn control_codes() {
    fields!(request(Command::IOCTL, 57), m::IoctlRequest<Bytes<'_>> {
        control_code set_control_code at(4, 4);
        file_id set_file_id at(8, 16);
        max_input_response set_max_input_response at(32, 4);
        max_output_response set_max_output_response at(44, 4);
        flags set_flags at(48, 4);
    });
    fields!(response(Command::IOCTL, 49), m::IoctlResponse<Bytes<'_>> {
        control_code set_control_code at(4, 4);
        file_id set_file_id at(8, 16);
        flags set_flags at(40, 4);
    });
    fields!(vec![0; TEMPLATE_LEN], m::ValidateNegotiateRequest<Bytes<'_>> {
        capabilities set_capabilities 0..4;
        guid set_guid 4..20;
        security_mode set_security_mode 20..22;
    });
    fields!(vec![0; TEMPLATE_LEN], m::ValidateNegotiateResponse<Bytes<'_>> {
        capabilities set_capabilities 0..4;
        guid set_guid 4..20;
        security_mode set_security_mode 20..22;
        dialect set_dialect 22..24;
    });
    fields!(vec![0; TEMPLATE_LEN], m::NetworkInterface<Bytes<'_>> {
        next set_next 0..4;
        index set_index 4..8;
        capability set_capability 8..12;
        link_speed set_link_speed 16..24;
        family set_family 24..26;
        ipv4 set_ipv4 28..32;
        ipv6 set_ipv6 32..48;
    });
}

#[test]
fn queries_and_changes() {
    fields!(request(Command::QUERY_DIRECTORY, 33), m::QueryDirectoryRequest<Bytes<'_>> {
        info_class set_info_class at(2, 1);
        flags set_flags at(3, 1);
        file_index set_file_index at(4, 4);
        file_id set_file_id at(8, 16);
        output_buffer_length set_output_buffer_length at(28, 4);
    });
    fields!(request(Command::CHANGE_NOTIFY, 32), m::ChangeNotifyRequest<Bytes<'_>> {
        flags set_flags at(2, 2);
        output_buffer_length set_output_buffer_length at(4, 4);
        file_id set_file_id at(8, 16);
        completion_filter set_completion_filter at(24, 4);
    });
    fields!(request(Command::QUERY_INFO, 41), m::QueryInfoRequest<Bytes<'_>> {
        info_type set_info_type at(2, 1);
        info_class set_info_class at(3, 1);
        output_buffer_length set_output_buffer_length at(4, 4);
        additional_information set_additional_information at(16, 4);
        flags set_flags at(20, 4);
        file_id set_file_id at(24, 16);
    });
    fields!(request(Command::SET_INFO, 33), m::SetInfoRequest<Bytes<'_>> {
        info_type set_info_type at(2, 1);
        info_class set_info_class at(3, 1);
        additional_information set_additional_information at(12, 4);
        file_id set_file_id at(16, 16);
    });
}

#[test]
fn breaks_and_errors() {
    let (ask, tell) = (request(Command::OPLOCK_BREAK, 24), response(Command::OPLOCK_BREAK, 24));
    fields!(tell.clone(), m::OplockBreakNotification<Bytes<'_>> {
        oplock_level set_oplock_level at(2, 1);
        file_id set_file_id at(8, 16);
    });
    fields!(ask, m::OplockBreakAcknowledgement<Bytes<'_>> {
        oplock_level set_oplock_level at(2, 1);
        file_id set_file_id at(8, 16);
    });
    fields!(tell, m::OplockBreakResponse<Bytes<'_>> {
        oplock_level set_oplock_level at(2, 1);
        file_id set_file_id at(8, 16);
    });
    fields!(response(Command::OPLOCK_BREAK, 44), m::LeaseBreakNotification<Bytes<'_>> {
        new_epoch set_new_epoch at(2, 2);
        flags set_flags at(4, 4);
        lease_key set_lease_key at(8, 16);
        current_lease_state set_current_lease_state at(24, 4);
        new_lease_state set_new_lease_state at(28, 4);
    });
    fields!(request(Command::OPLOCK_BREAK, 36), m::LeaseBreakAcknowledgement<Bytes<'_>> {
        flags set_flags at(4, 4);
        lease_key set_lease_key at(8, 16);
        lease_state set_lease_state at(24, 4);
        lease_duration set_lease_duration at(28, 8);
    });
    fields!(response(Command::OPLOCK_BREAK, 36), m::LeaseBreakResponse<Bytes<'_>> {
        flags set_flags at(4, 4);
        lease_key set_lease_key at(8, 16);
        lease_state set_lease_state at(24, 4);
        lease_duration set_lease_duration at(28, 8);
    });
    fields!(response(Command::READ, 9), m::ErrorResponse<Bytes<'_>> { context_count set_context_count at(2, 1); });
    fields!(response(Command::SERVER_TO_CLIENT_NOTIFICATION, 4), m::ServerNotification<Bytes<'_>> {
        notification_type set_notification_type at(4, 4);
    });
}

#[test]
fn create_contexts() {
    fields!(vec![0; TEMPLATE_LEN], context::Lease<Bytes<'_>> {
        lease_key set_lease_key 0..16;
        lease_state set_lease_state 16..20;
        lease_flags set_lease_flags 20..24;
        lease_duration set_lease_duration 24..32;
    });
    fields!(vec![0; TEMPLATE_LEN], context::LeaseV2<Bytes<'_>> {
        lease_key set_lease_key 0..16;
        lease_state set_lease_state 16..20;
        lease_flags set_lease_flags 20..24;
        lease_duration set_lease_duration 24..32;
        parent_lease_key set_parent_lease_key 32..48;
        epoch set_epoch 48..50;
    });
    fields!(vec![0; TEMPLATE_LEN], context::DurableReconnect<Bytes<'_>> { file_id set_file_id 0..16; });
    fields!(vec![0; TEMPLATE_LEN], context::DurableV2Request<Bytes<'_>> {
        timeout_ms set_timeout_ms 0..4;
        flags set_flags 4..8;
        create_guid set_create_guid 16..32;
    });
    fields!(vec![0; TEMPLATE_LEN], context::DurableV2Response<Bytes<'_>> {
        timeout_ms set_timeout_ms 0..4;
        flags set_flags 4..8;
    });
    fields!(vec![0; TEMPLATE_LEN], context::DurableV2Reconnect<Bytes<'_>> {
        file_id set_file_id 0..16;
        create_guid set_create_guid 16..32;
        flags set_flags 32..36;
    });
    fields!(vec![0; TEMPLATE_LEN], context::MaximalAccessResponse<Bytes<'_>> {
        query_status set_query_status 0..4;
        maximal_access set_maximal_access 4..8;
    });
    fields!(vec![0; TEMPLATE_LEN], context::MaximalAccessRequest<Bytes<'_>> { timestamp set_timestamp 0..8; });
    fields!(vec![0; TEMPLATE_LEN], context::QueryOnDiskIdResponse<Bytes<'_>> {
        disk_file_id set_disk_file_id 0..8;
        volume_id set_volume_id 8..16;
    });
    fields!(vec![0; TEMPLATE_LEN], context::AllocationSize<Bytes<'_>> { allocation_size set_allocation_size 0..8; });
    fields!(vec![0; TEMPLATE_LEN], context::Timewarp<Bytes<'_>> { timestamp set_timestamp 0..8; });
    fields!(vec![0; TEMPLATE_LEN], context::AppInstanceId<Bytes<'_>> {
        structure_size set_structure_size 0..2;
        app_instance_id set_app_instance_id 4..20;
    });
    fields!(vec![0; TEMPLATE_LEN], context::AppInstanceVersion<Bytes<'_>> {
        structure_size set_structure_size 0..2;
        version_high set_version_high 8..16;
        version_low set_version_low 16..24;
    });
}

#[test]
fn information_about_files() {
    fields!(vec![0; TEMPLATE_LEN], fscc::FileBasicInformation<Bytes<'_>> {
        creation_time set_creation_time 0..8;
        last_access_time set_last_access_time 8..16;
        last_write_time set_last_write_time 16..24;
        change_time set_change_time 24..32;
        file_attributes set_file_attributes 32..36;
    });
    fields!(vec![0; TEMPLATE_LEN], fscc::FileStandardInformation<Bytes<'_>> {
        allocation_size set_allocation_size 0..8;
        end_of_file set_end_of_file 8..16;
        number_of_links set_number_of_links 16..20;
        delete_pending set_delete_pending 20..21;
        directory set_directory 21..22;
    });
    fields!(vec![0; TEMPLATE_LEN], fscc::FileNetworkOpenInformation<Bytes<'_>> {
        creation_time set_creation_time 0..8;
        last_access_time set_last_access_time 8..16;
        last_write_time set_last_write_time 16..24;
        change_time set_change_time 24..32;
        allocation_size set_allocation_size 32..40;
        end_of_file set_end_of_file 40..48;
        file_attributes set_file_attributes 48..52;
    });
    fields!(vec![0; TEMPLATE_LEN], fscc::FileAllInformation<Bytes<'_>> {
        creation_time set_creation_time 0..8;
        last_access_time set_last_access_time 8..16;
        last_write_time set_last_write_time 16..24;
        change_time set_change_time 24..32;
        file_attributes set_file_attributes 32..36;
        allocation_size set_allocation_size 40..48;
        end_of_file set_end_of_file 48..56;
        number_of_links set_number_of_links 56..60;
        delete_pending set_delete_pending 60..61;
        directory set_directory 61..62;
        index_number set_index_number 64..72;
        ea_size set_ea_size 72..76;
        access_flags set_access_flags 76..80;
        current_byte_offset set_current_byte_offset 80..88;
        mode set_mode 88..92;
        alignment_requirement set_alignment_requirement 92..96;
    });
    fields!(vec![0; TEMPLATE_LEN], fscc::FileRenameInformation<Bytes<'_>> {
        replace_if_exists set_replace_if_exists 0..1;
        root_directory set_root_directory 8..16;
    });
}

#[test]
fn transform() {
    let mut template = vec![0; TEMPLATE_LEN];
    template[..4].copy_from_slice(&[0xfd, b'S', b'M', b'B']);
    fields!(template, TransformHeader<Bytes<'_>> {
        signature set_signature 4..20;
        nonce set_nonce 20..36;
        original_message_size set_original_message_size 36..40;
        flags set_flags 42..44;
        session_id set_session_id 44..52;
    });
}

#[test]
fn salts_keep_their_length() {
    // Two algorithms and a salt of three bytes, then a byte that is none of it.
    let mut bytes = [2, 0, 3, 0, 1, 0, 7, 0, 0xa, 0xb, 0xc, 0xff];
    let mut view = PreauthIntegrity::parse(&mut bytes[..]).unwrap();
    assert_eq!(view.algorithms().map(|algorithm| algorithm.0).collect::<Vec<_>>(), [1, 7]);
    assert_eq!(view.salt_range(), 8..11);
    assert!(view.set_salt(&[1, 2]).is_err());
    view.set_salt(&[1, 2, 3]).unwrap();
    assert_eq!(view.salt(), [1, 2, 3]);
    assert_eq!(bytes, [2, 0, 3, 0, 1, 0, 7, 0, 1, 2, 3, 0xff]);
    assert!(PreauthIntegrity::parse(&bytes[..10]).is_err());
}

#[test]
fn dialects_to_validate_are_set_in_place() {
    let mut bytes = [vec![0; 22], vec![2, 0, 0x02, 0x03, 0x11, 0x03]].concat();
    let mut view = m::ValidateNegotiateRequest::parse(&mut bytes[..]).unwrap();
    view.set_dialect(2, m::Dialect::SMB_2_1);
    view.set_dialect(1, m::Dialect::SMB_3_0);
    assert_eq!(view.dialects().collect::<Vec<_>>(), [m::Dialect::SMB_3_0_2, m::Dialect::SMB_3_0]);
    assert_eq!(bytes[22..], [2, 0, 0x02, 0x03, 0x00, 0x03]);
    assert!(m::ValidateNegotiateRequest::parse(&bytes[..26]).is_err());
}
