//! Exchanges -> the text of the records in them.

use std::sync::Arc;

use crate::exchanges::content::Row;
use crate::kafka::tree::Decoded;
use crate::sinks::cells::RowFacts;
use crate::sinks::conditions::NameTest;
use crate::sinks::facts::{Answered, Constant, Constants, Known, KnownApis};
use crate::sinks::handed::{CarriedBatches, Handed};
use crate::sinks::records::plan::RecordPlan;
use crate::sinks::records::writer::{NotedBatches, RecordForm, Writer};
use crate::sinks::sink::Sink;
use crate::Odd;

const PRODUCE: i16 = 0;

/// Writes records.
pub struct RecordWriter {
    writer: Writer,
    apis: KnownApis<Arc<Row>>,
    noted: NotedBatches,
}

impl RecordWriter {
    /// `partitions`: which are selected; None: all are.
    pub fn new(plan: RecordPlan, partitions: Option<NameTest>) -> Self {
        RecordWriter {
            writer: Writer::new(plan, partitions),
            apis: KnownApis::default(),
            noted: NotedBatches::default(),
        }
    }
}

impl CarriedBatches {
    /// Of an exchange, without its batches. `start`: of its text.
    pub fn of(exchange: &Answered<'_>, row: &Row, decoded: &Decoded<'_>, start: usize) -> Result<Self, Odd> {
        let (request, response) = (exchange.request, exchange.response);
        let [of_request, of_response] = decoded.costs;
        // The request of a Produce is decoded when it is sent.
        let cost = match exchange.header.api_key {
            PRODUCE => of_response,
            _ => of_request + of_response,
        };
        let time_ns = match row.is_fetch {
            true => response.end_ns,
            false => request.end_ns,
        };
        let held = i64::try_from(request.data.len() + response.data.len()).map_err(|_| Odd)?;
        Ok(CarriedBatches {
            info: exchange.known.info()?.clone(),
            number: exchange.number,
            exchanges: 1,
            text: (start, start),
            rows: Vec::new(),
            rows_bytes: 0,
            completed_ns: response.end_ns,
            time_ns,
            bytes: held + cost,
            topic_ids: Vec::new(),
            produced: Vec::new(),
            fetched: Vec::new(),
            whole: None,
        })
    }

    /// Whether there are batches that were rejected, and may have been stored all the same.
    pub fn has_failed(&self) -> bool {
        self.produced.iter().any(|(_, numbers)| numbers.is_some())
    }
}

impl Sink for RecordWriter {
    fn feed(
        &mut self,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let writer = &mut self.writer;
        let (row, tags, of_api) = self.apis.get(&writer.plan.common, exchange.header)?;
        let (request, response) = (exchange.request, exchange.response);
        let decoded = exchange.decoded(&row.bodies, tags, writer.plan.common.budget)?;
        decoded.check()?;
        exchange.check_errors(!decoded.errors.is_empty())?;
        let start = out.len();
        let client_id = exchange.header.raw_client_id(request).map(std::str::from_utf8);
        let client_id = client_id.transpose().map_err(|_| Odd)?;
        let mut carried = CarriedBatches::of(exchange, row, &decoded, start)?;
        if row.bodies.hold_messages {
            let [of_request, of_response] = decoded.costs;
            let all = (writer.plan.open_messages)(exchange)?;
            carried.bytes += all - of_request - of_response;
        }
        if row.record_fields(&decoded) > 0 {
            if self.noted.is_full {
                return Err(Odd);
            }
            let capture = writer.plan.captures.of(exchange.interface)?;
            let facts = RowFacts::of(exchange, row, shared, of_api, &capture, client_id);
            writer.write_all(&facts, (row, &decoded), &mut carried, RecordForm::Text(out))?;
            // Offsets that are learned later may select other records.
            let may_change = exchange.is_selected && carried.has_failed();
            if may_change && writer.plan.has_room.is_some() {
                carried.whole = Some((writer.plan.whole)(exchange)?);
            }
        }
        let common = &writer.plan.common;
        row.bodies.learn(&decoded, &common.topics(response.end_ns))?;
        if let Some(cluster) = row.cluster(exchange.header.api_key, &decoded) {
            if (writer.plan.learn)(exchange.known.info()?, cluster)? {
                exchange.known.renew();
            }
        }
        // From here on nothing may be odd.
        carried.text.1 = out.len();
        if writer.plan.has_room.is_some() {
            carried.add_to(&mut self.noted.carried);
        }
        Ok(())
    }

    fn shared(&self, known: &dyn Known) -> Result<Constants, Odd> {
        (self.writer.plan.common.shared)(known)
    }

    fn has_parts(&self) -> bool {
        false
    }

    fn flush(&mut self, to: &mut Vec<Handed>) {
        to.extend(self.noted.flush(&self.writer));
    }
}
