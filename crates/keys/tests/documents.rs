//! docs/keys.md says what the program does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isthmus_keys::limits;
use isthmus_smb_auth::limits::SERVICE_KEYS_TRIED_MAX;
use isthmus_smb_auth::{EncryptionType, Failure, smbpasswd};

fn document() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/keys.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_reason_that_something_can_be_done_about_is_in_the_table() {
    let document = document();
    for failure in [
        Failure::UnknownUser,
        Failure::WrongHash,
        Failure::NoServiceKey,
        Failure::NoKeyVersion,
        Failure::NoKeyType,
        Failure::WrongServiceKey,
        Failure::Incomplete,
    ] {
        assert!(document.contains(&format!("\n| {failure} | ")), "{failure}");
    }
}

#[test]
fn the_example_of_a_password_hash_file_is_one() {
    let document = document();
    let start = document.find("\nalice:1000:").unwrap() + 1;
    let example = document[start..].split("```").next().unwrap();
    let file = smbpasswd::parse(example.as_bytes()).unwrap();
    let names: Vec<_> = file.accounts.iter().map(|account| account.account()).collect();
    assert_eq!(names, ["alice", "CORP\\bob", "corp.example.com\\carol"]);
}

#[test]
fn limits_and_names_are_those_of_the_code() {
    let document = document().replace('\n', " ");
    let seconds = limits::WATCH_INTERVAL.as_secs();
    let rate =
        |rate: isthmus_keys::RateLimit| format!("{} and {} by default", grouped(rate.burst), rate.per_minute);
    let kept = [
        format!("looked at every {seconds} seconds"),
        format!("then all others, {SERVICE_KEYS_TRIED_MAX} at most"),
        format!("| {} | {} |", rate(limits::GATEWAY_RATE), rate(limits::LAPTOP_RATE)),
        EncryptionType::Aes256Sha1.to_string(),
        EncryptionType::Aes128Sha1.to_string(),
        EncryptionType::Rc4Hmac.to_string(),
    ];
    for text in kept {
        assert!(document.contains(&text), "{text}");
    }
}

/// `2,000`
fn grouped(number: u32) -> String {
    if number < 1_000 { number.to_string() } else { format!("{},{:03}", number / 1_000, number % 1_000) }
}
