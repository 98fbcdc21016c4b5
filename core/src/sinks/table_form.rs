//! Where the rows of a table are until Python takes them: columns, or text.

use crate::sinks::columns::{Columns, WaitingColumns};
use crate::sinks::shared::{Droppable, Shared};
use crate::sinks::table_lines::TableLines;

/// The form of a table's rows.
#[derive(Clone)]
pub enum TableForm {
    Columns(Shared<Columns>),
    Waiting(Shared<WaitingColumns>),
    Lines(Shared<TableLines>),
}

impl Droppable for TableForm {
    fn size(&self) -> (usize, usize) {
        match self {
            TableForm::Columns(columns) => columns.lock().size(),
            TableForm::Waiting(columns) => columns.lock().size(),
            TableForm::Lines(lines) => lines.lock().size(),
        }
    }

    fn truncate(&mut self, rows: usize, held: usize) {
        match self {
            TableForm::Columns(columns) => columns.lock().truncate(rows, held),
            TableForm::Waiting(columns) => columns.lock().truncate(rows, held),
            TableForm::Lines(lines) => lines.lock().truncate(rows, held),
        }
    }
}
