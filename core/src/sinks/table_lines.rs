//! Rows of a table -> JSON lines, as `JsonFile` in kdissect/tables/table_files.py writes them.

use crate::sinks::shared::Droppable;
use crate::Odd;

/// Text that was taken is dropped if it is as long as the rest, and this long.
const DROPPED_BYTES: usize = 64 * 1024;

/// The lines that Python has not taken yet.
pub struct TableLines {
    /// The text before each column.
    heads: Vec<String>,
    text: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
    /// How many of them were taken, and where the text after them begins.
    taken: usize,
    start: usize,
}

impl TableLines {
    pub fn new(heads: Vec<String>) -> Self {
        TableLines {
            heads,
            text: Vec::new(),
            ends: Vec::new(),
            taken: 0,
            start: 0,
        }
    }

    /// `write` writes a value for each column, given the text before it. If it is odd, it has no effect.
    pub fn row(&mut self, write: impl FnOnce(&[String], &mut Vec<u8>) -> Result<(), Odd>) -> Result<(), Odd> {
        let start = self.text.len();
        let written = write(&self.heads, &mut self.text);
        match written {
            Ok(()) => {
                self.text.extend_from_slice(b"}\n");
                self.ends.push(self.text.len());
            }
            Err(_) => self.text.truncate(start),
        }
        written
    }

    /// Adds lines of text.
    pub fn add(&mut self, text: &[u8]) {
        let start = self.text.len();
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        self.ends.extend(ends.map(|(place, _)| start + place + 1));
        self.text.extend_from_slice(text);
    }

    /// Takes the first lines.
    pub fn take_first(&mut self, rows: usize) -> Vec<u8> {
        let end = rows
            .checked_sub(1)
            .and_then(|last| self.ends.get(self.taken + last));
        match end.copied() {
            Some(end) => self.take((end - self.start).saturating_sub(1)),
            None => Vec::new(),
        }
    }

    /// Takes lines: at least one, and none after the one that exceeds `room` bytes.
    pub fn take(&mut self, room: usize) -> Vec<u8> {
        let left = self.ends.get(self.taken..).unwrap_or_default();
        let within = left.partition_point(|end| end - self.start <= room);
        let Some(end) = left.get(within).or(left.last()).copied() else {
            return Vec::new();
        };
        let text = self.text.get(self.start..end).unwrap_or_default().to_vec();
        self.taken += (within + 1).min(left.len());
        self.start = end;
        if self.start >= DROPPED_BYTES && 2 * self.start >= self.text.len() || self.start == self.text.len() {
            self.text.drain(..self.start);
            self.ends.drain(..self.taken);
            self.ends.iter_mut().for_each(|end| *end -= self.start);
            (self.taken, self.start) = (0, 0);
        }
        text
    }
}

impl Droppable for TableLines {
    fn size(&self) -> (usize, usize) {
        (self.ends.len() - self.taken, self.text.len() - self.start)
    }

    fn truncate(&mut self, rows: usize, _held: usize) {
        self.ends.truncate(self.taken + rows);
        self.text
            .truncate(self.ends.last().copied().unwrap_or(0).max(self.start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> TableLines {
        let mut lines = TableLines::new(vec!["{".to_owned()]);
        for text in texts {
            let written = lines.row(|heads, out| {
                out.extend_from_slice(heads[0].as_bytes());
                out.extend_from_slice(text.as_bytes());
                if *text == "odd" {
                    return Err(Odd);
                }
                Ok(())
            });
            assert_eq!(written.is_ok(), *text != "odd");
        }
        lines
    }

    #[test]
    fn lines_are_taken_up_to_a_size() {
        for (room, expected) in [
            (0, "{a}\n"),
            (3, "{a}\n"),
            (4, "{a}\n{bc}\n"),
            (8, "{a}\n{bc}\n"),
            (9, "{a}\n{bc}\n{d}\n"),
            (99, "{a}\n{bc}\n{d}\n"),
        ] {
            let mut all = lines(&["a", "bc", "odd", "d"]);
            assert_eq!(all.size(), (3, 13));
            assert_eq!(all.take(room), expected.as_bytes());
            let rest = all.take(99);
            assert_eq!(expected.len() + rest.len(), 13);
            assert_eq!(all.size(), (0, 0));
            assert!(all.take(99).is_empty());
        }
    }

    #[test]
    fn the_last_lines_are_dropped() {
        let mut all = lines(&["a", "bc", "d"]);
        all.truncate(1, 4);
        assert_eq!(all.take(99), b"{a}\n");
    }
}
