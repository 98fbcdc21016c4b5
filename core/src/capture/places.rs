//! Bytes of a capture -> where its packets are: the loops of kdissect/capture/pcap.py and pcapng.py.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};

use crate::guarded;

/// An interface, the number of its packets, and their sizes.
type OfInterface<'py> = (Bound<'py, PyAny>, usize, [usize; 4]);

/// Of an interface: as in `Clock` of pcapng.py, `plain_below`, `tick_ns` and `kind`.
type Clock = (u32, i64, usize);

/// Time, start and end in the buffer, and length on the wire.
pub type Place = (i64, usize, usize, u32);

const SECOND_NS: i64 = 1_000_000_000;
const ENHANCED_PACKET: u32 = 6;
/// Bytes of an enhanced packet block before and after its packet, without options.
const ENHANCED_BYTES: (usize, usize) = (28, 4);
/// Read at a time by `pcapng_skip`; large packets are not read completely.
const SKIP_BYTES: usize = 16 * 1024;

/// `PacketBlock.places`, as a sequence of tuples.
#[pyclass(frozen, sequence, module = "kdissect._core")]
#[derive(Default)]
pub struct Places {
    pub places: Vec<Place>,
    /// Of the packets, if they are not consecutive.
    pub numbers: Option<Vec<u64>>,
    /// If they are not all packets of their block: number of these, their earliest and their latest time.
    pub whole: Option<(usize, i64, i64)>,
    /// Of a block with packets of several interfaces: Python's interfaces, and which of them each packet has.
    pub mixed: Option<(Py<PyList>, Vec<u32>)>,
}

impl From<Vec<Place>> for Places {
    fn from(places: Vec<Place>) -> Self {
        Places {
            places,
            ..Places::default()
        }
    }
}

impl Places {
    /// Number of the packet at an index, given that of the first one; past the end, that of the last plus one.
    pub fn number(&self, first: u64, index: usize) -> u64 {
        let Some(numbers) = &self.numbers else {
            return first + index as u64;
        };
        let after = || numbers.last().map_or(first, |last| last + 1);
        numbers.get(index).copied().unwrap_or_else(after)
    }
}

#[pymethods]
impl Places {
    #[new]
    fn new(places: Vec<Place>) -> Self {
        places.into()
    }

