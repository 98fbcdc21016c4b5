//! Tests of values that an expression names in an exchange. Holds what Python says of some values.

use std::collections::HashMap;

use crate::exchanges::values::Given;
use crate::Odd;

/// What is kept at a time of what Python says, and the bytes of the largest values.
const VERDICTS: usize = 4096;
const VERDICT_BYTES: usize = 512;

/// A number of an exchange.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    Number,
    Packet,
    TimeNs,
    CorrelationId,
    LatencyNs,
    LatencyUs,
    TotalUs,
    RequestTransferUs,
    ResponseTransferUs,
    RequestBytes,
    ResponseBytes,
    /// One of `LatencyParts`.
    Part(usize),
    ThinkUs,
}

/// What the bodies of an exchange mention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mention {
    /// Topics as shown, and the IDs of those that have a name.
    Topic,
    Topics,
    Partition,
    Group,
    /// The first group.
    GroupId,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    Number(Number),
    Mention(Mention),
    /// A place among `MentionsPlan.fields` of kdissect/exchanges/undecoded.py.
    Field(usize),
}

/// From values to the result.
pub type ClassifyValues = Box<dyn Fn(&[Given]) -> Result<bool, Odd> + Send + Sync>;

/// A test of some values.
pub struct ValueTest {
    pub sources: Vec<Source>,
    /// Of a single value: whether any number in it is in these ranges. None: Python says it.
    ranges: Option<Vec<(i64, i64)>>,
    classify: ClassifyValues,
    known: HashMap<Vec<Given>, bool>,
}

impl Number {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "number" => Number::Number,
            "packet" => Number::Packet,
            "time_ns" => Number::TimeNs,
            "correlation_id" => Number::CorrelationId,
            "latency_ns" => Number::LatencyNs,
            "latency_us" => Number::LatencyUs,
            "total_us" => Number::TotalUs,
            "request_transfer_us" => Number::RequestTransferUs,
            "response_transfer_us" => Number::ResponseTransferUs,
            "request_bytes" => Number::RequestBytes,
            "response_bytes" => Number::ResponseBytes,
            "queued_us" => Number::Part(0),
            "throttled_us" => Number::Part(1),
            "network_us" => Number::Part(2),
            "wait_us" => Number::Part(3),
            "service_us" => Number::Part(4),
            "think_us" => Number::ThinkUs,
            _ => return None,
        })
    }
}

impl Mention {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "topic" => Mention::Topic,
            "topics" => Mention::Topics,
            "partition" => Mention::Partition,
            "group" => Mention::Group,
            "group_id" => Mention::GroupId,
            _ => return None,
        })
    }
}

impl ValueTest {
    pub fn new(sources: Vec<Source>, ranges: Option<Vec<(i64, i64)>>, classify: ClassifyValues) -> Self {
        ValueTest {
            sources,
            ranges,
            classify,
            known: HashMap::new(),
        }
    }

    /// `values`: in order of the sources.
    pub fn is_true(&mut self, values: Vec<Given>) -> Result<bool, Odd> {
        if let (Some(ranges), [value]) = (&self.ranges, &values[..]) {
            return Ok(value.is_within(ranges));
        }
        if let Some(known) = self.known.get(&values) {
            return Ok(*known);
        }
        let is_true = (self.classify)(&values)?;
        if values.iter().map(Given::size).sum::<usize>() <= VERDICT_BYTES {
            if self.known.len() >= VERDICTS {
                self.known.clear();
            }
            self.known.insert(values, is_true);
        }
        Ok(is_true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    #[test]
    fn python_is_called_once_for_each_value_that_is_small() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let classify: ClassifyValues = Box::new(move |values| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(values == [Given::Number(5)])
        });
        let mut test = ValueTest::new(vec![Source::Field(0)], None, classify);
        for number in [5, 5, 6, 5, 6] {
            assert_eq!(test.is_true(vec![Given::Number(number)]), Ok(number == 5));
        }
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let long = || vec![Given::Text("x".repeat(VERDICT_BYTES))];
        assert_eq!(
            [test.is_true(long()), test.is_true(long())],
            [Ok(false), Ok(false)]
        );
        assert_eq!(calls.load(Ordering::Relaxed), 4);
        for number in 0..2 * VERDICTS {
            test.is_true(vec![Given::Number(number as i64)]).unwrap();
        }
        assert!(test.known.len() <= VERDICTS);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let mut test = ValueTest::new(vec![Source::Field(0)], None, Box::new(|_| Err(Odd)));
        assert_eq!(test.is_true(vec![Given::Absent]), Err(Odd));
        assert!(test.known.is_empty());
        let ranges = Some(vec![(1, 2)]);
        let mut test = ValueTest::new(vec![Source::Field(0)], ranges, Box::new(|_| Err(Odd)));
        assert_eq!(test.is_true(vec![Given::Number(2)]), Ok(true));
    }
}
