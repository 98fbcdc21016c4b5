//! Times -> their text: what `Times` of kdissect/text/style.py writes.

use crate::sinks::decimal::push_digits;
use crate::sinks::facts::CommonPlan;
use crate::sinks::handed::PassedTimes;
use crate::Odd;

const SECOND_NS: i64 = 1_000_000_000;

/// What times count from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Since {
    /// 1970: they are moments.
    Epoch,
    /// The first packet.
    First(i64),
    /// The exchange before, or the one that is shown before.
    Seen,
    Shown,
}

/// `TimeFormat` of kdissect/sinks/plan.py.
#[derive(Debug, Clone, Copy)]
pub struct TimeFormat {
    /// Digits after the decimal point.
    pub digits: u32,
    pub width: usize,
    pub since: Since,
}

/// Writes times. Holds the texts around the digits of the latest second, and the times that others count from.
pub struct Clock {
    format: TimeFormat,
    latest: Option<(i64, String, String)>,
    passed: PassedTimes,
}

impl Since {
    /// `first_ns`: of the first packet.
    pub fn named(name: &str, first_ns: i64) -> Option<Self> {
        Some(match name {
            "epoch" => Since::Epoch,
            "first" => Since::First(first_ns),
            "seen" => Since::Seen,
            "shown" => Since::Shown,
            _ => return None,
        })
    }
}

impl TimeFormat {
    pub fn of_moments(digits: u32) -> Self {
        TimeFormat {
            digits,
            width: 0,
            since: Since::Epoch,
        }
    }
}

impl Clock {
    pub fn new(format: TimeFormat) -> Self {
        Clock {
            format,
            latest: None,
            passed: PassedTimes::default(),
        }
    }

    /// Of moments with this many digits after the decimal point.
    pub fn of_moments(digits: u32) -> Self {
        Clock::new(TimeFormat::of_moments(digits))
    }

    /// Writes a time, unless only Python knows what it counts from.
    pub fn write<T>(&mut self, common: &CommonPlan<T>, time_ns: i64, out: &mut String) -> Result<(), Odd> {
        let origin_ns = match self.format.since {
            Since::Epoch => return self.write_moment(common, time_ns, out),
            Since::First(ns) => Some(ns),
            Since::Seen => self.passed.seen_ns,
            Since::Shown => self.passed.shown_ns,
        };
        let Some(origin_ns) = origin_ns else {
            return Ok(());
        };
        let ns = time_ns.checked_sub(origin_ns).ok_or(Odd)?;
        let (start, second) = (out.len(), SECOND_NS.unsigned_abs());
        if ns < 0 {
            out.push('-');
        }
        push_digits(out, ns.unsigned_abs() / second, 1);
        self.write_fraction(ns.unsigned_abs() % second, out)?;
        let missing = self.format.width.saturating_sub(out.len() - start);
        out.insert_str(start, &" ".repeat(missing));
        Ok(())
    }

    fn write_moment<T>(&mut self, common: &CommonPlan<T>, time_ns: i64, out: &mut String) -> Result<(), Odd> {
        let (second, rest) = (time_ns.div_euclid(SECOND_NS), time_ns.rem_euclid(SECOND_NS));
        if self.latest.as_ref().is_none_or(|known| known.0 != second) {
            let (before, after) = (common.around)(second)?;
            self.latest = Some((second, before, after));
        }
        let (_, before, after) = self.latest.as_ref().ok_or(Odd)?;
        out.push_str(before);
        self.write_fraction(rest.unsigned_abs(), out)?;
        out.push_str(after);
        Ok(())
    }

    fn write_fraction(&self, ns: u64, out: &mut String) -> Result<(), Odd> {
        let left_out = 9_u32.checked_sub(self.format.digits).ok_or(Odd)?;
        out.push('.');
        push_digits(out, ns / 10_u64.pow(left_out), self.format.digits as usize);
        Ok(())
    }

    /// An exchange has passed; its time, if it is shown, was the last that was written.
    pub fn pass(&mut self, time_ns: i64, is_shown: bool) {
        let passed = &mut self.passed;
        let is_unwritten = match self.format.since {
            Since::Epoch | Since::First(_) => return,
            Since::Seen => passed.seen_ns.is_none(),
            Since::Shown => passed.shown_ns.is_none(),
        };
        if is_shown {
            passed.unwritten_ns = passed.unwritten_ns.or(Some(time_ns).filter(|_| is_unwritten));
            passed.shown_ns = Some(time_ns);
        }
        passed.seen_ns = Some(time_ns);
    }

    /// Returns what Python must know to write the next times, if any has passed since.
    pub fn flush(&mut self) -> Option<PassedTimes> {
        let passed = std::mem::take(&mut self.passed);
        passed.seen_ns.is_some().then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common() -> CommonPlan<()> {
        CommonPlan {
            shared: Box::new(|_| Err(Odd)),
            api: Box::new(|_, _| None),
            error: Box::new(|_| Err(Odd)),
            topic_name: Box::new(|_, _| None),
            learn_name: Box::new(|_, _| Err(Odd)),
            around: Box::new(|second| Ok((second.to_string(), "Z".to_owned()))),
            budget: 0,
            leaves_flaws: false,
        }
    }

    fn texts(since: Since, times: &[(i64, bool)]) -> (Vec<String>, Option<PassedTimes>) {
        let (digits, width) = (3, 8);
        let mut clock = Clock::new(TimeFormat { digits, width, since });
        let texts = times.iter().map(|&(time_ns, is_shown)| {
            let mut text = String::new();
            clock.write(&common(), time_ns, &mut text).unwrap();
            clock.pass(time_ns, is_shown);
            text
        });
        (texts.collect(), clock.flush())
    }

    #[test]
    fn times_count_from_what_is_known_here() {
        let times = [
            (2_500_999_999, false),
            (1_250_000_000, true),
            (1_250_000_000, true),
        ];
        let passed = |unwritten_ns| {
            Some(PassedTimes {
                unwritten_ns,
                shown_ns: Some(1_250_000_000),
                seen_ns: Some(1_250_000_000),
            })
        };
        for (since, expected, handed) in [
            (Since::Epoch, ["2.500Z", "1.250Z", "1.250Z"], None),
            (
                Since::First(1_500_000_000),
                ["   1.000", "  -0.250", "  -0.250"],
                None,
            ),
            (Since::Seen, ["", "  -1.250", "   0.000"], passed(None)),
            (Since::Shown, ["", "", "   0.000"], passed(Some(1_250_000_000))),
        ] {
            let (found, flushed) = texts(since, &times);
            assert_eq!((found, flushed), (expected.map(str::to_owned).to_vec(), handed));
        }
    }

    #[test]
    fn what_is_not_shown_is_not_written() {
        let (_, passed) = texts(Since::Seen, &[(5, false)]);
        let expected = PassedTimes {
            unwritten_ns: None,
            shown_ns: None,
            seen_ns: Some(5),
        };
        assert_eq!(passed, Some(expected));
        assert_eq!(texts(Since::Shown, &[]).1, None);
    }
}
