//! What messages cost as structure, after the small compression context that the inner channel has for it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic, as tests do")]

mod support;

use isthmus_smb_wire::Command;
use std::collections::BTreeMap;
use support::ends::{Ends, File, Fixed, GMAC, KEY, Protection, Setting};
use support::{Pair, captures};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, compress_bound};

/// A compressing context of the same kind as that of the inner channel's small data.
struct Packer(CCtx<'static>);

impl Packer {
    fn new() -> Self {
        let mut context = CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(3),
            CParameter::WindowLog(17),
            CParameter::HashLog(14),
            CParameter::ChainLog(14),
            CParameter::ContentSizeFlag(false),
        ] {
            context.set_parameter(parameter).unwrap();
        }
        Self(context)
    }

    fn cost(&mut self, bytes: &[u8]) -> usize {
        let mut out = vec![0; compress_bound(bytes.len()) + 64];
        let mut output = OutBuffer::around(&mut out[..]);
        let mut input = InBuffer::around(bytes);
        while input.pos() < bytes.len() {
            self.0.compress_stream(&mut output, &mut input).unwrap();
        }
        assert_eq!(self.0.flush_stream(&mut output).unwrap(), 0);
        output.pos()
    }
}

#[derive(Default)]
struct Sizes {
    messages: usize,
    lan: usize,
    structure: usize,
    packed: usize,
}

/// Sizes by direction and command.
#[derive(Default)]
struct Table(BTreeMap<(bool, u16), Sizes>);

impl Table {
    fn print(&self, title: &str) {
        println!("{title}: per message, LAN without content, structure, packed");
        for ((from_server, command), sizes) in &self.0 {
            let what = if *from_server { "response" } else { "request" };
            let per = |bytes: usize| bytes as f64 / sizes.messages as f64;
            println!(
                "  {:?} {what}: {} × {:.1} → {:.1} → {:.1}",
                Command(*command),
                sizes.messages,
                per(sizes.lan),
                per(sizes.structure),
                per(sizes.packed)
            );
        }
    }

    fn mean(&self) -> f64 {
        let sum = |of: fn(&Sizes) -> usize| self.0.values().map(of).sum::<usize>() as f64;
        sum(|sizes| sizes.packed) / sum(|sizes| sizes.messages)
    }
}

/// Passes messages, each with its plaintext, and sums up from the message of index `from` on.
fn measure(
    pair: &mut Pair,
    messages: &[(bool, Vec<u8>)],
    plain: impl Fn(bool, &[u8]) -> Vec<u8>,
    from: usize,
) -> Table {
    let (mut packers, mut table) = ([Packer::new(), Packer::new()], Table::default());
    for (index, (from_server, message)) in messages.iter().enumerate() {
        let before = pair.way(*from_server).content;
        pair.pass(*from_server, message);
        let way = pair.way(*from_server);
        let (structure, content) = (way.structures.last().unwrap(), way.content - before);
        let packed = packers[usize::from(*from_server)].cost(structure);
        if index >= from {
            let plain = plain(*from_server, message);
            let sizes =
                table.0.entry((*from_server, u16::from_le_bytes([plain[12], plain[13]]))).or_default();
            sizes.messages += 1;
            sizes.lan += message.len() - content;
            sizes.structure += structure.len();
            sizes.packed += packed;
        }
    }
    table
}

#[test]
fn small_operations_in_a_steady_stream_cost_few_bytes() {
    for protection in [Protection::Signed, Protection::Sealed] {
        let (mut ends, mut pair) =
            (Ends::new(Setting { protection, ..GMAC }), Pair::new(Some(Fixed::new(KEY))));
        let mut messages = ends.begin();
        for number in 0..600 {
            messages.extend(ends.small_read(&File::new(number, 4_096), &[number as u8; 4_096]));
        }
        let plain = |from_server: bool, message: &[u8]| match protection {
            Protection::Sealed => ends.open(message, from_server),
            _ => message.to_vec(),
        };
        let table = measure(&mut pair, &messages, plain, 100);
        table.print(&format!("{protection:?}"));
        println!("  mean {:.1}", table.mean());
        assert!(table.mean() <= 16.0);
        assert_eq!(pair.down.content, 600 * 4_096);
    }
}

#[test]
fn captured_sessions_cost_few_bytes() {
    for capture in captures() {
        let mut pair = Pair::new(Some(capture.keys.clone()));
        let plain = |_: bool, message: &[u8]| {
            if message.starts_with(b"\xfeSMB") { message.to_vec() } else { vec![0xff; 64] }
        };
        let table = measure(&mut pair, &capture.messages, plain, 8);
        if capture.name.starts_with("s3") {
            table.print(&capture.name);
        }
        println!("{}: mean {:.1}", capture.name, table.mean());
    }
}