    fn __len__(&self) -> usize {
        self.places.len()
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = index.py();
        if let Ok(slice) = index.cast::<PySlice>() {
            let range = slice.indices(self.places.len() as isize)?;
            if range.step != 1 {
                return Err(PyTypeError::new_err("places are sliced without a step"));
            }
            let begin = range.start as usize;
            let end = begin + range.slicelength;
            let numbers = self.numbers.as_ref();
            let part = Places {
                places: self.places[begin..end].to_vec(),
                numbers: numbers.map(|numbers| numbers[begin..end].to_vec()),
                whole: self.whole,
                mixed: self
                    .mixed
                    .as_ref()
                    .map(|(all, of)| (all.clone_ref(py), of[begin..end].to_vec())),
            };
            return Ok(part.into_pyobject(py)?.into_any());
        }
        let index: isize = index.extract()?;
        let index = if index < 0 {
            index + self.places.len() as isize
        } else {
            index
        };
        let place = usize::try_from(index)
            .ok()
            .and_then(|index| self.places.get(index));
        let place = place.ok_or_else(|| PyIndexError::new_err("no such packet"))?;
        Ok(place.into_pyobject(py)?.into_any())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(py, &self.places)?.try_iter()?.into_any())
    }

    #[getter]
    fn is_consecutive(&self) -> bool {
        self.numbers.is_none()
    }

    /// The packets' numbers. None: they are consecutive.
    #[getter]
    fn numbers(&self) -> Option<Vec<u64>> {
        self.numbers.clone()
    }

    /// The interface of each packet. None: they have the same.
    #[getter]
    fn interfaces<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let Some((all, of)) = &self.mixed else {
            return Ok(None);
        };
        let all = all.bind(py);
        of.iter()
            .map(|&each| all.get_item(each as usize))
            .collect::<PyResult<_>>()
            .map(Some)
    }

    /// The interfaces in order of their first packets, each with the number of its packets and their sizes as in
    /// `counted`. None: they have the same.
    fn by_interface<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<OfInterface<'py>>>> {
        let Some((all, of)) = &self.mixed else {
            return Ok(None);
        };
        let all = all.bind(py);
        let mut known: HashMap<u32, usize> = HashMap::new();
        let mut counts: Vec<OfInterface<'py>> = Vec::new();
        for (&interface, &(_, begin, end, length)) in of.iter().zip(&self.places) {
            let place = *known.entry(interface).or_insert(counts.len());
            if place == counts.len() {
                counts.push((all.get_item(interface as usize)?, 0, [0; 4]));
            }
            let (_, packets, [captured_bytes, wire_bytes, cut, cut_to]) = &mut counts[place];
            let (captured, on_wire) = (end.saturating_sub(begin), length as usize);
            *packets += 1;
            *captured_bytes += captured;
            *wire_bytes += on_wire;
            if captured < on_wire {
                *cut += 1;
                *cut_to = captured.max(*cut_to);
            }
        }
        Ok(Some(counts))
    }

    /// As `number`.
    fn number_at(&self, first: u64, index: usize) -> u64 {
        self.number(first, index)
    }

    /// As `PacketBlock.place_of`, if there are numbers.
    fn place_of(&self, number: u64) -> usize {
        let numbers = self.numbers.as_deref().unwrap_or_default();
        1 + numbers.partition_point(|&each| each < number)
    }

    /// As `PacketBlock.span`, given the number of the first packet. There must be a packet.
    fn span(&self, first: i64) -> PyResult<(usize, Option<i64>, i64, i64)> {
        let times = || self.places.iter().map(|place| place.0);
        let own = || Some((self.places.len(), times().min()?, times().max()?));
        let Some((packets, earliest_ns, latest_ns)) = self.whole.or_else(own) else {
            return Err(PyIndexError::new_err("no packets"));
        };
        let are_counted = self.numbers.is_none() || self.whole.is_some();
        Ok((packets, are_counted.then_some(first - 1), earliest_ns, latest_ns))
    }

    /// As `_counted` of kdissect/stats/survey.py.
    fn counted(&self, mut last_ns: i64) -> ([i64; 4], [usize; 4]) {
        let (mut first_ns, mut backward, mut furthest_back_ns) = (last_ns, 0, 0);
        let (mut captured_bytes, mut wire_bytes, mut cut, mut cut_to) = (0, 0, 0, 0);
        for &(time_ns, begin, end, length) in &self.places {
            if time_ns < last_ns {
                backward += 1;
                furthest_back_ns = furthest_back_ns.max(last_ns.saturating_sub(time_ns));
                first_ns = first_ns.min(time_ns);
            }
            last_ns = last_ns.max(time_ns);
            let (captured, on_wire) = (end.saturating_sub(begin), length as usize);
            captured_bytes += captured;
            wire_bytes += on_wire;
            if captured < on_wire {
                cut += 1;
                cut_to = cut_to.max(captured);
            }
        }
        (
            [first_ns, last_ns, backward, furthest_back_ns],
            [captured_bytes, wire_bytes, cut, cut_to],
        )
    }
}

/// Reads four bytes.
fn word(data: &[u8], pos: usize, is_little: bool) -> Option<u32> {
    let bytes = *data.get(pos..)?.first_chunk()?;
    Some(if is_little {
        u32::from_le_bytes(bytes)
    } else {
        u32::from_be_bytes(bytes)
    })
}

