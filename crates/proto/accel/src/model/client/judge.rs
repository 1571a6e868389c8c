//! What the client makes of what it is told.

use super::{CELL, Client, Kind, Open, Server, Span, Step, header, lease_of, wire};
use isthmus_smb_wire::Status;
use isthmus_smb_wire::fscc::DirectoryEntries;
use isthmus_smb_wire::messages::{
    CreateResponse, InfoClass, QueryDirectoryResponse, QueryInfoResponse, ReadResponse, WriteResponse,
};

impl Client {
    pub(super) fn judge(
        &mut self,
        thread: usize,
        kind: Kind,
        parts: &[Vec<u8>],
        span: Span,
        server: &mut Server,
    ) {
        let response = &parts[0];
        let status = header(response).status();
        let open = self.threads.get(thread).and_then(|thread| thread.open.clone());
        match kind {
            Kind::Echo | Kind::Acknowledge | Kind::Set => {}
            Kind::Open(path) => self.judge_open(thread, &path, response, span, server),
            Kind::OpenFolder => self.judge_open(thread, "d", response, span, server),
            Kind::Stat(path) => self.judge_stat(&path, parts, span, server),
            Kind::List { anew } => self.judge_list(thread, anew, response, span, server),
            Kind::Query(class) => {
                let Some(open) = open else { return };
                if self.is_gone(&open, status, span, server) {
                    return;
                }
                let Ok(view) = QueryInfoResponse::parse(&response[..]) else {
                    return self.wrong(format!("QUERY_INFO: {status:?}"));
                };
                let looked = look(class, view.buffer());
                self.judge_look(open.node, looked, span, server, "queried");
            }
            Kind::Read { from, cells, on } => {
                let Some(open) = open else { return };
                self.judge_read(thread, &open, (from, cells, on), response, span, server);
            }
            Kind::Write { from, versions } => {
                self.judge_write(thread, from, versions, response, span, server)
            }
            Kind::Flush => {
                let Some(open) = open else { return };
                self.judge_end(&open, status, span, server);
                if let Some(open) = &mut self.threads[thread].open {
                    open.told |= status != Status::SUCCESS;
                    open.writes.clear();
                }
            }
            Kind::Close(open) => {
                if open.writes.is_empty() && self.is_gone(&open, status, span, server) {
                    return;
                }
                if !self.early_close {
                    self.judge_end(&open, status, span, server);
                }
            }
        }
    }

    /// After a FLUSH or CLOSE that went well all that was written is on the server.
    fn judge_end(&mut self, open: &Open, status: Status, span: Span, server: &Server) {
        if status != Status::SUCCESS {
            if ![Status::DISK_FULL, Status::INTERNAL_ERROR].contains(&status) {
                self.wrong(format!("the end of {}: {status:?}", open.path));
            }
            return;
        }
        let lost: Vec<_> =
            open.writes.iter().filter(|(cell, one)| !server.history.has(open.node, *cell, *one)).collect();
        if !lost.is_empty() && !open.told {
            self.wrong(format!("{lost:?} of {} were lost without a word in {span:?}", open.path));
        }
    }

    /// Whether the open is no more, which may be when its file was taken away just as it was opened.
    fn is_gone(&mut self, open: &Open, status: Status, span: Span, server: &Server) -> bool {
        if status != Status::FILE_CLOSED {
            return false;
        }
        self.count("closed for the client");
        if !server.history.has_moved(&open.path, open.call.saturating_sub(span.age_max)) {
            self.wrong(format!("{} of file {} is closed in {span:?}", open.path, open.node));
        }
        true
    }

