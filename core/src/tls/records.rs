//! TLS records of one direction -> their plaintext, as long as each has application data and can be decrypted.
//!
//! The common case of kdissect/tls/connection.py. The ciphers are Python's.

use std::collections::VecDeque;
use std::fmt::Debug;

use crate::{Odd, Why};

const HEADER_BYTES: usize = 5;
const MAX_FRAGMENT: usize = 0x4000 + 2048; // RFC 5246 section 6.2.3
pub const APPLICATION_DATA: u8 = 23;
const VERSION: u8 = 3;
/// Latest records in which retransmitted bytes are looked up.
const RECENT: usize = 64;

/// Decrypts records in order.
pub trait Opener: Debug + Send + Sync {
    /// The application data in the next record. None, without effect, if it has none or cannot be decrypted.
    fn open(&mut self, version: u16, fragment: &[u8]) -> Option<Vec<u8>>;

    /// Undo the decryption of the latest records.
    fn undo(&mut self, records: u64);
}

#[derive(Debug)]
pub struct Records {
    opener: Box<dyn Opener>,
    /// The beginning of the next record.
    pub buffer: Vec<u8>,
    /// Plaintext lengths of the latest records.
    pub recent: VecDeque<usize>,
    /// Effects of the latest payload: the buffer before it, bytes of its records, and their plaintext.
    before: usize,
    taken: usize,
    opened: Vec<usize>,
}

impl Records {
    pub fn new(opener: Box<dyn Opener>, buffer: Vec<u8>) -> Self {
        Records {
            opener,
            buffer,
            recent: VecDeque::new(),
            before: 0,
            taken: 0,
            opened: Vec::new(),
        }
    }

    /// The plaintext of the records that a payload completes. Call `keep` or `undo` next, unless it is odd.
    pub fn open(&mut self, payload: &[u8]) -> Result<Vec<u8>, Odd> {
        self.before = self.buffer.len();
        self.taken = 0;
        self.opened.clear();
        let data = if self.buffer.is_empty() {
            payload
        } else {
            self.buffer.extend_from_slice(payload);
            &self.buffer
        };
        let mut content = Vec::new();
        while let Some((header, rest)) = data[self.taken..].split_first_chunk::<HEADER_BYTES>() {
            let &[content_type, major, minor, high, low] = header;
            let length = usize::from(u16::from_be_bytes([high, low]));
            let is_usual = content_type == APPLICATION_DATA && major == VERSION && length <= MAX_FRAGMENT;
            if is_usual && rest.len() < length {
                break;
            }
            let version = u16::from_be_bytes([major, minor]);
            let opened = is_usual.then(|| self.opener.open(version, &rest[..length]));
            let Some(inner) = opened.flatten() else {
                self.undo();
                return Err(Why::Tls.odd());
            };
            self.taken += HEADER_BYTES + length;
            self.opened.push(inner.len());
            if content.is_empty() {
                content = inner;
            } else {
                content.extend_from_slice(&inner);
            }
        }
        Ok(content)
    }

    /// Accept the effects of the payload.
    pub fn keep(&mut self, payload: &[u8]) {
        if self.before > 0 {
            self.buffer.drain(..self.taken);
        } else {
            self.buffer.extend_from_slice(&payload[self.taken..]);
        }
        self.recent.extend(&self.opened);
        self.recent.drain(..self.recent.len().saturating_sub(RECENT));
    }

    /// Undo the effects of the payload.
    pub fn undo(&mut self) {
        self.buffer.truncate(self.before);
        if !self.opened.is_empty() {
            self.opener.undo(self.opened.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of a record ends with its number.
    #[derive(Debug)]
    struct Numbered(u8);

    impl Opener for Numbered {
        fn open(&mut self, _: u16, fragment: &[u8]) -> Option<Vec<u8>> {
            let (last, content) = fragment.split_last()?;
            (*last == self.0).then(|| {
                self.0 += 1;
                content.to_vec()
            })
        }

        fn undo(&mut self, records: u64) {
            self.0 -= records as u8;
        }
    }

    fn record(number: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len() as u8 + 1;
        [&[APPLICATION_DATA, 3, 3, 0, length], content, &[number]].concat()
    }

    fn records() -> Records {
        Records::new(Box::new(Numbered(0)), Vec::new())
    }

    #[test]
    fn opens_records_however_they_are_cut() {
        let stream = [record(0, b"abc"), record(1, b""), record(2, b"d")].concat();
        for size in 1..=stream.len() {
            let mut records = records();
            let mut content = Vec::new();
            for piece in stream.chunks(size) {
                content.extend(records.open(piece).unwrap());
                records.keep(piece);
            }
            assert_eq!(content, b"abcd", "{size}");
            assert!(records.buffer.is_empty());
            assert_eq!(records.recent, [3, 0, 1]);
        }
    }

    #[test]
    fn what_is_odd_has_no_effect() {
        let good = record(0, b"abc");
        let mut alert = record(1, b"x");
        alert[0] = 21;
        let mut other = record(1, b"x");
        other[1] = 2;
        for bad in [alert, other, record(2, b"x"), vec![23, 3, 3, 0xFF, 0xFF]] {
            for cut in 0..good.len() {
                let mut records = records();
                records.open(&good[..cut]).unwrap();
                records.keep(&good[..cut]);
                let before = format!("{:?}", (&records.opener, &records.buffer, &records.recent));
                let rest = [&good[cut..], &bad].concat();
                assert_eq!(records.open(&rest), Err(Why::Tls.odd()));
                let after = format!("{:?}", (&records.opener, &records.buffer, &records.recent));
                assert_eq!(before, after);
                assert_eq!(records.open(&good[cut..]).unwrap(), b"abc");
            }
        }
    }

    #[test]
    fn what_is_undone_can_be_opened_again() {
        let mut records = records();
        for _ in 0..2 {
            assert_eq!(records.open(&record(0, b"abc")).unwrap(), b"abc");
            records.undo();
        }
        assert!(records.recent.is_empty());
    }
}
