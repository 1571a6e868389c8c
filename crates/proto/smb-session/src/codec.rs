//! Elements of messages as structure: what the near proxy does not need to say because the far one can predict it.
//!
//! Both proxies keep, for each direction, the last few messages of every command. An element is written as the
//! differences from one of these, after fields that follow from others were brought up to date: identifiers from the
//! request that a response answers, offsets from the end of the read before, the open from its number. Whatever the
//! bytes are, the differences give them back.

use crate::bytes_at::{array, put, u16_at, u32_at, u64_at};
use crate::error::AssembleError;
use crate::head::Head;
use crate::limits::{
    BULK_BYTES_MIN, BULK_OFFSET, CONTENT_BYTES_MIN, OPENS_MAX, SKELETON_BYTES_MAX, TEMPLATE_BYTES_MAX,
    TEMPLATES_MAX,
};
use crate::predict::{self, Context, Offsets};
use crate::tracker::{ATTRIBUTES_LEN, Open, Place, Tracker, Waiting};
use crate::{diff, record};
use isthmus_smb_wire::body::Direction;
use isthmus_smb_wire::header::MESSAGE_ID_UNSOLICITED;
use isthmus_smb_wire::messages::{ReadResponse, WriteRequest};
use isthmus_smb_wire::{Command, FileId, HEADER_LEN, Status, file_id, file_id::file_id_offset};
use isthmus_types::varint;
use std::ops::Range;

/// Which way messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Request,
    Response,
}

impl Way {
    pub fn other(self) -> Self {
        match self {
            Self::Request => Self::Response,
            Self::Response => Self::Request,
        }
    }

    pub fn direction(self) -> Direction {
        match self {
            Self::Request => Direction::Request,
            Self::Response => Direction::Response,
        }
    }

    pub fn is_response(self) -> bool {
        self == Self::Response
    }
}

/// Where an element's content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It has none.
    None,
    /// Where its own fields say: the data of a READ response or WRITE request.
    Data(Range<usize>),
    /// The end of a long listing or other answer.
    Bulk(Range<usize>),
}

impl Part {
    pub fn range(&self) -> Range<usize> {
        match self {
            Self::None => 0..0,
            Self::Data(range) | Self::Bulk(range) => range.clone(),
        }
    }

    /// Of an element as it came.
    pub fn of(element: &[u8], way: Way) -> Self {
        let header = Head(element);
        let command = header.command();
        let data = match (command, way) {
            (Command::READ, Way::Response) => {
                ReadResponse::parse(element).ok().map(|view| view.payload_range())
            }
            (Command::WRITE, Way::Request) => {
                WriteRequest::parse(element).ok().map(|view| view.payload_range())
            }
            _ => None,
        };
        if let Some(range) = data {
            return if range.len() >= CONTENT_BYTES_MIN { Self::Data(range) } else { Self::None };
        }
        let bulk = matches!(
            command,
            Command::QUERY_DIRECTORY
                | Command::QUERY_INFO
                | Command::SET_INFO
                | Command::IOCTL
                | Command::CHANGE_NOTIFY
        );
        if bulk && element.len() >= BULK_BYTES_MIN {
            Self::Bulk(BULK_OFFSET..element.len())
        } else {
            Self::None
        }
    }

    /// Where the data is that an element's own fields tell of, from the element without it.
    fn data_of(skeleton: &[u8], way: Way) -> (usize, usize) {
        let (at, length) = match way {
            Way::Response => (u16_at(skeleton, HEADER_LEN + 2) & 0xff, u32_at(skeleton, HEADER_LEN + 4)),
            Way::Request => (u16_at(skeleton, HEADER_LEN + 2), u32_at(skeleton, HEADER_LEN + 4)),
        };
        (at.into(), length as usize)
    }
}

/// An element read from structure.
pub(crate) struct Decoded {
    /// The element without its content; NextCommand and a signature left out are zero.
    pub skeleton: Vec<u8>,
    /// Whether it is to be signed.
    pub sign: bool,
    /// Where the content belongs, and how long it is.
    pub content_at: usize,
    pub content_len: usize,
}

