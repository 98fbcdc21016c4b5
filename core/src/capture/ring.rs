//! Slots of a packet ring (packet_mmap(7), TPACKET_V2), copied by kdissect/capture/ring.py, and packets too large for
//! a slot -> blocks of a pcapng file.

use crate::{guarded, Odd};

/// Status bits of a slot: it holds a packet, ...
const OURS: u32 = 0x1;
/// ... which did not fit and is in the socket's buffer; ...
const IN_BUFFER: u32 = 0x2;
/// ... it had a VLAN tag, ...
const VLAN: u32 = 0x10;
/// ... whose ethertype is known.
const VLAN_KIND: u32 = 0x40;
const DEFAULT_VLAN_KIND: u16 = 0x8100;
/// Bytes of an Ethernet header before the tag.
const ADDRESSES_BYTES: usize = 12;

/// `sockaddr_ll`, which follows the header of the slot.
const LINK_ADDRESS_AT: usize = 32;
const LINK_ADDRESS_BYTES: usize = 20;
const LONGEST_ADDRESS: usize = 8;
const COOKED_BYTES: usize = 20;

const ENHANCED_PACKET: u32 = 6;
const ENHANCED_BYTES: usize = 32;
const SECOND_NS: u64 = 1_000_000_000;

/// A copy of one slot.
struct Slot<'a>(&'a [u8]);

impl Slot<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(at)?))
    }

    fn half(&self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(self.bytes(at)?))
    }

    fn is_in_buffer(&self) -> bool {
        self.word(0).is_some_and(|status| status & IN_BUFFER != 0)
    }

    /// Its packet, which is `received` if it did not fit. None if it is incomplete.
    fn data<'a>(&'a self, received: Option<&'a [u8]>, snaplen: u32) -> Option<&'a [u8]> {
        if self.is_in_buffer() {
            return received;
        }
        let (length, size) = (self.word(4)?, self.word(8)?);
        if size != length.min(snaplen) {
            return None;
        }
        let begin = usize::from(self.half(12)?);
        self.0.get(begin..)?.get(..size as usize)
    }

    /// Appends its packet to `out`. None if it has none, or it is left to Python.
    fn encode(&self, received: Option<&[u8]>, form: &SlotForm, out: &mut Vec<u8>) -> Option<()> {
        let (snaplen, is_cooked, may_be_tagged, number) = *form;
        let status = self.word(0)?;
        if status & OURS == 0 {
            return None;
        }
        let length = self.word(4)?;
        let data = self.data(received, snaplen)?;
        let time_ns = u64::from(self.word(16)?) * SECOND_NS + u64::from(self.word(20)?);

        let is_tagged = may_be_tagged && status & VLAN != 0;
        if is_tagged && data.len() < ADDRESSES_BYTES {
            return None;
        }
        let added = if is_cooked {
            COOKED_BYTES
        } else if is_tagged {
            4
        } else {
            0
        };
        let captured = data.len() + added;
        let total = (ENHANCED_BYTES + captured.next_multiple_of(4)) as u32;
        let head = [
            ENHANCED_PACKET,
            total,
            number,
            (time_ns >> 32) as u32,
            time_ns as u32,
            captured as u32,
            length + added as u32,
        ];
        out.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        if is_cooked {
            self.cook(out)?;
        }
        let (before, after) = data.split_at(if is_tagged { ADDRESSES_BYTES } else { 0 });
        out.extend_from_slice(before);
        if is_tagged {
            let kind = self.half(26)?;
            let kind = if status & VLAN_KIND != 0 {
                kind
            } else {
                DEFAULT_VLAN_KIND
            };
            out.extend(kind.to_be_bytes());
            out.extend(self.half(24)?.to_be_bytes());
        }
        out.extend_from_slice(after);
        out.extend(std::iter::repeat_n(0, captured.next_multiple_of(4) - captured));
        out.extend(total.to_le_bytes());
        Some(())
    }

    /// Appends the header of LINKTYPE_LINUX_SLL2.
    fn cook(&self, out: &mut Vec<u8>) -> Option<()> {
        let address: [u8; LINK_ADDRESS_BYTES] = self.bytes(LINK_ADDRESS_AT)?;
        let size = usize::from(address[11]).min(LONGEST_ADDRESS);
        out.extend(&address[2..4]); // protocol, in network order as here
        out.extend([0, 0]);
        out.extend(i32::from_ne_bytes(self.bytes(LINK_ADDRESS_AT + 4)?).to_be_bytes());
        out.extend(self.half(LINK_ADDRESS_AT + 8)?.to_be_bytes());
        out.extend(&address[10..12]);
        out.extend(&address[12..12 + size]);
        out.extend(std::iter::repeat_n(0, LONGEST_ADDRESS - size)); // the slot has bytes of an earlier packet here
        Some(())
    }
}

/// Snaplen; whether packets get a cooked header; whether the kernel may have removed a VLAN tag; and the number of
/// the interface in the file.
pub type SlotForm = (u32, bool, bool, u32);

/// Encodes the packets in slots; `received` are those that did not fit. Returns their blocks and number. The
/// next slot is odd.
pub fn encode(
    slots: &[u8],
    slot_bytes: usize,
    received: &[impl AsRef<[u8]>],
    form: &SlotForm,
) -> (Vec<u8>, usize) {
    let room = slots.len() + received.iter().map(|packet| packet.as_ref().len()).sum::<usize>();
    let (mut out, mut count) = (Vec::with_capacity(room), 0);
    let mut received = received.iter().peekable();
    for slot in slots.chunks_exact(slot_bytes).map(Slot) {
        let start = out.len();
        let own = received.next_if(|_| slot.is_in_buffer()).map(AsRef::as_ref);
        if guarded(|| slot.encode(own, form, &mut out).ok_or(Odd)).is_err() {
            out.truncate(start);
            break;
        }
        count += 1;
    }
    (out, count)
}
