//! Compares how both implementations read a message.

use isthmus_smb_wire::create_context::CreateContexts;
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::negotiate_context::{self, NegotiateContextType, NegotiateContexts, PreauthIntegrity};
use isthmus_smb_wire::{FileId, Header, Request, Response};
use smb2::msg as o;
use smb2::msg::create_context as oc;
use smb2::msg::negotiate::NegotiateContext;
use smb2::pack::{FileTime, Guid, Pack, ReadCursor, Unpack, WriteCursor};
use smb2::types as ot;

/// The other implementation's reading of a body.
fn unpack<T: Unpack>(message: &[u8]) -> Option<T> {
    T::unpack(&mut ReadCursor::new(message.get(64..)?)).ok()
}

/// Whether the other implementation can read a body that has nothing to compare.
fn readable<T: Unpack>(message: &[u8]) -> Option<()> {
    unpack::<T>(message).map(|_| ())
}

/// The identifier of an open, as ours.
pub fn id(id: ot::FileId) -> FileId {
    FileId { persistent: id.persistent, volatile: id.volatile }
}

fn guid(guid: Guid) -> [u8; 16] {
    let mut cursor = WriteCursor::new();
    guid.pack(&mut cursor);
    cursor.into_inner().try_into().unwrap()
}

fn same_header(message: &[u8]) {
    let header = Header::parse(message).unwrap();
    let other = o::Header::unpack(&mut ReadCursor::new(message)).unwrap();
    assert_eq!(header.credit_charge(), other.credit_charge.0);
    assert_eq!(header.status().0, other.status.0);
    assert_eq!(header.command().0, u16::from(other.command));
    assert_eq!(header.credits(), other.credits);
    assert_eq!(header.flags().0, other.flags.bits());
    assert_eq!(header.is_response(), other.is_response());
    assert_eq!(header.next_command(), other.next_command);
    assert_eq!(header.message_id(), other.message_id.0);
    assert_eq!(header.tree_id(), other.tree_id.map(|id| id.0));
    assert_eq!(header.async_id(), other.async_id);
    assert_eq!(header.session_id(), other.session_id.0);
    assert_eq!(header.signature(), other.signature);
}

/// Compares an element as both read it. Whether the other could read it.
pub fn agree(message: &[u8]) -> bool {
    same_header(message);
    let agreed = if Header::parse(message).unwrap().is_response() {
        response_agrees(message, &Response::parse(message).unwrap())
    } else {
        request_agrees(message, &Request::parse(message).unwrap())
    };
    agreed.is_some()
}

