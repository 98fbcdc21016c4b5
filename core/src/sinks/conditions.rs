//! Which exchanges are selected, as far as their numbers decide it: `Conditions` of kdissect/sinks/plan.py.

use std::ops::Range;

use crate::exchanges::connection::Frame;
use crate::Odd;

const SIZE_BYTES: usize = 4;
const PRODUCE: i16 = 0;

pub struct FrameConditions {
    /// Whether answered exchanges match, and those that expect no response.
    pub kinds: (bool, bool),
    pub times_ns: Range<i64>,
    /// Whether these are times of records; otherwise they are those of requests.
    pub of_records: bool,
    pub slower_than_ns: Option<i64>,
    /// One of the frames, with its size.
    pub bigger_than_bytes: Option<usize>,
    /// Only exchanges with errors in the response match, and they are left to Python.
    pub needs_error: bool,
}

impl FrameConditions {
    /// When an exchange was seen, as `record_time_ns` in kdissect/exchanges/content.py if `of_records`.
    pub fn time_ns(&self, api_key: i16, request: &Frame, response: Option<&Frame>) -> i64 {
        match response {
            Some(response) if self.of_records && api_key != PRODUCE => response.end_ns,
            _ => request.end_ns,
        }
    }

    /// Whether an exchange of that time matches. `response`: None if it expects none.
    pub fn match_frames(&self, time_ns: i64, request: &Frame, response: Option<&Frame>) -> Result<bool, Odd> {
        let (is_answered, is_unacknowledged) = self.kinds;
        let is_kind = if response.is_some() {
            is_answered
        } else {
            is_unacknowledged
        };
        let is_slower = match (self.slower_than_ns, response) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(least_ns), Some(response)) => {
                response.start_ns.checked_sub(request.end_ns).ok_or(Odd)? > least_ns
            }
        };
        let is_bigger = self.bigger_than_bytes.is_none_or(|least| {
            let is_bigger = |frame: &Frame| frame.size.saturating_add(SIZE_BYTES) > least;
            is_bigger(request) || response.is_some_and(is_bigger)
        });
        Ok(is_kind && is_slower && is_bigger && self.times_ns.contains(&time_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(size: usize, start_ns: i64, end_ns: i64) -> Frame {
        Frame {
            data: Vec::new(),
            size,
            packet: 1,
            interface: 0,
            start_ns,
            end_ns,
        }
    }

    const ALL: FrameConditions = FrameConditions {
        kinds: (true, true),
        times_ns: i64::MIN..i64::MAX,
        of_records: false,
        slower_than_ns: None,
        bigger_than_bytes: None,
        needs_error: false,
    };

    #[test]
    fn records_have_the_time_of_the_message_that_carries_them() {
        let (request, response) = (frame(10, 90, 100), frame(20, 150, 160));
        for (of_records, expected) in [(false, [100, 100]), (true, [100, 160])] {
            let conditions = FrameConditions { of_records, ..ALL };
            let time_ns = |api_key| conditions.time_ns(api_key, &request, Some(&response));
            assert_eq!([PRODUCE, 1].map(time_ns), expected);
            assert_eq!(conditions.time_ns(1, &request, None), 100);
        }
    }

    #[test]
    fn bounds_are_those_of_python() {
        let (request, response) = (frame(10, 90, 100), frame(20, 150, 160));
        let of = |conditions: FrameConditions| {
            [Some(&response), None].map(|response| {
                let time_ns = conditions.time_ns(PRODUCE, &request, response);
                conditions.match_frames(time_ns, &request, response).unwrap()
            })
        };
        assert_eq!(of(ALL), [true, true]);
        for (kinds, expected) in [((true, false), [true, false]), ((false, true), [false, true])] {
            assert_eq!(of(FrameConditions { kinds, ..ALL }), expected);
        }
        for (times_ns, is_inside) in [(100..101, true), (101..200, false), (0..100, false)] {
            assert_eq!(of(FrameConditions { times_ns, ..ALL }), [is_inside; 2]);
        }
        for (ns, is_slower) in [(49, true), (50, false)] {
            let slower_than_ns = Some(ns);
            assert_eq!(
                of(FrameConditions {
                    slower_than_ns,
                    ..ALL
                }),
                [is_slower, false]
            );
        }
        for (bytes, expected) in [(13, [true, true]), (14, [true, false]), (24, [false, false])] {
            let bigger_than_bytes = Some(bytes);
            assert_eq!(
                of(FrameConditions {
                    bigger_than_bytes,
                    ..ALL
                }),
                expected
            );
        }
    }

    #[test]
    fn a_latency_that_no_number_holds_is_odd() {
        let (request, response) = (frame(1, 0, i64::MIN), frame(1, i64::MAX, i64::MAX));
        let conditions = FrameConditions {
            slower_than_ns: Some(0),
            ..ALL
        };
        assert_eq!(conditions.match_frames(0, &request, Some(&response)), Err(Odd));
    }
}
