//! Exchanges -> outputs. A [`Sink`](sink::Sink) makes one kind of output of the exchanges on the fast path, by the plan
//! of its twin in kdissect/sinks; that takes what it has made, and gets the exchanges that are left.

pub mod about_template;
pub mod cells;
pub mod clock;
pub mod columns;
pub mod conditions;
pub mod connection_log;
pub mod decimal;
pub mod facts;
pub mod handed;
pub mod kept_bodies;
pub mod lines;
pub mod page;
pub mod quantiles;
pub mod record_lines;
pub mod records;
pub mod rejections;
pub mod rows;
pub mod samples;
pub mod shared;
pub mod sink;
pub mod slowest;
pub mod splitters;
pub mod table_form;
pub mod table_lines;
pub mod table_rows;
pub mod tallies;
pub mod value_tests;
pub mod whole;
