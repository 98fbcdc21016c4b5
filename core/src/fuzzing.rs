//! Random input for tests. `KDISSECT_FUZZ_SECONDS` is how long each of them runs; without it, for a few rounds,
//! which are always the same.

use std::env;
use std::thread::panicking;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Xorshift.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// Changes, removes and inserts a few bytes.
    pub fn damage(&mut self, data: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let place = self.below(data.len() + 1);
            let end = (place + self.below(3)).min(data.len());
            let new = [self.number() as u8, 0, 1, 0x7F, 0x80, 0xFF];
            let kind = self.below(new.len() + 1);
            data.splice(place..end, new.get(kind).copied());
        }
    }
}

/// Says with which seed a test panicked.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// Calls `test` with one seed after another.
pub fn rounds(name: &str, usual: u64, mut test: impl FnMut(&mut Random)) {
    let seconds = env::var("KDISSECT_FUZZ_SECONDS").ok();
    let time = seconds.map(|text| Duration::from_secs(text.parse().expect("a number of seconds")));
    let first = match time {
        None => 1,
        Some(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64,
    };
    let began = Instant::now();
    let mut seed = Seed(first);
    while time.map_or(seed.0 < first + usual, |time| began.elapsed() < time) {
        test(&mut Random::new(seed.0));
        seed.0 += 1;
    }
    if time.is_some() {
        println!("{name}: seeds {first} to {}", seed.0 - 1);
    }
}

mod tests {
    use super::*;
    use crate::net::packet::{segment, tests::tcp_over_ipv4};

    const LINK_TYPES: [(u32, &[u8]); 5] = [
        (101, b""),
        (1, b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0"),
        (1, b"\0\0\0\0\0\0\0\0\0\0\0\0\x81\0\0\x07\x08\0"),
        (113, b"\0\0\0\x01\0\x06\0\0\0\0\0\0\0\0\x08\0"),
        (0, b"\0\0\0\x02"),
    ];

    #[test]
    fn no_packets_panic() {
        let mut taken = 0;
        rounds("packets", 50_000, |random| {
            let (link_type, header) = LINK_TYPES[random.below(LINK_TYPES.len())];
            let payload = vec![0; random.below(9)];
            let mut packet = [header, &tcp_over_ipv4(random.below(2), 7, 8, 0x18, &payload)].concat();
            random.damage(&mut packet);
            taken += usize::from(segment(link_type, &packet).is_ok());
        });
        assert!(taken > 1000);
    }
}
