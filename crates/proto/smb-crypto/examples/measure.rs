//! Prints how fast one core signs, verifies, seals and opens, for each algorithm and three message sizes.
//!
//! `cargo run --release -p isthmus-smb-crypto --example measure`
#![allow(clippy::disallowed_methods, reason = "measuring needs a clock")]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use isthmus_smb_crypto::{
    Cipher, NonceSource, Opener, Sealer, Signer, SigningAlgorithm, TRANSFORM_HEADER_LEN,
};

/// Payload sizes in bytes: a small request, a usual read, a large read.
const SIZES: [usize; 3] = [200, 64 << 10, 1 << 20];
const RUN: Duration = Duration::from_millis(200);
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    println!("GB/s, best of {RUNS} runs{:>23}{:>10}{:>10}", "200 B", "64 KiB", "1 MiB");
    for algorithm in [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac] {
        let signer = Signer::new(algorithm, &[7; 16])?;
        row(&format!("{algorithm} sign"), |message| {
            let _ = black_box(signer.sign(message, true));
        });
        row(&format!("{algorithm} verify in place"), |message| {
            black_box(signer.verify_in_place(message, true));
        });
        row(&format!("{algorithm} verify"), |message| {
            black_box(signer.verify(message, true));
        });
    }
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Aes128Ccm, Cipher::Aes256Ccm] {
        let key = vec![9; cipher.key_len()];
        let mut sealer = Sealer::new(cipher, &key, NonceSource::new(cipher, [1; 7]))?;
        row(&format!("{cipher} seal"), |message| {
            let _ = black_box(sealer.seal(1, message));
        });
        // An opened message is plaintext, so it is sealed again before each opening and that time taken off.
        let opener = Opener::new(cipher, &key)?;
        row_less(&format!("{cipher} open"), |message, open| {
            let sealed = sealer.seal(1, message).is_ok();
            if open {
                assert!(sealed && opener.open(message).is_ok());
            }
        });
    }
    Ok(())
}

fn row(name: &str, mut work: impl FnMut(&mut [u8])) {
    let speeds = SIZES.map(|size| {
        let mut message = vec![0x5A; size + TRANSFORM_HEADER_LEN];
        size as f64 / seconds(|| work(&mut message)) / 1e9
    });
    print_row(name, speeds);
}

fn row_less(name: &str, mut work: impl FnMut(&mut [u8], bool)) {
    let speeds = SIZES.map(|size| {
        let mut message = vec![0x5A; size + TRANSFORM_HEADER_LEN];
        let both = seconds(|| work(&mut message, true));
        let without = seconds(|| work(&mut message, false));
        size as f64 / (both - without).max(1e-12) / 1e9
    });
    print_row(name, speeds);
}

fn print_row(name: &str, [small, usual, large]: [f64; 3]) {
    println!("{name:<34}{small:>10.2}{usual:>10.2}{large:>10.2}");
}

/// The shortest mean time of one call, in seconds.
fn seconds(mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..RUNS {
        let (start, mut calls) = (Instant::now(), 0u32);
        while start.elapsed() < RUN {
            work();
            calls += 1;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    best
}
