//! Exchanges -> rows of the records in them, beside those of other tables.

use crate::exchanges::content::Row;
use crate::kafka::tree::Decoded;
use crate::sinks::cells::RowFacts;
use crate::sinks::handed::{CarriedBatches, Handed};
use crate::sinks::records::writer::{NotedBatches, RecordForm, Writer};
use crate::sinks::shared::Droppable;
use crate::sinks::table_form::TableForm;
use crate::Odd;

/// The table of records, whose rows wait until they are joined, as those of all other tables do.
pub struct RecordTable {
    writer: Writer,
    form: TableForm,
    text: Vec<u8>,
    noted: NotedBatches,
}

impl RecordTable {
    /// Size of rows since Python took some.
    const MAX_BYTES: usize = 1024 * 1024;

    pub fn new(writer: Writer, form: TableForm) -> Self {
        RecordTable {
            writer,
            form,
            text: Vec::new(),
            noted: NotedBatches::default(),
        }
    }

    /// Adds the rows of an exchange. If anything is odd, it has no effect.
    pub fn add(
        &mut self,
        found: &RowFacts<'_>,
        (row, decoded): (&Row, &Decoded<'_>),
        carried: &mut CarriedBatches,
    ) -> Result<(), Odd> {
        if self.noted.is_full {
            return Err(Odd);
        }
        if row.record_fields(decoded) == 0 {
            carried.rows.push(0);
            return Ok(());
        }
        let (before, held) = self.form.size();
        let written = match &self.form {
            TableForm::Waiting(columns) => {
                let out = RecordForm::Columns(&mut columns.lock());
                self.writer.write_all(found, (row, decoded), carried, out)
            }
            TableForm::Lines(lines) => {
                self.text.clear();
                let out = RecordForm::Text(&mut self.text);
                let written = self.writer.write_all(found, (row, decoded), carried, out);
                lines.lock().add(&self.text);
                written
            }
            TableForm::Columns(_) => Err(Odd),
        };
        let written = match carried.has_failed() {
            true => Err(Odd), // its rows may change
            false => written,
        };
        if written.is_err() {
            self.form.truncate(before, held);
        }
        written?;
        let (rows, more) = self.form.size();
        let mut counted = (0, 0);
        for (.., place) in &mut carried.fetched {
            *place = match &self.form {
                TableForm::Lines(_) => {
                    let row_at = |place: usize, (known, row): (usize, usize)| {
                        let text = self.text.get(known..place).unwrap_or_default();
                        (place, row + text.iter().filter(|byte| **byte == b'\n').count())
                    };
                    let start = row_at(place.0, counted);
                    counted = row_at(place.1, start);
                    (start.1, counted.1)
                }
                _ => (place.0 - before, place.1 - before),
            };
        }
        carried.rows.push(rows - before);
        carried.rows_bytes += more - held;
        Ok(())
    }

    /// Notes what was added of an exchange.
    pub fn note(&mut self, carried: CarriedBatches) {
        carried.add_to(&mut self.noted.carried);
    }

    /// Whether Python must take what was made before more is.
    pub fn must_pass_on(&self) -> bool {
        self.noted
            .carried
            .iter()
            .map(|each| each.rows_bytes)
            .sum::<usize>()
            >= Self::MAX_BYTES
    }

    /// Hands over what was noted.
    pub fn flush(&mut self) -> impl Iterator<Item = Handed> + '_ {
        self.noted.flush(&self.writer)
    }
}
