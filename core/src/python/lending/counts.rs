//! What was counted of connections, and why packets and exchanges were left -> the same by name, for Python.

use std::borrow::Cow;

use super::Lending;
use crate::exchanges::stage::StageCounts;

/// See `take_reasons`.
pub(super) type PyLeft = (&'static str, i16, i16, u64);

impl Lending {
    /// See `take_counts`.
    pub(super) fn counts_by_name(&mut self) -> Vec<(Cow<'static, str>, u64)> {
        let StageCounts {
            connections,
            segments_after_close,
            repeated_segments,
            retransmitted_bytes,
            closed_end,
            closed_fin,
            closed_reset,
            kafka,
            refused,
            no_server_hello,
        } = std::mem::take(&mut self.stage.counts);
        let counts = [
            ("connections", connections),
            ("segments_after_close", segments_after_close),
            ("repeated_segments", repeated_segments),
            ("retransmitted_bytes", retransmitted_bytes),
            ("closed_end", closed_end),
            ("closed_fin", closed_fin),
            ("closed_reset", closed_reset),
            ("connections: Kafka", kafka),
            ("TLS connections without a ServerHello", no_server_hello),
        ];
        let refused = refused.into_iter().map(|(protocol, count)| {
            (
                Cow::Owned(format!("connections: {}", self.answers.protocols[protocol])),
                count,
            )
        });
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts
            .map(|(name, count)| (Cow::Borrowed(name), count))
            .chain(refused)
            .collect()
    }

    /// See `take_reasons`.
    pub(super) fn reasons_by_name(&mut self) -> (Vec<(&'static str, u64)>, Vec<PyLeft>) {
        let packets = self.stage.reasons.take();
        let left = self.left.take();
        (
            packets.map(|((why, ()), count)| (why.text(), count)).collect(),
            left.map(|((why, (api_key, api_version)), count)| (why.text(), api_key, api_version, count))
                .collect(),
        )
    }
}
