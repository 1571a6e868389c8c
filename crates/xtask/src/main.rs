//! Developer commands: `cargo xtask demo`, `cargo xtask test`, `cargo xtask bench`,
//! `cargo xtask interop`, `cargo xtask coherence`, `cargo xtask package`.

mod bench;
mod cargo;
mod coherence;
mod demo;
mod interop;
mod package;
mod packages;
mod progress;
mod test;

use clap::{Parser, Subcommand};
use isthmus_lab::cleanup;
use std::process::ExitCode;

/// Developer commands of Isthmus
#[derive(Parser)]
#[command(name = "cargo xtask", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the pair at work: a folder copied over an emulated WAN directly, cold and warm
    Demo(demo::Arguments),
    /// Run all tests
    Test(test::Arguments),
    /// Measure everything and print it beside the best open pair and the goals
    Bench(bench::Arguments),
    /// Run real SMB clients and Samba's test suite directly and through the pair, and compare
    Interop(interop::Arguments),
    /// Let many clients work on few files, directly and through pairs, and judge what they were told
    Coherence(coherence::Arguments),
    /// Make packages of both proxies: deb, tar
    Package(package::Arguments),
    /// Measure the store in a process of its own (called by `bench`)
    #[command(hide = true)]
    MeasureStore(bench::StoreArguments),
    /// Do what an office program does, and print how long it took (called by `bench` where a share is mounted)
    #[command(hide = true)]
    MeasureOffice(bench::OfficeArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Interop(arguments) => interop::run(&arguments),
        Command::Coherence(arguments) => coherence::run(&arguments),
        Command::Package(arguments) => package::run(&arguments),
        Command::MeasureStore(arguments) => bench::measure_store(&arguments),
        Command::MeasureOffice(arguments) => bench::run_office(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cleanup::wait_if_interrupted();
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
