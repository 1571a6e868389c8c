//! A reader of definite-length DER, for what SPNEGO and Kerberos need of it.
//!
//! It never allocates, never recurses and never reads past its input. Lengths that are not in their shortest form are
//! taken, since some peers write them.

/// The bytes are not the ASN.1 that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadDer;

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const GENERAL_STRING: u8 = 0x1b;
pub(crate) const SEQUENCE: u8 = 0x30;

/// Tag of `[number]`, constructed, as explicit tagging makes it.
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// Tag of `[APPLICATION number]`, constructed.
pub(crate) const fn application(number: u8) -> u8 {
    0x60 | number
}

/// Reads the elements of one constructed value one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read, which need not be ASN.1.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Tag of the next element.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Tag and content of the next element.
    pub(crate) fn element(&mut self) -> Result<(u8, &'a [u8]), BadDer> {
        let (&[tag, first], rest) = self.rest.split_first_chunk::<2>().ok_or(BadDer)?;
        if tag & 0x1f == 0x1f {
            return Err(BadDer); // Tags above 30 occur in none of the protocols read here.
        }
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(BadDer)?;
                (digits.iter().fold(0usize, |sum, &digit| sum << 8 | usize::from(digit)), rest)
            }
            _ => return Err(BadDer),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(BadDer)?;
        self.rest = rest;
        Ok((tag, content))
    }

    /// Content of the next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<&'a [u8], BadDer> {
        match self.element()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(BadDer),
        }
    }

    /// Content of the next element if it has this tag; otherwise nothing is read.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, BadDer> {
        if self.peek() == Some(tag) { self.expect(tag).map(Some) } else { Ok(None) }
    }

    /// Like [`Reader::expect`], as a reader of that content.
    pub(crate) fn enter(&mut self, tag: u8) -> Result<Reader<'a>, BadDer> {
        self.expect(tag).map(Reader::new)
    }

    /// Content of the single element of type `inner` under the explicit tag `[number]`.
    pub(crate) fn field(&mut self, number: u8, inner: u8) -> Result<&'a [u8], BadDer> {
        self.enter(context(number))?.expect(inner)
    }

    /// Like [`Reader::field`], for a field that may be absent.
    pub(crate) fn optional_field(&mut self, number: u8, inner: u8) -> Result<Option<&'a [u8]>, BadDer> {
        match self.optional(context(number))? {
            Some(content) => Reader::new(content).expect(inner).map(Some),
            None => Ok(None),
        }
    }

    /// The INTEGER under the explicit tag `[number]`.
    pub(crate) fn integer_field(&mut self, number: u8) -> Result<i64, BadDer> {
        integer(self.field(number, INTEGER)?)
    }

    /// Skips all elements up to the explicit tag `[number]`, leaving that one to be read.
    pub(crate) fn skip_to(&mut self, number: u8) -> Result<(), BadDer> {
        while self.peek().is_some_and(|tag| tag != context(number)) {
            self.element()?;
        }
        Ok(())
    }
}

/// Value of an INTEGER's content, up to eight bytes.
pub(crate) fn integer(content: &[u8]) -> Result<i64, BadDer> {
    let (&first, _) = content.split_first().ok_or(BadDer)?;
    if content.len() > 8 {
        return Err(BadDer);
    }
    let sign = if first & 0x80 == 0 { 0 } else { -1 };
    Ok(content.iter().fold(sign, |sum, &byte| sum << 8 | i64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_every_form_are_read_and_none_runs_past_the_end() {
        assert_eq!(Reader::new(&[4, 1, 7]).element(), Ok((4, &[7u8][..])));
        assert_eq!(Reader::new(&[4, 0x81, 1, 7]).element(), Ok((4, &[7u8][..])));
        assert_eq!(Reader::new(&[4, 0x84, 0, 0, 0, 1, 7, 9]).element(), Ok((4, &[7u8][..])));
        assert_eq!(Reader::new(&[4, 2, 7]).element(), Err(BadDer));
        assert_eq!(Reader::new(&[4, 0x80, 7]).element(), Err(BadDer), "indefinite length");
        assert_eq!(Reader::new(&[4, 0x84, 0xff, 0xff, 0xff, 0xff, 7]).element(), Err(BadDer));
        assert_eq!(Reader::new(&[0x1f, 1, 7]).element(), Err(BadDer), "long tag");
    }

    #[test]
    fn integers_keep_their_sign() {
        assert_eq!(integer(&[0]), Ok(0));
        assert_eq!(integer(&[0xff, 0x76]), Ok(-138));
        assert_eq!(integer(&[0, 0xff, 0xff, 0xff, 0xff]), Ok(0xffff_ffff));
        assert_eq!(integer(&[]), Err(BadDer));
        assert_eq!(integer(&[1; 9]), Err(BadDer));
    }
}
