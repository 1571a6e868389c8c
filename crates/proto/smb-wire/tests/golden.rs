//! Messages of real clients and servers, captured: all that is in the clear is read, and nothing is refused.
//! `ISTHMUS_GOLDEN` names the folder of captures; without it this test says so and ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod captures;

use isthmus_smb_wire::compound::{Resolver, elements};
use isthmus_smb_wire::{Header, MessageKind, Request, Response};

#[test]
fn every_clear_message_is_read() {
    let mut totals = Totals::default();
    for path in captures::paths() {
        let bytes = captures::read(&path);
        for (index, (from_server, message)) in captures::records(&bytes).enumerate() {
            let place = || format!("{} message {index}", path.display());
            match MessageKind::of(message) {
                MessageKind::Smb2 => totals.clear(from_server, message, place),
                MessageKind::Transform => {
                    let header = isthmus_smb_wire::transform::TransformHeader::parse(message).unwrap();
                    assert_eq!(
                        header.original_message_size() as usize,
                        header.ciphertext().len(),
                        "{}",
                        place()
                    );
                    totals.encrypted += 1;
                }
                kind => panic!("{}: {kind:?}", place()),
            }
        }
    }
    println!("{totals:?}");
}

#[derive(Debug, Default)]
struct Totals {
    messages: usize,
    elements: usize,
    encrypted: usize,
    payload_bytes: usize,
    contexts: usize,
}

impl Totals {
    fn clear(&mut self, from_server: bool, message: &[u8], place: impl Fn() -> String) {
        self.messages += 1;
        let mut resolver = Resolver::new();
        let mut end = 0;
        for range in elements(message) {
            let range = range.unwrap_or_else(|error| panic!("{}: {error}", place()));
            assert_eq!(range.start, end);
            end = range.end;
            let element = &message[range];
            assert_eq!(Header::parse(element).unwrap().is_response(), from_server);
            if from_server {
                let response =
                    Response::parse(element).unwrap_or_else(|error| panic!("{}: {error}", place()));
                assert!(!matches!(response, Response::Unknown(_)), "{}: {response:?}", place());
                self.response(&response);
            } else {
                let request = Request::parse(element).unwrap_or_else(|error| panic!("{}: {error}", place()));
                assert!(!matches!(request, Request::Unknown(_)), "{}: {request:?}", place());
                resolver.resolve(element).unwrap();
                self.request(&request);
            }
            self.elements += 1;
        }
        assert_eq!(end, message.len());
    }

    fn request(&mut self, request: &Request<&[u8]>) {
        match request {
            Request::Negotiate(view) => self.contexts += view.contexts().map(Result::unwrap).count(),
            Request::Create(view) => self.contexts += view.contexts().map(Result::unwrap).count(),
            Request::Write(view) => {
                assert_eq!(view.payload().len(), view.length() as usize);
                self.payload_bytes += view.payload().len();
            }
            _ => {}
        }
    }

    fn response(&mut self, response: &Response<&[u8]>) {
        match response {
            Response::Negotiate(view) => self.contexts += view.contexts().map(Result::unwrap).count(),
            Response::Create(view) => self.contexts += view.contexts().map(Result::unwrap).count(),
            Response::Read(view) => self.payload_bytes += view.payload().len(),
            _ => {}
        }
    }
}
