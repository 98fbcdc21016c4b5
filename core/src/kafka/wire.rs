//! Bytes -> numbers, slices and text: the primitive types of kdissect/kafka/primitives.py.

use crate::Odd;

/// The longest varint, as in primitives.py. Its 35 bits fit in a u64.
const UVARINT_BYTES: u32 = 5;

/// Maximum bytes of an int32 and an int64 in a record. Of the latter's 70 bits, 64 count.
const VARINT_BYTES: u32 = 5;
const VARLONG_BYTES: u32 = 10;

/// The longest string that Kafka reads.
pub const LONGEST_STRING: usize = 0x7FFF;

/// Reads a buffer from start to end. Anything that would end beyond the buffer is odd.
pub struct Reader<'a> {
    data: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8], pos: usize) -> Self {
        Reader { data, pos }
    }

    /// The position of the next byte in the buffer.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.data.len().saturating_sub(self.pos)
    }

    /// A byte ahead of the next one. None: there is none.
    pub fn peek(&self, ahead: usize) -> Option<u8> {
        self.data.get(self.pos.checked_add(ahead)?).copied()
    }

    pub fn take(&mut self, size: usize) -> Result<&'a [u8], Odd> {
        let end = self.pos.checked_add(size).ok_or(Odd)?;
        let slice = self.data.get(self.pos..end).ok_or(Odd)?;
        self.pos = end;
        Ok(slice)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Odd> {
        self.take(N)?.try_into().map_err(|_| Odd)
    }

    pub fn byte(&mut self) -> Result<u8, Odd> {
        let byte = *self.data.get(self.pos).ok_or(Odd)?;
        self.pos += 1;
        Ok(byte)
    }

    pub fn i8(&mut self) -> Result<i8, Odd> {
        self.array().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, Odd> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, Odd> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Odd> {
        self.array().map(i64::from_be_bytes)
    }

    pub fn uvarint(&mut self) -> Result<u64, Odd> {
        self.groups(UVARINT_BYTES)
    }

    /// Groups of seven bits, the lowest first, in at most this many bytes.
    fn groups(&mut self, max: u32) -> Result<u64, Odd> {
        let mut value = 0;
        for index in 0..max {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Odd)
    }

    /// A zigzag int32, as in records. Bits beyond the type are dropped.
    pub fn varint(&mut self) -> Result<i64, Odd> {
        self.groups(VARINT_BYTES).map(|value| zigzag(value & 0xFFFF_FFFF))
    }

    /// A zigzag int64, as in records.
    pub fn varlong(&mut self) -> Result<i64, Odd> {
        self.groups(VARLONG_BYTES).map(zigzag)
    }

    /// A compact length or count: stored plus one, 0 for null.
    pub fn compact(&mut self) -> Result<Option<usize>, Odd> {
        let value = usize::try_from(self.uvarint()?).map_err(|_| Odd)?;
        Ok(value.checked_sub(1))
    }

    /// An int32 length or count, -1 for null.
    pub fn long(&mut self) -> Result<Option<usize>, Odd> {
        prefix(i64::from(self.i32()?))
    }

    /// An int16 length, -1 for null.
    pub fn short(&mut self) -> Result<Option<usize>, Odd> {
        prefix(i64::from(self.i16()?))
    }
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn prefix(length: i64) -> Result<Option<usize>, Odd> {
    match length {
        -1 => Ok(None),
        _ => usize::try_from(length).map(Some).map_err(|_| Odd),
    }
}

const UUID_CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A UUID as Kafka prints it: URL-safe base64 without padding.
pub fn uuid_text(raw: [u8; 16]) -> [u8; 22] {
    let number = u128::from_be_bytes(raw);
    let mut text = [0; 22];
    for (index, character) in text.iter_mut().enumerate() {
        let bits = match index {
            21 => (number & 0x3) << 4, // the last two bits, padded with zeros
            _ => (number >> (122 - 6 * index)) & 0x3F,
        };
        *character = UUID_CHARACTERS[bits as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_behind_the_end() {
        let mut reader = Reader::new(&[0, 1, 2], 1);
        assert_eq!(reader.take(3), Err(Odd));
        assert_eq!(reader.take(usize::MAX), Err(Odd));
        assert_eq!(reader.i32(), Err(Odd));
        assert_eq!((reader.pos(), reader.left()), (1, 2));
        assert_eq!(reader.take(2), Ok(&[1, 2][..]));
        assert_eq!(reader.byte(), Err(Odd));
        assert_eq!(Reader::new(&[0], 5).byte(), Err(Odd));
        assert_eq!(Reader::new(&[0], 5).left(), 0);
    }

    #[test]
    fn varints_have_five_bytes_at_most() {
        let read = |data: &[u8]| Reader::new(data, 0).uvarint();
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[0x7F]), Ok(127));
        assert_eq!(read(&[0x80, 1]), Ok(128));
        assert_eq!(read(&[0x81, 0x80, 0x80, 0x80, 0]), Ok(1));
        assert_eq!(read(&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), Ok((1 << 35) - 1));
        assert_eq!(read(&[0x81, 0x80, 0x80, 0x80, 0x80, 0]), Err(Odd));
        assert_eq!(read(&[0x80]), Err(Odd));
    }

    #[test]
    fn zigzag_varints_drop_what_does_not_fit() {
        let int = |data: &[u8]| Reader::new(data, 0).varint();
        let long = |data: &[u8]| Reader::new(data, 0).varlong();
        assert_eq!([int(&[0]), int(&[1]), int(&[2])], [Ok(0), Ok(-1), Ok(1)]);
        assert_eq!(int(&[0xFE, 0xFF, 0xFF, 0xFF, 0x0F]), Ok(i64::from(i32::MAX)));
        assert_eq!(int(&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), Ok(i64::from(i32::MIN)));
        assert_eq!(int(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), Err(Odd));
        let longest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        assert_eq!(long(&longest), Ok(i64::MIN));
        assert_eq!(long(&[0x80; 10]), Err(Odd));
        assert_eq!(long(&[0x80; 9]), Err(Odd));
    }

    #[test]
    fn lengths_below_null_are_odd() {
        assert_eq!(Reader::new(&[0xFF, 0xFF], 0).short(), Ok(None));
        assert_eq!(Reader::new(&[0xFF, 0xFE], 0).short(), Err(Odd));
        assert_eq!(Reader::new(&[0xFF; 4], 0).long(), Ok(None));
        assert_eq!(Reader::new(&[0x80, 0, 0, 0], 0).long(), Err(Odd));
        assert_eq!(Reader::new(&[0, 0, 0, 9], 0).long(), Ok(Some(9)));
        assert_eq!(Reader::new(&[0], 0).compact(), Ok(None));
        assert_eq!(Reader::new(&[1], 0).compact(), Ok(Some(0)));
    }

    #[test]
    fn uuids_are_in_kafkas_form() {
        let raw: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(&uuid_text(raw), b"AAECAwQFBgcICQoLDA0ODw");
        assert_eq!(&uuid_text([0; 16]), b"AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(&uuid_text([0xFF; 16]), b"_____________________w");
    }
}
