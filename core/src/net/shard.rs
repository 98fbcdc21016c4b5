//! Ends of a connection -> the shard it belongs to, as `shard_of` of kdissect/net/tcp.py.

/// As `_SPREAD` there.
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
pub fn shard_of(ends: &[u8], shards: u32) -> u32 {
    let (addresses, ports) = ends.split_at(ends.len().saturating_sub(PORTS));
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let (from, to) = ports.split_at(ports.len() / 2);
    let both = end(source, from).wrapping_add(end(destination, to));
    let spread = both.wrapping_mul(SPREAD) >> 32;
    ((spread * u64::from(shards)) >> 32) as u32
}

fn end(address: &[u8], port: &[u8]) -> u64 {
    let address = match (address.first_chunk(), address.last_chunk()) {
        (Some(high), Some(low)) => u64::from_be_bytes(*high) ^ u64::from_be_bytes(*low),
        _ => address
            .first_chunk()
            .map_or(0, |four| u32::from_be_bytes(*four).into()),
    };
    let port = port
        .first_chunk()
        .map_or(0, |two| u16::from_be_bytes(*two).into());
    address << 16 | port
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
        for (ends, expected) in [(&four[..], [0, 2, 148]), (&six[..], [1, 12, 775])] {
            assert_eq!([2, 16, 1000].map(|shards| shard_of(ends, shards)), expected);
        }
    }

    #[test]
    fn both_directions_are_in_one_shard() {
        let back = [10, 0, 0, 2, 10, 0, 0, 1, 0x23, 0x84, 0x80, 0];
        let owned: Vec<_> = (0..16)
            .filter(|&number| Shard { number, of: 16 }.owns(&back))
            .collect();
        assert_eq!(owned, [2]);
    }
}
