//! Rows of a table -> JSON lines, as `JsonFile` in kdissect/tables/table_files.py writes them.

use crate::sinks::shared::Droppable;
use crate::Odd;

/// The lines that Python has not taken yet.
pub struct TableLines {
    /// The text before each column.
    heads: Vec<String>,
    text: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
}

impl TableLines {
    pub fn new(heads: Vec<String>) -> Self {
        TableLines {
            heads,
            text: Vec::new(),
            ends: Vec::new(),
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

    /// Takes lines: at least one, and none after the one that exceeds `room` bytes.
    pub fn take(&mut self, room: usize) -> Vec<u8> {
        let taken = self.ends.partition_point(|end| *end <= room) + 1;
        let Some(end) = self.ends.get(taken - 1).or(self.ends.last()).copied() else {
            return Vec::new();
        };
        let rest = self.text.split_off(end);
        self.ends.drain(..taken.min(self.ends.len()));
        self.ends.iter_mut().for_each(|each| *each -= end);
        std::mem::replace(&mut self.text, rest)
    }
}

impl Droppable for TableLines {
    fn size(&self) -> (usize, usize) {
        (self.ends.len(), self.text.len())
    }

    fn truncate(&mut self, rows: usize, _held: usize) {
        self.ends.truncate(rows);
        self.text.truncate(self.ends.last().copied().unwrap_or(0));
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
