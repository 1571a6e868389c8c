//! The IP-level emulator against what was set: tolerances are wide, since machines are busy; a gross error is what
//! these tests look for.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use isthmus_lab::wan::{Loss, WanShape};
use isthmus_lab::work::{
    SinkMode, connect, download, echo_server, echo_times, sink_server, source_server, upload,
};
use isthmus_lab::{Place, WanLab};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A lab, or `None` with the reason printed.
fn lab(shape: WanShape) -> Option<WanLab> {
    if let Err(reason) = WanLab::available() {
        println!("skipped: {reason}");
        return None;
    }
    Some(WanLab::start(shape).unwrap())
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((WanLab::SERVER, port))
}

fn content(len: usize) -> Bytes {
    isthmus_lab::corpus::random_bytes(len, 1).into()
}

#[test]
fn round_trip_time_is_what_was_set() {
    let Some(lab) = lab(WanShape::symmetric(Duration::from_millis(60), None)) else { return };
    let _echo = echo_server(&lab.server(), at(7000)).unwrap();
    let times = lab.client().block_on(|| echo_times(at(7000), 60, 15, Duration::ZERO)).unwrap();
    println!("set 60 ms; min {:?}, median {:?}", times.quantile(0.0), times.quantile(0.5));
    assert!(times.quantile(0.0) >= Duration::from_millis(60));
    assert!(times.quantile(0.5) < Duration::from_millis(75));

    lab.wan().set_shape(WanShape::symmetric(Duration::from_millis(10), None));
    let times = lab.client().block_on(|| echo_times(at(7000), 60, 15, Duration::ZERO)).unwrap();
    assert!(times.quantile(0.0) >= Duration::from_millis(10));
    assert!(times.quantile(0.5) < Duration::from_millis(25), "{:?}", times.quantile(0.5));
}

#[test]
fn each_direction_has_its_own_rate() {
    let shape = WanShape::asymmetric(Duration::from_millis(10), Some(80_000_000), Some(20_000_000));
    let Some(lab) = lab(shape) else { return };
    let data = content(4_000_000);
    let _source = source_server(&lab.server(), at(7001), data.clone()).unwrap();
    let (_sink, _) = sink_server(&lab.server(), at(7002), SinkMode::Discard).unwrap();
    let down = lab.client().block_on(|| download(at(7001), data.clone())).unwrap();
    let after_down = lab.wan().stats();
    let up = lab.client().block_on(|| upload(at(7002), data.clone(), None)).unwrap();
    let mbps = |transfer: &isthmus_lab::work::Transfer| transfer.bytes as f64 * 8e-6 / transfer.seconds;
    println!("set 20 down, 80 up; measured {:.1} down, {:.1} up Mbit/s", mbps(&down), mbps(&up));
    // Payload is at most 1448 of 1500 bytes; a rate above the link's would be wrong however fast the machine.
    assert!((10.0..=19.4).contains(&mbps(&down)), "{:.1}", mbps(&down));
    assert!((30.0..=78.0).contains(&mbps(&up)), "{:.1}", mbps(&up));
    // 4 MB in packets of 1448 bytes of payload and 52 of headers, and not twice that.
    let carried = after_down.down.bytes_out;
    assert!((4_100_000..4_700_000).contains(&carried), "{carried}");
}

#[test]
fn loss_is_what_was_set_and_tcp_gets_through() {
    let loss = Loss::Independent { probability: 0.02 };
    let Some(lab) = lab(WanShape::symmetric(Duration::from_millis(4), Some(50_000_000)).with_loss(loss))
    else {
        return;
    };
    let data = content(3_000_000);
    let _source = source_server(&lab.server(), at(7003), data.clone()).unwrap();
    lab.client().block_on(|| download(at(7003), data.clone())).unwrap();
    let stats = lab.wan().stats().down;
    let share = stats.dropped_loss as f64 / stats.packets_in as f64;
    println!("set 2 %; lost {} of {} packets", stats.dropped_loss, stats.packets_in);
    assert!((0.01..0.032).contains(&share), "{share}");
}

#[test]
fn a_full_queue_drops_its_tail() {
    let mut shape = WanShape::symmetric(Duration::from_millis(20), Some(10_000_000));
    shape.down.queue_bytes = 15_000;
    let Some(lab) = lab(shape) else { return };
    let data = content(1_500_000);
    let _source = source_server(&lab.server(), at(7004), data.clone()).unwrap();
    lab.client().block_on(|| download(at(7004), data.clone())).unwrap();
    let stats = lab.wan().stats().down;
    assert!(stats.dropped_queue > 0 && stats.dropped_loss == 0, "{stats:?}");
}

#[test]
fn a_cut_stops_everything_and_tcp_goes_on_afterwards() {
    let Some(lab) = lab(WanShape::symmetric(Duration::from_millis(4), None)) else { return };
    let _echo = echo_server(&lab.server(), at(7005)).unwrap();
    let client = lab.client();
    client
        .block_on(|| async {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let mut stream = connect(at(7005)).await?;
            let mut back = [0_u8; 5];
            stream.write_all(b"first").await.unwrap();
            stream.read_exact(&mut back).await.unwrap();
            lab.wan().cut(true);
            let before = lab.wan().stats();
            stream.write_all(b"later").await.unwrap();
            let held = tokio::time::timeout(Duration::from_millis(500), stream.read_exact(&mut back)).await;
            assert!(held.is_err(), "nothing crosses a cut link");
            assert_eq!(lab.wan().stats().up.packets_out, before.up.packets_out);
            lab.wan().cut(false);
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(&back, b"later");
            Ok(())
        })
        .unwrap();
    assert!(lab.wan().stats().up.dropped_cut > 0);
}

#[test]
fn labs_run_side_by_side_and_leave_nothing_behind() {
    let Some(first) = lab(WanShape::open()) else { return };
    let Some(second) = lab(WanShape::open()) else { return };
    let _one = echo_server(&first.server(), at(7006)).unwrap();
    let _two = echo_server(&second.server(), at(7006)).unwrap();
    let echo = |lab: &WanLab| lab.client().block_on(|| echo_times(at(7006), 60, 3, Duration::ZERO));
    assert_eq!(echo(&first).unwrap().count(), 3);
    drop(first);
    assert_eq!(echo(&second).unwrap().count(), 3);
    let Place::Namespace(name) = second.server() else { panic!("a lab is made of namespaces") };
    drop(second);
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
}

#[test]
fn the_emulator_is_fast_enough_to_not_be_the_limit() {
    // A gigabit link filled: what is checked is that bytes arrive unharmed at load; speed is printed only.
    let Some(lab) = lab(WanShape::symmetric(Duration::from_millis(2), Some(1_000_000_000))) else { return };
    let data = content(60_000_000);
    let _source = source_server(&lab.server(), at(7007), data.clone()).unwrap();
    let start = Instant::now();
    lab.client().block_on(|| download(at(7007), data.clone())).unwrap();
    println!("60 MB at 1 Gbit/s: {:.0} Mbit/s", 480.0 / start.elapsed().as_secs_f64());
}
