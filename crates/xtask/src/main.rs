//! Developer commands: `cargo xtask demo`, `cargo xtask test`, `cargo xtask bench`.

mod bench;
mod cargo;
mod demo;
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
    /// Measure the store in a process of its own (called by `bench`)
    #[command(hide = true)]
    MeasureStore(bench::StoreArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::MeasureStore(arguments) => bench::measure_store(&arguments),
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
