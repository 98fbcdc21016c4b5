//! Numbers -> decimal digits, in a third of the time of `write!`.

/// Digits of the largest number.
const DIGITS: usize = 20;
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
    2021222324252627282930313233343536373839\
    4041424344454647484950515253545556575859\
    6061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

/// Writes a number.
pub fn put(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    let (text, start) = digits(number.unsigned_abs(), 1);
    out.extend_from_slice(&text[start..]);
}

/// As `put`, to text.
pub fn push(out: &mut String, number: i64) {
    if number < 0 {
        out.push('-');
    }
    push_digits(out, number.unsigned_abs(), 1);
}

/// Writes a number with at least this many digits (20 or fewer).
pub fn push_digits(out: &mut String, number: u64, min: usize) {
    let (text, start) = digits(number, min);
    out.push_str(std::str::from_utf8(&text[start..]).unwrap_or_default());
}

/// The digits, and where they start.
fn digits(mut number: u64, min: usize) -> ([u8; DIGITS], usize) {
    let mut text = [b'0'; DIGITS];
    let mut start = DIGITS;
    while number > 9 {
        let pair = 2 * (number % 100) as usize;
        start -= 2;
        text[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
        number /= 100;
    }
    if number > 0 {
        start -= 1;
        text[start] += number as u8;
    }
    (text, start.min(DIGITS - min))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::Random;

    #[test]
    fn numbers_have_the_digits_of_write() {
        let mut random = Random::new(7);
        let random = (0..1000).map(|_| (random.number() >> random.below(64)) as i64);
        for number in [0, 1, 9, 10, 99, 100, 101, i64::MAX, i64::MIN, -1]
            .into_iter()
            .chain(random)
        {
            let (mut bytes, mut text) = (Vec::new(), String::new());
            put(&mut bytes, number);
            push(&mut text, number);
            assert_eq!((bytes, &text), (number.to_string().into(), &number.to_string()));
        }
    }

    #[test]
    fn zeros_are_written_before_short_numbers() {
        for (number, min, expected) in [
            (70, 6, "000070"),
            (0, 0, ""),
            (0, 1, "0"),
            (u64::MAX, 1, "18446744073709551615"),
        ] {
            let mut text = String::new();
            push_digits(&mut text, number, min);
            assert_eq!(text, expected);
        }
    }
}
