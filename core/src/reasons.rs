//! Why packets and exchanges go to Python, counted for `KDISSECT_DEBUG=core`.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::Odd;

/// Why something is not on the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Of any kind.
    Unfit,
    Bug,
    // Of packets.
    Headers,
    Time,
    Order,
    Repeated,
    Acknowledgment,
    End,
    OneWay,
    Unrecognized,
    Head,
    Size,
    Api,
    Id,
    Response,
    Limit,
    Tls,
    // Of exchanges.
    Lent,
    Outcome,
    Anomaly,
    Retransmitted,
    Layout,
    Unknown,
    Followed,
    Throttled,
    Error,
    Nameless,
    Secret,
    Records,
    Piece,
    Cluster,
    Negative,
    Session,
    Group,
    Detail,
    Content,
    Condition,
}

thread_local! {
    /// Why the latest attempt was given up. It is not in `Odd`: a result with that is one or two registers, and the fast
    /// path returns many, so it would cost 8 to 10 % of `read`.
    static LATEST: Cell<Why> = const { Cell::new(Why::Unfit) };
}

impl Why {
    #[cold]
    pub fn odd(self) -> Odd {
        LATEST.set(self);
        Odd
    }

    pub fn text(self) -> &'static str {
        match self {
            Why::Unfit => "not as expected",
            Why::Bug => "a bug in the core",
            Why::Headers => "headers below TCP, or a truncated packet",
            Why::Time => "a clock set back, or an idle connection",
            Why::Order => "not the next segment",
            Why::Repeated => "retransmitted in part, or again",
            Why::Acknowledgment => "acknowledges what was not captured",
            Why::End => "the end of the connection",
            Why::OneWay => "the other direction was missing",
            Why::Unrecognized => "not recognized at once",
            Why::Head => "may begin with a message",
            Why::Size => "no size of a frame",
            Why::Api => "a request whose API and version are left to Python",
            Why::Id => "a correlation ID that does not rise",
            Why::Response => "not the response to the oldest request",
            Why::Limit => "a limit on outstanding requests",
            Why::Tls => "TLS records",
            Why::Lent => "sent before the connection was lent",
            Why::Outcome => "unanswered, or not acknowledged",
            Why::Anomaly => "an anomaly, or a response out of order",
            Why::Retransmitted => "retransmitted",
            Why::Layout => "an API and version that the output leaves to Python",
            Why::Unknown => "fields that are not known",
            Why::Followed => "bytes after a body",
            Why::Throttled => "throttled",
            Why::Error => "an error code",
            Why::Nameless => "a topic ID without a name",
            Why::Secret => "a value that may be a credential",
            Why::Records => "batches that are not plain",
            Why::Piece => "a new piece of time",
            Why::Cluster => "a cluster that is not known yet",
            Why::Negative => "a response before its request",
            Why::Session => "a fetch session that is not known",
            Why::Group => "a member or group that is not plain",
            Why::Detail => "its detail depends on what was counted before",
            Why::Content => "bodies of which too much is to be kept",
            Why::Condition => "a condition that is left to Python",
        }
    }
}

/// What went to Python, and why.
#[derive(Default)]
pub struct Reasons<K>(BTreeMap<(Why, K), u64>);

impl<K: Ord> Reasons<K> {
    /// Counts what was given up, for the latest reason. One that nobody counted may stand in for a later one.
    pub fn note(&mut self, _: Odd, of: K) {
        *self.0.entry((LATEST.replace(Why::Unfit), of)).or_default() += 1;
    }

    /// Those since the last call.
    pub fn take(&mut self) -> impl Iterator<Item = ((Why, K), u64)> {
        std::mem::take(&mut self.0).into_iter()
    }
}
