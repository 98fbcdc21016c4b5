//! A packet -> its TCP segment: the common headers of kdissect/net/link.py, ip.py and tcp.py.
//!
//! Everything else is odd: fragments, IPv4 options, IPv6 extension headers, tunnels, truncated packets, and
//! anything but TCP.

use crate::Odd;

const NULL: u32 = 0;
const ETHERNET: u32 = 1;
const LOOP: u32 = 108;
const RAW: [u32; 3] = [101, 12, 14];
const COOKED: u32 = 113;
const IPV4_ONLY: u32 = 228;
const IPV6_ONLY: u32 = 229;
const COOKED_V2: u32 = 276;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];

const TCP: u8 = 6;
const TCP_HEADER: usize = 20;
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const SCALE: u8 = 3;
const MAX_SCALE: u8 = 14;
const SACK: u8 = 5;
const ONE_BLOCK: usize = 10;
const TWO_BLOCKS: usize = 18;
const FRAGMENTED: u16 = 0x3FFF; // more fragments, or an offset

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;
/// FIN, SYN, RST and ACK.
pub const CONTROL: u8 = 0x17;

/// As in kdissect/model.py.
#[derive(Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Source address, destination address, source port, destination port: 12 bytes, for IPv6 36.
    pub ends: &'a [u8],
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
    pub window: u16,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Whether the options report that another segment arrived twice, see `is_d_sack` in kdissect/net/tcp.py.
    pub fn is_d_sack(&self) -> bool {
        let sack = self.option(SACK);
        if sack.len() < ONE_BLOCK {
            return false;
        }
        let edge = |number: usize| {
            let bytes = sack.get(2 + 4 * number..).and_then(<[u8]>::first_chunk);
            u32::from_be_bytes(*bytes.unwrap_or(&[0; 4]))
        };
        let distance = |from: u32, to: u32| to.wrapping_sub(from) as i32;
        if distance(edge(0), self.acknowledgment) > 0 {
            return true;
        }
        sack.len() >= TWO_BLOCKS && distance(edge(2), edge(0)) >= 0 && distance(edge(1), edge(3)) >= 0
    }

    /// The shift count that the options of a SYN offer, see `window_scale` in kdissect/net/tcp.py.
    pub fn window_scale(&self) -> Option<u8> {
        match *self.option(SCALE) {
            [_, _, shift] => Some(shift.min(MAX_SCALE)),
            _ => None,
        }
    }

    /// The first option of a kind, with kind and length; empty if there is none, or it does not end.
    fn option(&self, wanted: u8) -> &[u8] {
        let mut options = self.options;
        while let [kind, length, ..] = *options {
            let step = match kind {
                END => break,
                _ if kind == wanted => return options.get(..usize::from(length)).unwrap_or_default(),
                NO_OPERATION => 1,
                _ => usize::from(length).max(2),
            };
            options = options.get(step..).unwrap_or_default();
        }
        &[]
    }
}

/// The segment in a packet of this link type. Inlined, because returning it takes longer than finding it.
#[inline(always)]
pub fn segment(link_type: u32, packet: &[u8]) -> Result<Segment<'_>, Odd> {
    let (ethertype, internet) = match link_type {
        ETHERNET => follow(packet, 12)?,
        COOKED => follow(packet, 14)?,
        COOKED_V2 => (u16_at(packet, 0)?, 20),
        NULL | LOOP => (family(packet)?, 4),
        IPV4_ONLY => (IPV4, 0),
        IPV6_ONLY => (IPV6, 0),
        _ if RAW.contains(&link_type) => match packet.first().ok_or(Odd)? >> 4 {
            4 => (IPV4, 0),
            6 => (IPV6, 0),
            _ => return Err(Odd),
        },
        _ => return Err(Odd),
    };
    let header = packet.get(internet..).ok_or(Odd)?;
    // Positions of the addresses and the TCP header, and the end of the datagram.
    let (addresses, transport, end) = match ethertype {
        IPV4 => {
            let fixed: &[u8; 20] = header.first_chunk().ok_or(Odd)?;
            let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
            if fixed[0] != 0x45 || fragment & FRAGMENTED != 0 || fixed[9] != TCP {
                return Err(Odd);
            }
            (12, 20, usize::from(u16::from_be_bytes([fixed[2], fixed[3]])))
        }
        IPV6 => {
            let fixed: &[u8; 40] = header.first_chunk().ok_or(Odd)?;
            if fixed[0] >> 4 != 6 || fixed[6] != TCP {
                return Err(Odd);
            }
            (8, 40, 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]])))
        }
        _ => return Err(Odd),
    };
    let tcp = header.get(transport..end).ok_or(Odd)?; // so the packet was not truncated
    let fixed: &[u8; TCP_HEADER] = tcp.first_chunk().ok_or(Odd)?;
    let size = usize::from(fixed[12] >> 4) * 4;
    if size < TCP_HEADER {
        return Err(Odd);
    }
    Ok(Segment {
        ends: &header[addresses..transport + 4],
        sequence: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        acknowledgment: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        flags: fixed[13],
        window: u16::from_be_bytes([fixed[14], fixed[15]]),
        options: tcp.get(TCP_HEADER..size).ok_or(Odd)?,
        payload: tcp.get(size..).ok_or(Odd)?,
    })
}

fn u16_at(packet: &[u8], pos: usize) -> Result<u16, Odd> {
    match packet.get(pos..pos + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Odd),
    }
}

