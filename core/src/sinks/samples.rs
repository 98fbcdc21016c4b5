//! A quantity over time, as `Samples` of kdissect/stats/lag.py keeps it.

/// Most slots.
const SAMPLES: usize = 64;
/// Of nanoseconds in the shortest slot.
const MIN_BITS: u32 = 20;

/// The first value, and the last one in each of at most [`SAMPLES`] slots, each with its time.
#[derive(Clone)]
pub struct Samples {
    pub count: u64,
    pub bits: u32,
    first: Option<(i64, i64)>,
    /// One per slot, in order.
    slots: Vec<(i64, i64)>,
}

impl Default for Samples {
    fn default() -> Self {
        Samples {
            count: 0,
            bits: MIN_BITS,
            first: None,
            slots: Vec::new(),
        }
    }
}

impl Samples {
    pub fn add(&mut self, time_ns: i64, value: i64) {
        let sample = (time_ns, value);
        self.count += 1;
        self.first = Some(self.first.map_or(sample, |first| first.min(sample)));
        let slot = time_ns >> self.bits;
        let bits = self.bits;
        let place = self.slots.partition_point(|known| known.0 >> bits < slot);
        match self.slots.get_mut(place) {
            Some(known) if known.0 >> bits == slot => *known = sample.max(*known),
            _ => self.slots.insert(place, sample),
        }
        while self.slots.len() > SAMPLES {
            self.bits += 1;
            let bits = self.bits;
            // Of those in the same slot the last is kept.
            self.slots.reverse();
            self.slots.dedup_by_key(|known| known.0 >> bits);
            self.slots.reverse();
        }
    }

    /// All that are kept.
    pub fn all(&self) -> Vec<(i64, i64)> {
        self.first.iter().chain(&self.slots).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_widen_and_keep_the_last_value() {
        let mut samples = Samples::default();
        for number in 0..1000 {
            samples.add(number << MIN_BITS, number);
        }
        assert_eq!(samples.count, 1000);
        assert_eq!(samples.bits, MIN_BITS + 4);
        let all = samples.all();
        assert_eq!(all.len(), 1 + 63);
        assert_eq!(all[0], (0, 0));
        assert_eq!(all[1].1, 15);
        assert_eq!(all[63].1, 999);
    }

    #[test]
    fn order_does_not_matter() {
        let (mut one, mut two) = (Samples::default(), Samples::default());
        for number in 0..500_i64 {
            one.add(number << 19, number);
            two.add((499 - number) << 19, 499 - number);
        }
        assert_eq!(one.all(), two.all());
        assert_eq!(one.bits, two.bits);
    }
}