fn request_agrees(message: &[u8], request: &Request<&[u8]>) -> Option<()> {
    match request {
        Request::Negotiate(view) => {
            let other: o::negotiate::NegotiateRequest = unpack(message)?;
            assert_eq!(view.security_mode().0, other.security_mode.bits());
            assert_eq!(view.capabilities().0, other.capabilities.bits());
            assert_eq!(view.client_guid(), guid(other.client_guid));
            let dialects: Vec<u16> = other.dialects.iter().map(|&dialect| dialect.into()).collect();
            assert_eq!(view.dialects().map(|dialect| dialect.0).collect::<Vec<_>>(), dialects);
            same_negotiate_contexts(view.contexts(), &other.negotiate_contexts);
        }
        Request::SessionSetup(view) => {
            let other: o::session_setup::SessionSetupRequest = unpack(message)?;
            assert_eq!(view.flags().0, other.flags.0);
            assert_eq!(u16::from(view.security_mode()), other.security_mode.bits());
            assert_eq!(view.capabilities().0, other.capabilities.bits());
            assert_eq!(
                (view.channel(), view.previous_session_id()),
                (other.channel, other.previous_session_id)
            );
            assert_eq!(view.security_buffer(), other.security_buffer);
        }
        Request::TreeConnect(view) => {
            let other: o::tree_connect::TreeConnectRequest = unpack(message)?;
            assert_eq!(view.flags().0, other.flags.0);
            assert!(view.path().eq_str(&other.path));
        }
        Request::Create(view) => {
            let other: o::create::CreateRequest = unpack(message)?;
            assert_eq!(view.oplock_level().0, other.requested_oplock_level as u8);
            assert_eq!(view.impersonation_level(), other.impersonation_level as u32);
            assert_eq!(view.desired_access().0, other.desired_access.bits());
            assert_eq!(view.file_attributes().0, other.file_attributes);
            assert_eq!(view.share_access().0, other.share_access.0);
            assert_eq!(view.disposition().0, other.create_disposition as u32);
            assert_eq!(view.options().0, other.create_options);
            assert!(view.name().eq_str(&other.name));
            same_create_contexts(view.contexts(), &other.create_contexts);
        }
        Request::Close(view) => {
            let other: o::close::CloseRequest = unpack(message)?;
            assert_eq!((view.flags().0, view.file_id()), (other.flags, id(other.file_id)));
        }
        Request::Flush(view) => {
            let other: o::flush::FlushRequest = unpack(message)?;
            assert_eq!(view.file_id(), id(other.file_id));
        }
        Request::Read(view) => {
            let other: o::read::ReadRequest = unpack(message)?;
            assert_eq!((view.padding(), view.flags().0), (other.padding, other.flags));
            assert_eq!((view.length(), view.offset()), (other.length, other.offset));
            assert_eq!((view.file_id(), view.minimum_count()), (id(other.file_id), other.minimum_count));
            assert_eq!((view.channel().0, view.remaining_bytes()), (other.channel, other.remaining_bytes));
        }
        Request::Write(view) => {
            let other: o::write::WriteRequest = unpack(message)?;
            assert_eq!((view.offset(), view.file_id()), (other.offset, id(other.file_id)));
            assert_eq!((view.channel().0, view.remaining_bytes()), (other.channel, other.remaining_bytes));
            assert_eq!((view.flags().0, view.payload()), (other.flags, &other.data[..]));
        }
        Request::Lock(view) => {
            let other: o::lock::LockRequest = unpack(message)?;
            assert_eq!((view.lock_sequence(), view.file_id()), (other.lock_sequence, id(other.file_id)));
            let locks: Vec<_> =
                other.locks.iter().map(|lock| (lock.offset, lock.length, lock.flags)).collect();
            assert_eq!(
                view.locks().map(|lock| (lock.offset, lock.length, lock.flags.0)).collect::<Vec<_>>(),
                locks
            );
        }
        Request::Ioctl(view) => {
            let other: o::ioctl::IoctlRequest = unpack(message)?;
            assert_eq!((view.control_code().0, view.file_id()), (other.ctl_code, id(other.file_id)));
            assert_eq!(view.max_input_response(), other.max_input_response);
            assert_eq!(view.max_output_response(), other.max_output_response);
            assert_eq!((view.flags(), view.input()), (other.flags, &other.input_data[..]));
        }
        Request::QueryDirectory(view) => {
            let other: o::query_directory::QueryDirectoryRequest = unpack(message)?;
            assert_eq!(view.info_class().0, other.file_information_class as u8);
            assert_eq!((view.flags().0, view.file_index()), (other.flags.0, other.file_index));
            assert_eq!(
                (view.file_id(), view.output_buffer_length()),
                (id(other.file_id), other.output_buffer_length)
            );
            assert!(view.pattern().eq_str(&other.file_name));
        }
        Request::ChangeNotify(view) => {
            let other: o::change_notify::ChangeNotifyRequest = unpack(message)?;
            assert_eq!(
                (view.flags(), view.output_buffer_length()),
                (other.flags, other.output_buffer_length)
            );
            assert_eq!(
                (view.file_id(), view.completion_filter()),
                (id(other.file_id), other.completion_filter)
            );
        }
        Request::QueryInfo(view) => {
            let other: o::query_info::QueryInfoRequest = unpack(message)?;
            assert_eq!(
                (view.info_type().0, view.info_class().0),
                (other.info_type as u8, other.file_info_class)
            );
            assert_eq!(view.output_buffer_length(), other.output_buffer_length);
            assert_eq!(view.additional_information(), other.additional_information);
            assert_eq!((view.flags(), view.file_id()), (other.flags, id(other.file_id)));
            assert_eq!(view.input(), other.input_buffer);
        }
        Request::SetInfo(view) => {
            let other: o::set_info::SetInfoRequest = unpack(message)?;
            assert_eq!(
                (view.info_type().0, view.info_class().0),
                (other.info_type as u8, other.file_info_class)
            );
            assert_eq!(view.additional_information(), other.additional_information);
            assert_eq!((view.file_id(), view.buffer()), (id(other.file_id), &other.buffer[..]));
        }
        Request::OplockBreak(view) => {
            let other: o::oplock_break::OplockBreak = unpack(message)?;
            assert_eq!(
                (view.oplock_level().0, view.file_id()),
                (other.oplock_level as u8, id(other.file_id))
            );
        }
        Request::Logoff(_) => readable::<o::logoff::LogoffRequest>(message)?,
        Request::TreeDisconnect(_) => readable::<o::tree_disconnect::TreeDisconnectRequest>(message)?,
        Request::Cancel(_) => readable::<o::cancel::CancelRequest>(message)?,
        Request::Echo(_) => readable::<o::echo::EchoRequest>(message)?,
        Request::LeaseBreak(_) | Request::Unknown(_) => return None,
    }
    Some(())
}

