//! A decoded exchange -> what it adds to those that are alike.

use crate::exchanges::connection::{API_VERSIONS, NAME_BYTES};
use crate::exchanges::content::Row;
use crate::exchanges::fetch_sessions::{PartitionAfter, Step};
use crate::exchanges::latency::FETCH;
use crate::exchanges::touched::Touched;
use crate::exchanges::usage::{Fetcher, Fields, Read, Write};
use crate::kafka::tree::{field, Decoded, TopicNames, Value};
use crate::sinks::facts::{Answered, Handle};
use crate::sinks::handed::Member;
use crate::{Odd, Why};

const PRODUCE: i16 = 0;
const LIST_OFFSETS: i16 = 2;
const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const HEARTBEAT: i16 = 12;

/// The timestamp with which ListOffsets asks for the end of a partition.
const LATEST: i64 = -1;

/// What an exchange adds, once everything about it is known to be usual.
pub(super) enum CountedContent<'b, 'a> {
    Produce(i64, Vec<(&'b Touched<'b, 'a>, Write, Option<i64>)>),
    Fetch(Fetch<'b, 'a>),
    Heartbeat,
    Commit(Vec<(&'b Touched<'b, 'a>, i64)>),
    Offsets(Vec<(&'b Touched<'b, 'a>, Option<Offset<'b>>)>),
    Versions(Vec<(i64, i64, i64)>),
    Alike(Handle),
}

/// An offset that is reported, and the group that has committed it; None: it is the end of the partition.
type Offset<'b> = (Option<&'b str>, i64);

pub(super) struct Fetch<'b, 'a> {
    pub(super) reader: Fetcher,
    pub(super) max_wait_ms: i64,
    /// The partitions that the messages name. Once the session has been taken over, with the positions after it.
    pub(super) reads: Vec<(&'b Touched<'b, 'a>, Read)>,
    pub(super) session: Step,
}

impl Fetch<'_, '_> {
    /// The partitions that the messages name.
    pub(super) fn fetched(&self) -> impl Iterator<Item = PartitionAfter<'_>> + Clone {
        let reads = self.reads.iter();
        reads.map(|(each, read)| (&*each.topic, each.partition, &read.position, read.end))
    }

    /// Whether it is counted with others.
    pub(super) fn is_plain(&self) -> bool {
        let mut reads = self.reads.iter();
        reads.all(|(_, read)| read.is_plain && !read.position.is_odd())
    }
}

/// What an exchange adds.
pub(super) fn found<'b, 'a>(
    exchange: &Answered<'_>,
    decoded: &'b Decoded<'a>,
    row: &Row,
    touched: &'b [Touched<'b, 'a>],
    names: &dyn TopicNames,
) -> Result<CountedContent<'b, 'a>, Odd> {
    let (request, fields) = (&decoded.request, &row.counted);
    Ok(match exchange.header.api_key {
        PRODUCE => {
            let acks = field(Some(request), fields.acks)?
                .filter(|acks| *acks != 0)
                .ok_or(Odd)?;
            if request.get(fields.transactional_id).is_some_and(Value::is_true) {
                return Err(Odd);
            }
            let writes = touched.iter().map(|each| {
                let body = each.request.ok_or(Odd)?;
                let (Some(Value::Records(data)), Some(0)) = (body.get(fields.records), each.error) else {
                    return Err(Odd);
                };
                let write = Write::of(
                    data,
                    exchange.number,
                    exchange.request.end_ns,
                    exchange.latency_ns()?,
                )?;
                let base = field(each.response, fields.base_offset)?.filter(|offset| *offset >= 0);
                let records = i64::try_from(write.records).map_err(|_| Odd)?;
                let end = base
                    .map(|base| base.checked_add(records).ok_or(Odd))
                    .transpose()?;
                Ok((each, write, end))
            });
            CountedContent::Produce(acks, writes.collect::<Result<_, Odd>>()?)
        }
        FETCH => {
            let reads = touched.iter().map(|each| Ok((each, fields.read(each)?)));
            CountedContent::Fetch(Fetch {
                reader: fields.reader(request, row.is_replication(decoded))?,
                max_wait_ms: field(Some(request), fields.max_wait_ms)?.unwrap_or(0).max(0),
                reads: reads.collect::<Result<_, Odd>>()?,
                session: fields.session(decoded, touched, names)?,
            })
        }
        HEARTBEAT => CountedContent::Heartbeat,
        OFFSET_COMMIT => {
            let commits = touched.iter().map(|each| {
                let offset = field(each.request, fields.committed_offset)?;
                match (offset, each.error, each.group) {
                    (Some(offset @ 0..), Some(0), None) => Ok((each, offset)),
                    _ => Err(Odd),
                }
            });
            CountedContent::Commit(commits.collect::<Result<_, Odd>>()?)
        }
        LIST_OFFSETS => {
            let ends = touched.iter().map(|each| {
                let is_end = field(each.request, fields.timestamp)? == Some(LATEST);
                let offset = field(each.response, fields.offset)?.filter(|offset| is_end && *offset >= 0);
                Ok((each, offset.map(|offset| (None, offset))))
            });
            CountedContent::Offsets(ends.collect::<Result<_, Odd>>()?)
        }
        OFFSET_FETCH => {
            let of_all = match request.get(fields.group_id) {
                Some(Value::Text(group)) if !group.is_empty() => Some(*group),
                _ => None,
            };
            let offsets = touched.iter().map(|each| {
                let offset = field(each.response, fields.committed_offset)?.filter(|offset| *offset >= 0);
                let group = each.group.or(of_all).ok_or(Odd)?;
                Ok((each, offset.map(|offset| (Some(group), offset))))
            });
            CountedContent::Offsets(offsets.collect::<Result<_, Odd>>()?)
        }
        API_VERSIONS => CountedContent::Versions(fields.versions(&decoded.response)?),
        _ => CountedContent::Offsets(touched.iter().map(|each| (each, None)).collect()),
    })
}

/// The member that a request names, if what is counted of it depends on that.
pub(super) fn member(
    found: &CountedContent<'_, '_>,
    decoded: &Decoded<'_>,
    fields: &Fields,
) -> Result<Option<Member>, Odd> {
    if !matches!(found, CountedContent::Heartbeat | CountedContent::Commit(_)) {
        return Ok(None);
    }
    let text = |name| match decoded.request.get(name) {
        Some(Value::Text(text)) if text.len() > NAME_BYTES => Err(Why::Group.odd()),
        Some(Value::Text(text)) if !text.is_empty() => Ok(Some((*text).to_owned())),
        Some(Value::Text(_) | Value::Null) | None => Ok(None),
        Some(_) => Err(Why::Group.odd()),
    };
    let named = match decoded.request.get(fields.generation_id_or_member_epoch) {
        Some(_) => fields.generation_id_or_member_epoch,
        None => fields.generation_id,
    };
    let generation = field(Some(&decoded.request), named)?.filter(|generation| *generation >= 0);
    Ok(Some((
        text(fields.group_id)?.ok_or_else(|| Why::Group.odd())?,
        text(fields.member_id)?,
        text(fields.group_instance_id)?,
        generation,
    )))
}

/// The first group that a request names, as `content.group_id` of kdissect/exchanges has it.
pub(super) fn consumers(row: &Row, decoded: &Decoded<'_>) -> Result<Option<String>, Odd> {
    match row.group.find(&decoded.request)? {
        Some(group) if group.len() > NAME_BYTES => Err(Why::Group.odd()),
        group => Ok(group.map(str::to_owned)),
    }
}