const SIGN: u8 = 0x01;
const DATA: u8 = 0x02;
/// Request: another open than the last one. Response: not to the oldest waiting request.
const REFERENCE: u8 = 0x04;
const LENGTH: u8 = 0x08;
const DIFFERENCES: u8 = 0x10;
const COMMAND: u8 = 0x20;
const TEMPLATE: u8 = 0x40;
const BULK: u8 = 0x80;

/// In a template byte: the element is kept beside the template, not in its place.
const NEW: u8 = 0x80;

/// Commands that have templates of their own; the others share those of the last.
const SLOTS: usize = 0x15;

/// A message kept to predict from.
struct Template {
    /// Its first bytes.
    bytes: Vec<u8>,
    /// Its whole length without content.
    length: usize,
}

/// State of one direction, alike on both sides since it is made of what crossed.
pub(crate) struct Codec {
    way: Way,
    templates: [Vec<Template>; SLOTS],
    /// Command that came after each.
    after: [Command; SLOTS],
    last: Command,
    next_message_id: u64,
    /// Number of the open that the last request was about.
    open: Option<u64>,
    offsets: Offsets,
}

/// What an element refers to.
#[derive(Clone, Copy)]
struct Plan {
    command: Command,
    place: Option<Place>,
    open: Option<u64>,
    /// Index of the template, and whether the element is kept beside it.
    index: usize,
    new: bool,
}

const BAD: AssembleError = AssembleError::Malformed("element");

impl Codec {
    pub fn new(way: Way) -> Self {
        Self {
            way,
            templates: Default::default(),
            after: [Command::NEGOTIATE; SLOTS],
            last: Command::NEGOTIATE,
            next_message_id: 0,
            open: None,
            offsets: Offsets::default(),
        }
    }

    /// Writes an element of which NextCommand, and the signature if it is to be made again, are zero.
    pub fn encode(
        &mut self,
        tracker: &mut Tracker,
        skeleton: &[u8],
        part: &Part,
        sign: bool,
        out: &mut Vec<u8>,
    ) {
        let plan = self.plan(tracker, skeleton);
        let flags_at = out.len();
        let mut flags = 0;
        out.push(0);
        let mut flag = |condition: bool, bit| {
            flags |= if condition { bit } else { 0 };
            condition
        };
        flag(sign, SIGN);
        flag(matches!(part, Part::Data(_)), DATA);
        match self.way {
            Way::Request => {
                if flag(plan.command != self.expected(), COMMAND) {
                    varint::put(out, plan.command.0.into());
                }
                if flag(plan.open != self.open, REFERENCE) {
                    record::put_reference(out, self.open, plan.open);
                }
            }
            Way::Response => match plan.place {
                Some(place) => {
                    if flag(place != Place::First(0), REFERENCE) {
                        record::put_place(out, place);
                    }
                }
                None => {
                    flag(true, COMMAND);
                    varint::put(out, plan.command.0.into());
                }
            },
        }
        if flag(plan.index != 0 || plan.new, TEMPLATE) {
            out.push(plan.index as u8 | if plan.new { NEW } else { 0 });
        }
        let template = self.template(&plan);
        let expected = template.map_or(HEADER_LEN, |template| template.length);
        if flag(skeleton.len() != expected, LENGTH) {
            varint::put(out, varint::zigzag(skeleton.len() as i64 - expected as i64));
        }
        if flag(matches!(part, Part::Bulk(_)), BULK) {
            varint::put(out, part.range().len() as u64);
        }
        let predicted = self.predict(tracker, &plan, skeleton.len());
        flag(diff::put(&predicted, skeleton, out), DIFFERENCES);
        if let Some(byte) = out.get_mut(flags_at) {
            *byte = flags;
        }
        self.learn(tracker, &plan, skeleton);
    }

