//! Prints memory, opening time, lookups and throughput of a store of 5 million chunks (or as many as the argument says).

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let chunks = std::env::args().nth(1).map_or(Ok(5_000_000), |n| n.parse())?;
    // Beside the working directory rather than in /tmp, which may be memory.
    let dir = std::env::current_dir()?.join(format!("store-scale-{}", std::process::id()));
    let outcome = isthmus_store::scale::measure(&dir.join("size"), chunks);
    let speed = isthmus_store::scale::throughput(&dir.join("speed"), 4096);
    std::fs::remove_dir_all(&dir)?;
    println!("{chunks} chunks: {:#?}\n{:#?}", outcome?, speed?);
    Ok(())
}
