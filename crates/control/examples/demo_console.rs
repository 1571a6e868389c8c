//! The console with invented, moving data, to look at: `demo_console [ADDRESS] [client|server] [busy|fresh|trouble]`.

#[path = "../tests/sample/mod.rs"]
mod sample;

use isthmus_control::{Admin, AdminOptions};
use isthmus_types::Side;
use sample::{Sample, Scene};
use std::future::pending;
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |word: &str| arguments.iter().any(|argument| argument == word);
    let side = if given("server") { Side::Server } else { Side::Client };
    let scene = if given("fresh") {
        Scene::Fresh
    } else if given("trouble") {
        Scene::Trouble
    } else {
        Scene::Busy
    };
    let address = arguments.first().filter(|argument| argument.contains(':'));
    let listener = TcpListener::bind(address.map_or("127.0.0.1:7811", String::as_str)).await?;
    println!("console: http://{}/", listener.local_addr()?);

    let sample = Sample::new(side, scene);
    let admin = Admin::new(sample.telemetry.clone(), sample.source.clone(), AdminOptions::default());
    tokio::spawn(admin.serve(listener, pending()));
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        sample.advance(Duration::from_secs(1));
    }
}