    /// Reads an element.
    pub fn decode(&mut self, tracker: &mut Tracker, input: &mut &[u8]) -> Result<Decoded, AssembleError> {
        let flags = record::byte(input)?;
        let has = |bit| flags & bit != 0;
        let (command, place, open) = match self.way {
            Way::Request => {
                let command = if has(COMMAND) { record::command(input)? } else { self.expected() };
                let open = if has(REFERENCE) { record::reference(input, self.open)? } else { self.open };
                (command, None, open)
            }
            Way::Response if has(COMMAND) => (record::command(input)?, None, None),
            Way::Response => {
                let place = if has(REFERENCE) { record::place(input)? } else { Place::First(0) };
                let request = tracker.at(place).ok_or(AssembleError::Malformed("no such request"))?;
                (request.command, Some(place), request.open)
            }
        };
        if self.way == Way::Request && open.is_some_and(|number| tracker.open_at(number).is_none()) {
            return Err(AssembleError::Malformed("no such open"));
        }
        let template = if has(TEMPLATE) { record::byte(input)? } else { 0 };
        let plan =
            Plan { command, place, open, index: usize::from(template & !NEW), new: template & NEW != 0 };
        let known = self.templates.get(slot(command)).map_or(0, Vec::len);
        if plan.index >= known.max(1) {
            return Err(BAD);
        }
        let expected = self.template(&plan).map_or(HEADER_LEN, |template| template.length);
        let length = if has(LENGTH) { record::length(input, expected)? } else { expected };
        if !(HEADER_LEN..=SKELETON_BYTES_MAX).contains(&length) {
            return Err(BAD);
        }
        let bulk = if has(BULK) { Some(varint::take(input).ok_or(BAD)?) } else { None };
        let mut skeleton = self.predict(tracker, &plan, length);
        skeleton.resize(length, 0);
        if has(DIFFERENCES) {
            diff::take(&mut skeleton, input)?;
        }
        self.learn(tracker, &plan, &skeleton);
        let (content_at, content_len) = match (has(DATA), bulk) {
            (false, None) => (0, 0),
            (true, None) => Part::data_of(&skeleton, self.way),
            (false, Some(length)) => (BULK_OFFSET, usize::try_from(length).map_err(|_| BAD)?),
            (true, Some(_)) => return Err(BAD),
        };
        if content_at > skeleton.len() || content_len > isthmus_smb_wire::transport::MESSAGE_LEN_MAX {
            return Err(BAD);
        }
        Ok(Decoded { skeleton, sign: has(SIGN), content_at, content_len })
    }

    fn expected(&self) -> Command {
        self.after.get(slot(self.last)).copied().unwrap_or(Command::NEGOTIATE)
    }

    fn template(&self, plan: &Plan) -> Option<&Template> {
        self.templates.get(slot(plan.command))?.get(plan.index)
    }

    fn plan(&self, tracker: &Tracker, skeleton: &[u8]) -> Plan {
        let header = Head(skeleton);
        let command = header.command();
        let (place, open) = match self.way {
            Way::Request => {
                let number = id_of(skeleton, command, self.way).and_then(|id| tracker.number_of(id));
                (None, number.or_else(|| self.open.filter(|open| tracker.is_sure(*open))))
            }
            Way::Response => {
                let unsolicited = header.message_id() == MESSAGE_ID_UNSOLICITED;
                let place = if unsolicited { None } else { tracker.find(header.message_id()) };
                let place = place.filter(|place| tracker.at(*place).is_some_and(|r| r.command == command));
                (place, place.and_then(|place| tracker.at(place)?.open))
            }
        };
        let known = self.templates.get(slot(command)).map_or(&[][..], Vec::as_slice);
        let kind = predict::kind(skeleton, self.way);
        let same = known.iter().position(|template| predict::kind(&template.bytes, self.way) == kind);
        let (index, new) = match same {
            Some(index) => (index, false),
            None => (nearest(known, skeleton), true),
        };
        Plan { command, place, open, index, new }
    }