/// Steps over the packets of a pcap file, see `pcap.py`. Returns their places, where the next one begins, how
/// many bytes it needs, and how many captured bytes it declares. None if this is left to Python.
#[pyfunction]
pub fn pcap_places(
    data: &Bound<'_, PyBytes>,
    pos: usize,
    is_little: bool,
    tick_ns: i64,
    header: usize,
    limit: usize,
) -> Option<(Places, usize, usize, usize)> {
    guarded(|| Ok(pcap(data.as_bytes(), pos, is_little, tick_ns, header, limit))).ok()
}

fn pcap(
    data: &[u8],
    pos: usize,
    is_little: bool,
    tick_ns: i64,
    header: usize,
    limit: usize,
) -> (Places, usize, usize, usize) {
    let mut places = Vec::new();
    let mut at = pos;
    while data.len() >= header && at <= data.len() - header {
        let field = |number: usize| word(data, at + 4 * number, is_little);
        let (Some(seconds), Some(ticks), Some(captured), Some(length)) =
            (field(0), field(1), field(2), field(3))
        else {
            break;
        };
        let begin = at + header;
        let end = begin + captured as usize;
        if end > data.len() || captured as usize > limit {
            return (places.into(), at, end - at, captured as usize);
        }
        places.push((
            i64::from(seconds) * SECOND_NS + i64::from(ticks) * tick_ns,
            begin,
            end,
            length,
        ));
        at = end;
    }
    (places.into(), at, header, 0)
}

/// The fields of `connection.USUAL`.
type Pattern<'py> = (u32, u16, u32, Bound<'py, PyBytes>, u32, u32, u16);

/// Payloads of the packets after the first one of a run, joined, and their number: see `connection.payloads`.
/// None if this is left to Python.
#[pyfunction]
pub fn payloads<'py>(
    data: &Bound<'py, PyBytes>,
    places: &Bound<'py, Places>,
    layout: (usize, usize, usize),
    pattern: Pattern<'py>,
    now_ns: i64,
    until_ns: i64,
) -> Option<(Bound<'py, PyBytes>, usize)> {
    let (bytes, places) = (data.as_bytes(), &places.get().places);
    let joined = guarded(|| Ok(run(bytes, places, layout, &pattern, now_ns, until_ns)));
    let (joined, count) = joined.ok()?;
    Some((PyBytes::new(data.py(), &joined), count))
}

fn run(
    data: &[u8],
    places: &[Place],
    (at, start, end): (usize, usize, usize),
    (kind, total, carries, ends, sequence, acknowledgment, control): &Pattern<'_>,
    mut now_ns: i64,
    until_ns: i64,
) -> (Vec<u8>, usize) {
    let (ends, mut sequence) = (ends.as_bytes(), *sequence);
    let mut joined = Vec::with_capacity(
        places
            .len()
            .saturating_mul(end.saturating_sub(start))
            .min(data.len()),
    );
    for (count, &(time_ns, begin, stop, _)) in places.iter().enumerate() {
        let packet = data.get(begin..stop).unwrap_or_default();
        let (Some(payload), Some(header)) = (packet.get(start..end), packet.get(at..)) else {
            return (joined, count);
        };
        let is_next = (now_ns..until_ns).contains(&time_ns)
            && header.get(12..16) == Some(&kind.to_be_bytes())
            && header.get(16..18) == Some(&total.to_be_bytes())
            && header.get(20..24) == Some(&carries.to_be_bytes())
            && header.get(26..38) == Some(ends)
            && header.get(38..42) == Some(&sequence.to_be_bytes())
            && header.get(42..46) == Some(&acknowledgment.to_be_bytes())
            && header.get(46..48) == Some(&control.to_be_bytes());
        if !is_next {
            return (joined, count);
        }
        joined.extend_from_slice(payload);
        sequence = sequence.wrapping_add(payload.len() as u32);
        now_ns = time_ns;
    }
    (joined, places.len())
}

