//! The class `kdissect._core.Places`, and the functions that find places, for kdissect/capture/pcap.py and pcapng.py.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};

use crate::capture::places::{self, pcap, pcapng, run, Pattern, Place};
use crate::guarded;

/// An interface, the number of its packets, and their sizes.
type OfInterface<'py> = (Bound<'py, PyAny>, usize, [usize; 4]);

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

/// See [`pcap`]. None if this is left to Python.
#[pyfunction]
pub fn pcap_places(
    data: &Bound<'_, PyBytes>,
    pos: usize,
    is_little: bool,
    tick_ns: i64,
    header: usize,
    limit: usize,
) -> Option<(Places, usize, usize, usize)> {
    let stepped = guarded(|| Ok(pcap(data.as_bytes(), pos, is_little, tick_ns, header, limit)));
    let (places, at, needed, declared) = stepped.ok()?;
    Some((places.into(), at, needed, declared))
}

/// See [`run`]. None if this is left to Python.
#[pyfunction]
pub fn payloads<'py>(
    data: &Bound<'py, PyBytes>,
    places: &Bound<'py, Places>,
    layout: (usize, usize, usize),
    pattern: Pattern<Bound<'py, PyBytes>>,
    now_ns: i64,
    until_ns: i64,
) -> Option<(Bound<'py, PyBytes>, usize)> {
    let (bytes, places) = (data.as_bytes(), &places.get().places);
    let (kind, total, carries, ends, sequence, acknowledgment, control) = &pattern;
    let pattern = (
        *kind,
        *total,
        *carries,
        ends.as_bytes(),
        *sequence,
        *acknowledgment,
        *control,
    );
    let joined = guarded(|| Ok(run(bytes, places, layout, pattern, now_ns, until_ns)));
    let (joined, count) = joined.ok()?;
    Some((PyBytes::new(data.py(), &joined), count))
}

/// See [`pcapng`]; `clocks` and `interfaces`: of the section. None: Python does it.
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

/// See [`places::pcapng_skip`].
#[pyfunction]
pub fn pcapng_skip(path: PathBuf, pos: u64, is_little: bool) -> io::Result<u64> {
    places::pcapng_skip(&path, pos, is_little)
}
