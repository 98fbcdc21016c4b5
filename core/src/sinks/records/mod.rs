//! Exchanges -> the records in them as JSON lines, CSV or between tabs, as kdissect/tables/lines.py writes them, or as
//! lines of text, as `RecordTable` in kdissect/text/table.py does:
//!
//! partitions   bodies -> the record data in them
//! batches      record data -> records
//! values       a record -> its columns
//! writer       all of it, for one exchange
//! sink, table  the output, and the rows beside those of other tables

mod batches;
mod partitions;
mod plan;
mod sink;
mod table;
mod values;
mod writer;

pub use plan::{Payloads, RecordContent, RecordFormat, RecordPlace, RecordPlan, Selects};
pub use sink::RecordWriter;
pub use table::RecordTable;
pub use writer::Writer;
