//! Exchanges -> lines, rows, columns and counts.

pub mod about_template;
pub mod columns;
pub mod decimal;
pub mod quantiles;
pub mod record_lines;
pub mod samples;

#[cfg(feature = "python")]
pub mod cells;
#[cfg(feature = "python")]
pub mod connection_log;
#[cfg(feature = "python")]
pub mod facts;
#[cfg(feature = "python")]
pub mod lines;
#[cfg(feature = "python")]
pub mod page;
#[cfg(feature = "python")]
pub mod rows;
#[cfg(feature = "python")]
pub mod splitters;
#[cfg(feature = "python")]
pub mod table_rows;
#[cfg(feature = "python")]
pub mod tallies;
