//! Exchanges -> outputs. A [`Sink`](sink::Sink) makes one kind of output of the exchanges on the fast path, by the plan of its
//! twin in kdissect/sinks; that takes what it has made, and gets the exchanges that are left.

pub mod about_template;
pub mod columns;
pub mod conditions;
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
pub mod sink;
#[cfg(feature = "python")]
pub mod splitters;
#[cfg(feature = "python")]
pub mod table_rows;
#[cfg(feature = "python")]
pub mod tallies;