    fn judge_open(&mut self, thread: usize, path: &str, response: &[u8], span: Span, server: &Server) {
        let status = header(response).status();
        if status != Status::SUCCESS {
            self.skip(thread);
            let may_be = match status {
                Status::OBJECT_NAME_NOT_FOUND => server.history.may_mean(path, None, span),
                Status::OBJECT_NAME_COLLISION | Status::DELETE_PENDING => true,
                Status::INVALID_PARAMETER => {
                    *self.keys.entry(path.to_owned()).or_default() += 1;
                    true
                }
                Status::SHARING_VIOLATION => {
                    let other = self.threads.iter().filter_map(|thread| thread.open.as_ref());
                    other.into_iter().any(|open| open.path == path)
                }
                _ => false,
            };
            if !may_be {
                self.wrong(format!("CREATE of {path}: {status:?} in {span:?}"));
            }
            return;
        }
        let view = CreateResponse::parse(response).expect("a CREATE response");
        let id = view.file_id();
        let Some(node) = server.made.get(&id.persistent).copied() else {
            return self.wrong(format!("{path}: an open that never was"));
        };
        if !server.history.may_mean(path, Some(node), span) {
            let was = server.history.meanings(path);
            self.wrong(format!("{path} was not file {node} in {span:?}; it was {was}"));
        }
        let attributes = view.attributes();
        let looked = (attributes.end_of_file, Some(attributes.last_write_time));
        self.judge_look(node, looked, span, server, path);
        self.count(if lease_of(response).is_some() { "opens with a lease" } else { "opens" });
        self.threads[thread].open = Some(Open {
            id,
            node,
            path: path.to_owned(),
            call: span.call,
            writes: Vec::new(),
            listed: Vec::new(),
            listing: None,
            told: false,
        });
    }

    /// Leaves out what was to be done with an open.
    fn skip(&mut self, thread: usize) {
        let steps = &mut self.threads[thread].steps;
        while let Some(step) = steps.pop_front() {
            if matches!(step, Step::Close { .. } | Step::CloseAtOnce) {
                return;
            }
        }
    }

    fn judge_look(&mut self, node: usize, looked: (u64, Option<u64>), span: Span, server: &Server, of: &str) {
        let (size, attributes) = looked;
        let cells = size as usize / CELL;
        let is_so = |one: usize, its: u64| one == cells && attributes.is_none_or(|wanted| wanted == its);
        let what = format!("{cells} cells and {attributes:?} ({of})");
        if !server.nodes[node].is_folder
            && let Some(wrong) = server.history.refuse_look(node, is_so, span, &what)
        {
            self.wrong(wrong);
        }
    }

    fn judge_stat(&mut self, path: &str, parts: &[Vec<u8>], span: Span, server: &Server) {
        let statuses: Vec<Status> = parts.iter().map(|part| header(part).status()).collect();
        if statuses[0] != Status::SUCCESS {
            let absent = server.history.may_mean(path, None, span);
            if statuses[0] != Status::DELETE_PENDING && !absent {
                self.wrong(format!("{path} asked about: {statuses:?} in {span:?}"));
            }
            return;
        }
        self.count("asked about");
        let view = CreateResponse::parse(&parts[0][..]).expect("a CREATE response");
        let node = (view.creation_time() - 1_000) as usize;
        if !server.history.may_mean(path, Some(node), span) {
            self.wrong(format!("{path} asked about was not file {node} in {span:?}"));
        }
        let Some(view) = parts.get(1).and_then(|part| QueryInfoResponse::parse(&part[..]).ok()) else {
            return self.wrong(format!("{path} asked about: {statuses:?}"));
        };
        let looked = look(InfoClass::NETWORK_OPEN, view.buffer());
        self.judge_look(node, looked, span, server, "asked about");
    }

