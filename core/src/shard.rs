//! Ends of a connection -> the shard it belongs to, as `shard_of` of kdissect/net/tcp.py.

/// Odd, with bits that follow no pattern: the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const PORTS: usize = 4;

/// One of several shards of the connections.
#[derive(Debug, Clone, Copy)]
pub struct Shard {
    pub number: u32,
    pub of: u32,
}

impl Shard {
    /// Whether a connection is in this shard, by the ends of either direction.
    pub fn owns(self, ends: &[u8]) -> bool {
        shard_of(ends, self.of) == self.number
    }
}

/// Number of the shard that a connection belongs to: the same in both directions.
fn shard_of(ends: &[u8], shards: u32) -> u32 {
    let both = match *ends {
        // IPv4: the usual case, without loops.
        [a, b, c, d, e, f, g, h, from, by, to, at] => {
            let end = |address, port| {
                let address = next(0, u32::from_be_bytes(address).into());
                mixed(next(address, u16::from_be_bytes(port).into()))
            };
            end([a, b, c, d], [from, by]).wrapping_add(end([e, f, g, h], [to, at]))
        }
        _ => {
            let (addresses, ports) = ends.split_at(ends.len().saturating_sub(PORTS));
            let (source, destination) = addresses.split_at(addresses.len() / 2);
            let (from, to) = ports.split_at(ports.len() / 2);
            end(source, from).wrapping_add(end(destination, to))
        }
    };
    let spread = both.wrapping_mul(SPREAD) >> 32;
    ((spread * u64::from(shards)) >> 32) as u32
}

/// A number from the words of an end so far, and the next one.
fn next(all: u64, word: u64) -> u64 {
    all.wrapping_add(word).wrapping_mul(SPREAD)
}

fn mixed(all: u64) -> u64 {
    all ^ all >> 32
}

fn end(address: &[u8], port: &[u8]) -> u64 {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let words = address.chunks(4).chain([port]);
    mixed(words.fold(0, |all, word| next(all, number(word))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_python() {
        let four = [10, 0, 0, 1, 10, 0, 0, 2, 0x80, 0, 0x23, 0x84];
        let mut six = [7; 36];
        six[15] = 1;
        six[35] = 9;
        for (ends, expected) in [(&four[..], [0, 0, 43]), (&six[..], [1, 11, 692])] {
            assert_eq!([2, 16, 1000].map(|shards| shard_of(ends, shards)), expected);
        }
    }

    #[test]
    fn both_directions_are_in_one_shard() {
        let back = [10, 0, 0, 2, 10, 0, 0, 1, 0x23, 0x84, 0x80, 0];
        let owned: Vec<_> = (0..16)
            .filter(|&number| Shard { number, of: 16 }.owns(&back))
            .collect();
        assert_eq!(owned, [0]);
    }
}