fn response_agrees(message: &[u8], response: &Response<&[u8]>) -> Option<()> {
    match response {
        Response::Error(view) => {
            let other: o::ErrorResponse = unpack(message)?;
            assert_eq!(
                (view.context_count(), view.data()),
                (other.error_context_count, &other.error_data[..])
            );
        }
        Response::Negotiate(view) => {
            let other: o::negotiate::NegotiateResponse = unpack(message)?;
            assert_eq!(view.security_mode().0, other.security_mode.bits());
            assert_eq!(view.dialect().0, u16::from(other.dialect_revision));
            assert_eq!(view.server_guid(), guid(other.server_guid));
            assert_eq!(view.capabilities().0, other.capabilities.bits());
            assert_eq!(view.max_transact_size(), other.max_transact_size);
            assert_eq!(
                (view.max_read_size(), view.max_write_size()),
                (other.max_read_size, other.max_write_size)
            );
            assert_eq!(
                (view.system_time(), view.server_start_time()),
                (other.system_time, other.server_start_time)
            );
            assert_eq!(view.security_buffer(), other.security_buffer);
            same_negotiate_contexts(view.contexts(), &other.negotiate_contexts);
        }
        Response::SessionSetup(view) => {
            let other: o::session_setup::SessionSetupResponse = unpack(message)?;
            assert_eq!(view.session_flags().0, other.session_flags.0);
            assert_eq!(view.security_buffer(), other.security_buffer);
        }
        Response::TreeConnect(view) => {
            let other: o::tree_connect::TreeConnectResponse = unpack(message)?;
            assert_eq!(view.share_type().0, other.share_type as u8);
            assert_eq!(view.share_flags().0, other.share_flags.bits());
            assert_eq!(view.capabilities().0, other.capabilities.bits());
            assert_eq!(view.maximal_access().0, other.maximal_access);
        }
        Response::Create(view) => {
            let other: o::create::CreateResponse = unpack(message)?;
            assert_eq!((view.oplock_level().0, view.flags()), (other.oplock_level as u8, other.flags));
            assert_eq!(view.create_action().0, other.create_action as u32);
            let times =
                [other.creation_time, other.last_access_time, other.last_write_time, other.change_time];
            same_attributes(
                view.attributes(),
                times,
                other.allocation_size,
                other.end_of_file,
                other.file_attributes,
            );
            assert_eq!(view.file_id(), id(other.file_id));
            same_create_contexts(view.contexts(), &other.create_contexts);
        }
        Response::Close(view) => {
            let other: o::close::CloseResponse = unpack(message)?;
            assert_eq!(view.flags().0, other.flags);
            let times =
                [other.creation_time, other.last_access_time, other.last_write_time, other.change_time];
            same_attributes(
                view.attributes(),
                times,
                other.allocation_size,
                other.end_of_file,
                other.file_attributes,
            );
        }
        Response::Read(view) => {
            let other: o::read::ReadResponse = unpack(message)?;
            assert_eq!((view.data_remaining(), view.flags()), (other.data_remaining, other.flags));
            assert_eq!(view.payload(), other.data);
        }
        Response::Write(view) => {
            let other: o::write::WriteResponse = unpack(message)?;
            assert_eq!((view.count(), view.remaining()), (other.count, other.remaining));
        }
        Response::Ioctl(view) => {
            let other: o::ioctl::IoctlResponse = unpack(message)?;
            assert_eq!((view.control_code().0, view.file_id()), (other.ctl_code, id(other.file_id)));
            assert_eq!((view.flags(), view.output()), (other.flags, &other.output_data[..]));
        }
        Response::QueryDirectory(view) => {
            assert_eq!(
                view.buffer(),
                unpack::<o::query_directory::QueryDirectoryResponse>(message)?.output_buffer
            );
        }
        Response::ChangeNotify(view) => {
            assert_eq!(view.buffer(), unpack::<o::change_notify::ChangeNotifyResponse>(message)?.output_data);
        }
        Response::QueryInfo(view) => {
            assert_eq!(view.buffer(), unpack::<o::query_info::QueryInfoResponse>(message)?.output_buffer);
        }
        Response::OplockBreak(view) => {
            let other: o::oplock_break::OplockBreak = unpack(message)?;
            assert_eq!(
                (view.oplock_level().0, view.file_id()),
                (other.oplock_level as u8, id(other.file_id))
            );
        }
        Response::OplockBreakAcknowledged(view) => {
            let other: o::oplock_break::OplockBreak = unpack(message)?;
            assert_eq!(
                (view.oplock_level().0, view.file_id()),
                (other.oplock_level as u8, id(other.file_id))
            );
        }
        Response::SetInfo(_) => readable::<o::set_info::SetInfoResponse>(message)?,
        Response::Lock(_) => readable::<o::lock::LockResponse>(message)?,
        Response::Flush(_) => readable::<o::flush::FlushResponse>(message)?,
        Response::Logoff(_) => readable::<o::logoff::LogoffResponse>(message)?,
        Response::TreeDisconnect(_) => readable::<o::tree_disconnect::TreeDisconnectResponse>(message)?,
        Response::Echo(_) => readable::<o::echo::EchoResponse>(message)?,
        Response::LeaseBreak(_)
        | Response::LeaseBreakAcknowledged(_)
        | Response::Notification(_)
        | Response::Unknown(_) => return None,
    }
    Some(())
}