    /// The element's first bytes as they should be.
    fn predict(&self, tracker: &Tracker, plan: &Plan, length: usize) -> Vec<u8> {
        let (mut bytes, known) = match self.template(plan) {
            Some(template) => (template.bytes.clone(), true),
            None => (predict::blank(plan.command, self.way), false),
        };
        bytes.truncate(length);
        let context = Context {
            request: plan.place.and_then(|place| tracker.at(place)),
            open: plan.open.and_then(|number| tracker.open_at(number).map(|open| (number, open))),
            next_message_id: self.next_message_id,
            offsets: &self.offsets,
            length,
            known,
        };
        match self.way {
            Way::Request => predict::request(&mut bytes, plan.command, &context),
            Way::Response => predict::response(&mut bytes, plan.command, &context),
        }
        bytes
    }

    fn learn(&mut self, tracker: &mut Tracker, plan: &Plan, skeleton: &[u8]) {
        match self.way {
            Way::Request => self.learn_request(tracker, plan, skeleton),
            Way::Response => learn_response(tracker, plan, skeleton),
        }
        let Some(list) = self.templates.get_mut(slot(plan.command)) else { return };
        let mut bytes = skeleton.to_vec();
        bytes.truncate(TEMPLATE_BYTES_MAX);
        let template = Template { bytes, length: skeleton.len() };
        if !plan.new && plan.index < list.len() {
            list.remove(plan.index);
        }
        list.insert(0, template);
        list.truncate(TEMPLATES_MAX);
    }

    fn learn_request(&mut self, tracker: &mut Tracker, plan: &Plan, skeleton: &[u8]) {
        let header = Head(skeleton);
        if let Some(after) = self.after.get_mut(slot(self.last)) {
            *after = plan.command;
        }
        self.last = plan.command;
        self.open = plan.open;
        if plan.command == Command::CANCEL {
            return;
        }
        self.next_message_id = header.message_id().wrapping_add(header.charge().max(1).into());
        let about = plan.open.filter(|number| {
            let known = tracker.open_at(*number).map(|open| open.id);
            known.is_some() && id_of(skeleton, plan.command, self.way) == known
        });
        let (offset, length) = match plan.command {
            Command::READ | Command::WRITE => {
                (u64_at(skeleton, HEADER_LEN + 8), u32_at(skeleton, HEADER_LEN + 4))
            }
            _ => (0, 0),
        };
        if let Some(number) = about
            && matches!(plan.command, Command::READ | Command::WRITE)
        {
            self.offsets.set(plan.command, number, offset.wrapping_add(length.into()));
        }
        tracker.push(Waiting {
            command: plan.command,
            charge: header.charge(),
            flags: header.flags().0,
            message_id: header.message_id(),
            session_id: header.session_id(),
            tree_id: header.tree_id(),
            async_id: None,
            open: about,
            offset,
            length,
        });
    }
}

fn learn_response(tracker: &mut Tracker, plan: &Plan, skeleton: &[u8]) {
    let header = Head(skeleton);
    let Some(place) = plan.place else { return };
    let interim = header.interim();
    tracker.answered(place, interim);
    if interim.is_none()
        && plan.command == Command::CREATE
        && header.status() == Status::SUCCESS
        && let Some(id) = id_of(skeleton, plan.command, Way::Response)
    {
        let attributes: [u8; ATTRIBUTES_LEN] = array(skeleton, HEADER_LEN + 8);
        tracker.open(Open { id, attributes });
    }
}

/// The open in an element's field, unless that says "the one before".
fn id_of(skeleton: &[u8], command: Command, way: Way) -> Option<FileId> {
    file_id_offset(command, way.direction())?;
    file_id(skeleton).filter(|id| *id != FileId::ANY)
}

fn nearest(known: &[Template], skeleton: &[u8]) -> usize {
    let cost = |template: &Template| diff::cost(&template.bytes, skeleton);
    known.iter().enumerate().min_by_key(|(_, template)| cost(template)).map_or(0, |(index, _)| index)
}

fn slot(command: Command) -> usize {
    usize::from(command.0).min(SLOTS - 1)
}

const _: () = assert!(OPENS_MAX > crate::limits::REQUESTS_MAX as u64 && TEMPLATES_MAX < NEW as usize);

/// Sets NextCommand.
pub(crate) fn set_next_command(skeleton: &mut [u8], next: u32) {
    put(skeleton, 20, &next.to_le_bytes());
}