    fn judge_list(&mut self, thread: usize, anew: bool, response: &[u8], span: Span, server: &Server) {
        let status = header(response).status();
        let Some(mut open) = self.threads[thread].open.take() else { return };
        if anew || open.listing.is_none() {
            open.listed.clear();
            open.listing = Some(open.call);
        }
        let whole = Span { call: open.listing.unwrap_or(span.call), ..span };
        match status {
            Status::SUCCESS => {
                self.count("parts of listings");
                let view = QueryDirectoryResponse::parse(response).expect("a listing");
                let entries = DirectoryEntries::new(InfoClass(38), view.buffer()).expect("a class");
                for entry in entries.flatten() {
                    let path = format!("d\\{}", wire::text(entry.name().as_bytes()));
                    let node = entry.file_id().unwrap_or_default() as usize;
                    if !server.history.may_mean(&path, Some(node), whole) {
                        self.wrong(format!("{path} is listed, and was not file {node} in {whole:?}"));
                    }
                    if open.listed.contains(&path) {
                        self.wrong(format!("{path} is listed twice"));
                    }
                    open.listed.push(path);
                }
                self.threads[thread].steps.push_front(Step::List { anew: false });
            }
            Status::NO_MORE_FILES => {
                self.count("listings");
                for path in server.names.keys().filter(|path| path.starts_with("d\\")) {
                    if server.history.was_there(path, whole) && !open.listed.contains(path) {
                        self.wrong.push(format!("{path} is not listed in {whole:?}"));
                    }
                }
            }
            Status::FILE_CLOSED => {
                self.is_gone(&open, status, span, server);
            }
            other => self.wrong(format!("a listing: {other:?}")),
        }
        self.threads[thread].open = Some(open);
    }

    fn judge_read(
        &mut self,
        thread: usize,
        open: &Open,
        (from, cells, on): (usize, usize, bool),
        response: &[u8],
        span: Span,
        server: &Server,
    ) {
        let status = header(response).status();
        if self.is_gone(open, status, span, server) {
            return;
        }
        let payload = match ReadResponse::parse(response) {
            Ok(view) if status == Status::SUCCESS => view.payload().to_vec(),
            _ if status == Status::END_OF_FILE => Vec::new(),
            _ => return self.wrong(format!("READ of {}: {status:?}", open.path)),
        };
        self.count("reads");
        let got = payload.len() / CELL;
        let fits = |size: usize| size.saturating_sub(from).min(cells) == got;
        let history = &server.history;
        // What it has written counts, wherever that is by now.
        let promised = [span.call, span.back + 1].map(|at| history.promised_size(open.node, at));
        let ends = |size: usize, _: u64| {
            promised.iter().any(|promised| fits(size.max(*promised))) || history.is_lossy && fits(size)
        };
        let what = format!("{got} of {cells} cells from {from} on");
        if let Some(wrong) = server.history.refuse_look(open.node, ends, span, &what) {
            self.wrong(wrong);
        }
        for (cell, bytes) in (from..).zip(payload.chunks(CELL)) {
            if let Some(wrong) = server.history.refuse_cell(open.node, cell, wire::version(bytes), span) {
                self.wrong(wrong);
            }
        }
        if on && got == cells {
            self.threads[thread].steps.push_front(Step::Read { from: from + cells, cells, on });
        }
    }

    fn judge_write(
        &mut self,
        thread: usize,
        from: usize,
        versions: Vec<u64>,
        response: &[u8],
        span: Span,
        server: &mut Server,
    ) {
        let status = header(response).status();
        let Some(open) = &mut self.threads[thread].open else { return };
        if status == Status::SUCCESS {
            let whole = WriteResponse::parse(response)
                .is_ok_and(|view| view.count() as usize == versions.len() * CELL);
            assert!(whole, "a part was written");
            for (cell, version) in (from..).zip(&versions) {
                open.writes.push((cell, *version));
                server.history.promised(span.back, open.node, cell, *version);
            }
            return self.count("writes");
        }
        // All that came before may be lost as well.
        open.told = true;
        open.writes.clear();
        if ![Status::DISK_FULL, Status::INTERNAL_ERROR].contains(&status) {
            self.wrong(format!("WRITE: {status:?}"));
        }
    }
}

/// Size and last write, as far as a class has them.
fn look(class: InfoClass, buffer: &[u8]) -> (u64, Option<u64>) {
    let number = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().expect("a number"));
    if class == InfoClass::STANDARD {
        return (number(8), None);
    }
    (number(40), Some(number(16)))
}