/// The ethertype at `pos`, or the one after one or two VLAN tags, and where its header begins.
fn follow(packet: &[u8], pos: usize) -> Result<(u16, usize), Odd> {
    for pos in [pos, pos + 4, pos + 8] {
        let ethertype = u16_at(packet, pos)?;
        if !VLAN_TAGS.contains(&ethertype) {
            return Ok((ethertype, pos + 2));
        }
    }
    Err(Odd)
}

/// The ethertype for the address family of a BSD null header, in either byte order.
fn family(packet: &[u8]) -> Result<u16, Odd> {
    let bytes: &[u8; 4] = packet.first_chunk().ok_or(Odd)?;
    let known = |family: u32| match family {
        2 => Some(IPV4),
        24 | 28 | 30 => Some(IPV6),
        _ => None,
    };
    known(u32::from_be_bytes(*bytes))
        .or_else(|| known(u32::from_le_bytes(*bytes)))
        .ok_or(Odd)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A segment from either of two ends.
    pub fn tcp_over_ipv4(
        side: usize,
        sequence: u32,
        acknowledgment: u32,
        flags: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut bytes = ipv4(payload);
        if side == 1 {
            bytes[12..20].rotate_left(4);
            bytes[20..24].rotate_left(2);
        }
        bytes[24..28].copy_from_slice(&sequence.to_be_bytes());
        bytes[28..32].copy_from_slice(&acknowledgment.to_be_bytes());
        bytes[33] = flags;
        bytes
    }

    fn tcp(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x80, 0x00, 0x23, 0x84]; // ports
        bytes.extend([0, 0, 0, 5, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        bytes.extend(payload);
        bytes
    }

    fn ipv4(payload: &[u8]) -> Vec<u8> {
        let segment = tcp(payload);
        let [high, low] = (20 + segment.len() as u16).to_be_bytes();
        let mut bytes = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(segment);
        bytes
    }

    fn ipv6(payload: &[u8]) -> Vec<u8> {
        let segment = tcp(payload);
        let mut bytes = vec![0x60, 0, 0, 0, 0, segment.len() as u8, 6, 64];
        bytes.extend([7; 32]);
        bytes.extend(segment);
        bytes
    }

    fn after(header: &[u8], packet: &[u8]) -> Vec<u8> {
        [header, packet].concat()
    }

    #[test]
    fn usual_link_layers() {
        let ethernet = [0; 12];
        for (link_type, header) in [
            (ETHERNET, after(&ethernet, &[8, 0])),
            (ETHERNET, after(&ethernet, &[0x81, 0, 0, 7, 8, 0])),
            (
                ETHERNET,
                after(&ethernet, &[0x88, 0xA8, 0, 7, 0x81, 0, 0, 7, 8, 0]),
            ),
            (COOKED, after(&[0; 14], &[8, 0])),
            (COOKED_V2, after(&[8, 0], &[0; 18])),
            (NULL, vec![2, 0, 0, 0]),
            (LOOP, vec![0, 0, 0, 2]),
            (101, vec![]),
            (IPV4_ONLY, vec![]),
        ] {
            let mut packet = after(&header, &ipv4(b"abc"));
            packet.extend([0; 7]); // padding
            let found = segment(link_type, &packet).unwrap();
            assert_eq!(found.ends, [10, 0, 0, 1, 10, 0, 0, 2, 0x80, 0, 0x23, 0x84]);
            assert_eq!((found.sequence, found.acknowledgment, found.flags), (5, 9, 0x18));
            assert_eq!(found.payload, b"abc");
        }
        let packet = ipv6(b"abc");
        let found = segment(IPV6_ONLY, &packet).unwrap();
        assert_eq!((found.ends.len(), found.payload), (36, &b"abc"[..]));
        assert_eq!(segment(101, &packet), Ok(found));
    }

    #[test]
    fn d_sacks() {
        let sack = |edges: &[u32]| {
            let mut option = vec![5, 2 + 4 * edges.len() as u8];
            option.extend(edges.iter().flat_map(|edge| edge.to_be_bytes()));
            option
        };
        let timestamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let mut cut = sack(&[100, 200]);
        cut.pop();
        for (options, expected) in [
            (sack(&[100, 200]), true),
            (after(&timestamps, &sack(&[500, 600, 400, 700])), true),
            (sack(&[400, 500]), false),
            (sack(&[400, 500, 600, 700]), false),
            (after(&[0], &sack(&[100, 200])), false),
            (after(&[8, 0], &sack(&[100, 200])), true),
            (cut, false),
            (timestamps.to_vec(), false),
            (vec![5], false),
            (Vec::new(), false),
        ] {
            let segment = Segment {
                ends: &[],
                sequence: 0,
                acknowledgment: 300,
                flags: ACK,
                window: 0,
                options: &options,
                payload: &[],
            };
            assert_eq!(segment.is_d_sack(), expected, "{options:?}");
        }
    }

    #[test]
    fn whatever_is_cut_is_odd() {
        for packet in [ipv4(b"abc"), ipv6(b"abc")] {
            for end in 0..packet.len() {
                assert_eq!(segment(101, &packet[..end]), Err(Odd));
            }
        }
    }

    #[test]
    fn whatever_is_not_plain_tcp_is_odd() {
        for (place, value) in [
            (0, 0x46),
            (0, 0x55),
            (6, 0x20),
            (7, 1),
            (9, 17),
            (3, 19),
            (32, 0x40),
            (32, 0xF0),
        ] {
            let mut packet = ipv4(b"abc");
            packet[place] = value;
            assert_eq!(segment(101, &packet), Err(Odd), "{place}");
        }
        assert_eq!(segment(147, &ipv4(b"abc")), Err(Odd));
    }
}
