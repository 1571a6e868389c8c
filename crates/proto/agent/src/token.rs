//! The one-time token that lets a new laptop in, and lets it know the server side at first contact.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD;
use zeroize::Zeroize;

/// Random bytes of a token. Nobody guesses 96 bits within a token's life.
const SECRET_BYTES: usize = 12;
/// Bytes of the authority's fingerprint that a token carries: enough that nobody makes another authority to it.
const FINGERPRINT_BYTES: usize = 16;
const CHECK_BYTES: usize = 2;
const TOKEN_BYTES: usize = SECRET_BYTES + FINGERPRINT_BYTES + CHECK_BYTES;
/// Characters between hyphens.
const GROUP_CHARS: usize = 8;

/// The first 16 bytes of the SHA-256 of the authority's certificate (DER).
pub type Fingerprint = [u8; FINGERPRINT_BYTES];

/// The part of a token that must stay secret. Never printed but as part of its token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret(pub [u8; SECRET_BYTES]);

/// A one-time token: 48 characters in six groups, written with letters and digits that dictate well (RFC 4648 base32).
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Proves to the server side that its administrator has invited the laptop.
    pub secret: TokenSecret,
    /// Proves the server side to the laptop: whoever answers must have a certificate of this authority.
    pub authority: Fingerprint,
}

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    #[error("a token has 48 letters and digits, in groups of 8; this has {0}")]
    Length(usize),
    #[error("a token has only the letters A to Z and the digits 2 to 7")]
    Characters,
    #[error("the token is mistyped: its check digits do not fit")]
    Check,
}

impl Token {
    /// The token as people are given it.
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::with_capacity(TOKEN_BYTES);
        bytes.extend_from_slice(&self.secret.0);
        bytes.extend_from_slice(&self.authority);
        bytes.extend_from_slice(&check(&bytes));
        let mut plain = BASE32_NOPAD.encode(&bytes);
        bytes.zeroize();
        let mut text = String::with_capacity(plain.len() + plain.len() / GROUP_CHARS);
        for (index, c) in plain.chars().enumerate() {
            if index > 0 && index % GROUP_CHARS == 0 {
                text.push('-');
            }
            text.push(c);
        }
        plain.zeroize();
        text
    }
}

impl FromStr for Token {
    type Err = BadToken;

    /// Hyphens, spaces and the case of letters do not matter.
    fn from_str(text: &str) -> Result<Token, BadToken> {
        let plain: Vec<u8> = text
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace() && *byte != b'-')
            .map(|byte| byte.to_ascii_uppercase())
            .collect();
        if plain.len() != BASE32_NOPAD.encode_len(TOKEN_BYTES) {
            return Err(BadToken::Length(plain.len()));
        }
        let bytes = BASE32_NOPAD.decode(&plain).map_err(|_| BadToken::Characters)?;
        let (said, sum) = bytes.split_at_checked(TOKEN_BYTES - CHECK_BYTES).ok_or(BadToken::Characters)?;
        if check(said) != sum {
            return Err(BadToken::Check);
        }
        let (secret, authority) = said.split_at_checked(SECRET_BYTES).ok_or(BadToken::Characters)?;
        Ok(Token {
            secret: TokenSecret(secret.try_into().map_err(|_| BadToken::Characters)?),
            authority: authority.try_into().map_err(|_| BadToken::Characters)?,
        })
    }
}

impl TokenSecret {
    /// Lower-case hexadecimal digits.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Reads what [`TokenSecret::to_hex`] gives.
    pub fn from_hex(text: &str) -> Option<TokenSecret> {
        let mut secret = [0; SECRET_BYTES];
        hex::decode_to_slice(text, &mut secret).ok()?;
        Some(TokenSecret(secret))
    }
}

impl Drop for TokenSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret")
    }
}

/// Against slips of the pen, not against people.
fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let [first, second, ..] = crc32fast::hash(bytes).to_be_bytes();
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token { secret: TokenSecret([7; SECRET_BYTES]), authority: [0xa5; FINGERPRINT_BYTES] }
    }

    #[test]
    fn a_token_is_read_however_it_is_written() {
        let text = token().to_text();
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8; 6]);
        for written in [text.clone(), text.to_lowercase(), text.replace('-', " "), format!(" {text}\n")] {
            assert!(written.parse::<Token>().unwrap() == token());
        }
        assert_eq!(format!("{:?} {:?}", token(), token().secret), "Token TokenSecret", "nothing is told");
    }

    #[test]
    fn a_mistyped_token_is_told_from_a_wrong_one() {
        let text = token().to_text();
        for at in 0..text.len() {
            let mut slip = text.clone().into_bytes();
            if slip[at] == b'-' {
                continue;
            }
            slip[at] = if slip[at] == b'B' { b'C' } else { b'B' };
            assert_eq!(String::from_utf8(slip).unwrap().parse::<Token>(), Err(BadToken::Check));
        }
        assert_eq!("ABC".parse::<Token>(), Err(BadToken::Length(3)));
        assert_eq!(text.replace(&text[..1], "1").parse::<Token>(), Err(BadToken::Characters));
        let secret = token().secret;
        assert!(TokenSecret::from_hex(&secret.to_hex()) == Some(secret));
        assert!(TokenSecret::from_hex("07").is_none());
    }
}