/// Steps over the enhanced packet blocks of interfaces of one kind, see `pcapng.py`. Returns their places, and where
/// the first block begins that is not one of them, not whole, or not usual. `clocks` and `interfaces`: of the section.
/// None: Python does it.
#[pyfunction]
pub fn pcapng_places(
    data: &Bound<'_, PyBytes>,
    pos: usize,
    is_little: bool,
    clocks: &Bound<'_, PyList>,
    interfaces: &Bound<'_, PyList>,
    limit: usize,
) -> Option<(Places, usize)> {
    let clock_of = |interface: u32| clocks.get_item(interface as usize).ok()?.extract().ok();
    let stepped = guarded(|| Ok(pcapng(data.as_bytes(), pos, is_little, &clock_of, limit)));
    let (places, of, at) = stepped.ok()?;
    let is_mixed = of.iter().any(|each| Some(each) != of.first());
    let places = Places {
        mixed: is_mixed.then(|| (interfaces.clone().unbind(), of)),
        ..places.into()
    };
    Some((places, at))
}

fn pcapng(
    data: &[u8],
    pos: usize,
    is_little: bool,
    clock_of: &dyn Fn(u32) -> Option<Clock>,
    limit: usize,
) -> (Vec<Place>, Vec<u32>, usize) {
    let (before, after) = ENHANCED_BYTES;
    let (mut places, mut interfaces) = (Vec::new(), Vec::new());
    let mut clocks: HashMap<u32, Clock> = HashMap::new();
    let mut latest: Option<(u32, Clock)> = None;
    let mut at = pos;
    while let Some(block) = data.get(at..).filter(|rest| rest.len() >= before + after) {
        let field = |number: usize| word(block, 4 * number, is_little).unwrap_or_default();
        let (total, interface, captured) = (field(1) as usize, field(2), field(5) as usize);
        if field(0) != ENHANCED_PACKET {
            break;
        }
        let clock = match latest {
            Some((known, clock)) if known == interface => clock,
            _ => {
                let known = clocks.get(&interface).copied().or_else(|| clock_of(interface));
                let Some(clock) = known.filter(|each| latest.is_none_or(|(_, one)| one.2 == each.2)) else {
                    break;
                };
                clocks.insert(interface, clock);
                latest = Some((interface, clock));
                clock
            }
        };
        let (plain_below, tick_ns, _) = clock;
        let ticks = i64::from(field(3)) << 32 | i64::from(field(4));
        let is_usual = field(3) < plain_below
            && captured.saturating_add(before + after) <= total
            && captured <= limit
            && total <= block.len()
            && word(block, total - after, is_little) == Some(field(1));
        let Some(time_ns) = ticks.checked_mul(tick_ns).filter(|_| is_usual) else {
            break;
        };
        places.push((time_ns, at + before, at + before + captured, field(6)));
        interfaces.push(interface);
        at += total;
    }
    (places, interfaces, at)
}

/// Steps over the enhanced packet blocks of a file, of which only the lengths are read. Returns where the first
/// block begins that is not one of them, or not whole.
#[pyfunction]
pub fn pcapng_skip(path: PathBuf, pos: u64, is_little: bool) -> io::Result<u64> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut file = BufReader::with_capacity(SKIP_BYTES, file);
    file.seek(SeekFrom::Start(pos))?;
    let min_bytes = ENHANCED_BYTES.0 + ENHANCED_BYTES.1;
    let (mut at, mut head) = (pos, [0; 8]);
    while size.saturating_sub(at) >= min_bytes as u64 {
        file.read_exact(&mut head)?;
        let total = word(&head, 4, is_little).unwrap_or_default();
        let is_usual = word(&head, 0, is_little) == Some(ENHANCED_PACKET) && total as usize >= min_bytes;
        if !is_usual || u64::from(total) > size - at {
            break;
        }
        at += u64::from(total);
        file.seek_relative(i64::from(total) - head.len() as i64)?;
    }
    Ok(at)
}