/// Compares what is told of a file.
pub fn same_attributes(
    ours: FileTimesAndSizes,
    times: [FileTime; 4],
    allocation: u64,
    end: u64,
    attributes: u32,
) {
    let found = [ours.creation_time, ours.last_access_time, ours.last_write_time, ours.change_time];
    assert_eq!(found, times.map(|time| time.0));
    assert_eq!(
        (ours.allocation_size, ours.end_of_file, ours.file_attributes.0),
        (allocation, end, attributes)
    );
}

fn same_create_contexts(ours: CreateContexts<'_>, other: &[u8]) {
    let other = if other.is_empty() { Vec::new() } else { oc::parse_contexts(other).unwrap() };
    let ours: Vec<_> =
        ours.map(|one| one.map(|one| (one.name.to_vec(), one.data.to_vec())).unwrap()).collect();
    assert_eq!(ours, other.into_iter().map(|one| (one.name, one.data)).collect::<Vec<_>>());
}

fn same_negotiate_contexts(ours: NegotiateContexts<'_>, other: &[NegotiateContext]) {
    let ours: Vec<_> = ours.map(Result::unwrap).collect();
    assert_eq!(ours.len(), other.len());
    for (ours, other) in ours.iter().zip(other) {
        let counted = || negotiate_context::counted(ours.data).unwrap().collect::<Vec<_>>();
        let kind = match other {
            NegotiateContext::PreauthIntegrity { hash_algorithms, salt } => {
                let view = PreauthIntegrity::parse(ours.data).unwrap();
                assert_eq!(&view.algorithms().map(|one| one.0).collect::<Vec<_>>(), hash_algorithms);
                assert_eq!(view.salt(), salt);
                NegotiateContextType::PREAUTH_INTEGRITY
            }
            NegotiateContext::Encryption { ciphers } => {
                assert_eq!(&counted(), ciphers);
                NegotiateContextType::ENCRYPTION
            }
            NegotiateContext::Compression { flags, algorithms } => {
                let (found, list) = negotiate_context::compression(ours.data).unwrap();
                assert_eq!((found.0, &list.map(|one| one.0).collect::<Vec<_>>()), (*flags, algorithms));
                NegotiateContextType::COMPRESSION
            }
            NegotiateContext::Signing { algorithms } => {
                assert_eq!(&counted(), algorithms);
                NegotiateContextType::SIGNING
            }
            NegotiateContext::Unknown { context_type, data } => {
                assert_eq!(ours.data, data);
                NegotiateContextType(*context_type)
            }
        };
        assert_eq!(ours.kind, kind);
    }
}
