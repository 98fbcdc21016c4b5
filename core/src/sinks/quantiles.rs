//! A distribution, as `Quantiles` of kdissect/stats/quantiles.py counts it.

use std::collections::BTreeMap;

/// Quantiles of so many numbers are exact.
const EXACT: usize = 256;
/// There are two to the power of this many buckets from a power of two to the next.
const BITS: u32 = 6;

#[derive(Default)]
pub struct Quantiles {
    total: i128,
    /// The smallest and the largest number.
    span: Option<(i64, i64)>,
    /// All of them, up to [`EXACT`]; otherwise none.
    numbers: Vec<i64>,
    /// Counts of more numbers.
    buckets: BTreeMap<u32, u64>,
}

/// What Python takes: total, minimum, maximum, numbers, buckets.
pub type Distribution = (i128, Option<i64>, Option<i64>, Vec<i64>, Vec<(u32, u64)>);

impl Quantiles {
    /// Adds a number; one below 0 counts as 0.
    pub fn add(&mut self, number: i64) {
        let number = number.max(0);
        self.total += i128::from(number);
        let (low, high) = self.span.unwrap_or((number, number));
        self.span = Some((low.min(number), high.max(number)));
        if self.buckets.is_empty() {
            self.numbers.push(number);
            if self.numbers.len() <= EXACT {
                return;
            }
            for number in std::mem::take(&mut self.numbers) {
                self.count(number);
            }
        } else {
            self.count(number);
        }
    }

    fn count(&mut self, number: i64) {
        *self.buckets.entry(bucket_of(number)).or_default() += 1;
    }

    pub fn counted(self) -> Distribution {
        let (low, high) = self.span.unzip();
        (
            self.total,
            low,
            high,
            self.numbers,
            self.buckets.into_iter().collect(),
        )
    }
}

/// The bucket of a number that is not negative.
fn bucket_of(number: i64) -> u32 {
    let scale = (i64::BITS - number.leading_zeros()).saturating_sub(1 + BITS);
    let part = u32::try_from(number >> scale).unwrap_or(0); // it has seven bits at most
    (scale << BITS) + part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_parts_of_powers_of_two() {
        let numbers = [0, 1, 127, 128, 129, 130, 255, 256, 259, 260, i64::MAX];
        let buckets = [0, 1, 127, 128, 128, 129, 191, 192, 192, 193, 3711];
        assert_eq!(numbers.map(bucket_of), buckets);
    }

    #[test]
    fn more_than_a_few_numbers_are_counted_in_buckets() {
        let mut few = Quantiles::default();
        let mut many = Quantiles::default();
        for number in -1..255 {
            few.add(number);
            many.add(number);
        }
        many.add(1000);
        let (total, low, high, numbers, buckets) = few.counted();
        assert_eq!((total, low, high), (254 * 255 / 2, Some(0), Some(254)));
        assert_eq!((numbers.len(), buckets.len()), (256, 0));
        let (_, _, high, numbers, buckets) = many.counted();
        assert_eq!((high, numbers.len()), (Some(1000), 0));
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 257);
        assert_eq!(buckets.first(), Some(&(0, 2)));
    }
}
