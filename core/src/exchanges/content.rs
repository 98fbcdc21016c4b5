//! Bodies -> the columns of an exchange that come from them, as kdissect/exchanges/content.py finds them.

use std::borrow::Cow;

use crate::exchanges::guarded::{Configs, Protocols};
use crate::exchanges::nodes::NodePlan;
use crate::exchanges::topic_names::TopicIds;
use crate::exchanges::touched::PartitionPlan;
use crate::exchanges::usage::Fields;
use crate::exchanges::values::{FieldPath, Given};
use crate::kafka::entries::record_count;
use crate::kafka::tree::{each, elements, name_of, Bodies, Decoded, Name, TopicNames, Value};
use crate::{Odd, Why};

const FETCH: i16 = 1;

/// The fields of a struct that name topics and partitions, and the structs in it that have such fields.
pub struct Topics {
    pub name: Option<Name>,
    pub id: Option<Name>,
    /// Arrays of names or IDs.
    pub arrays: Vec<Name>,
    /// A partition, and arrays of them; of the topic of this struct, or of one around it.
    pub partition: Option<Name>,
    pub partitions: Vec<Name>,
    pub inner: Vec<(Name, Topics)>,
}

/// Takes a topic; and one of its partitions, or None for the topic itself.
type TakeTopic<'t, 'a> = &'t mut dyn FnMut(&Cow<'a, str>, Option<i64>) -> Result<(), Odd>;

/// Paths to a name: the first that is not empty counts.
pub struct First {
    pub paths: Vec<Vec<Name>>,
    /// Only if this field has this value, or is absent and it is the second.
    pub test: Option<(Name, i64, i64)>,
}

/// The group events of an exchange.
#[derive(Clone, Copy, PartialEq)]
pub enum GroupEvents {
    /// None.
    Never,
    /// None without an error; with one, as below.
    Errors,
    /// One, if it names a group.
    Commit,
    /// Depends on the content, which Python reads.
    Others,
}

/// One version of an API.
pub struct Row {
    pub bodies: Bodies,
    /// Whether it is a Fetch of any kind.
    pub is_fetch: bool,
    /// Whether only brokers with KIP-219 have it.
    pub is_recent: bool,
    /// JSON keys, by the number of the name.
    pub keys: Vec<String>,
    pub request_topics: Option<Topics>,
    pub response_topics: Option<Topics>,
    pub group: First,
    pub transaction: First,
    /// The paths to record data.
    pub request_records: Vec<Vec<Name>>,
    pub response_records: Vec<Vec<Name>>,
    /// Of JoinGroup and SyncGroup.
    pub protocols: Option<Protocols>,
    /// If there are any.
    pub configs: Option<Configs>,
    /// The partitions in both bodies. None if they only describe a cluster, or there are none.
    pub partitions: Option<(Option<PartitionPlan>, Option<PartitionPlan>)>,
    /// Fields for other tables: the first that a message has counts.
    pub fields: Vec<Vec<Name>>,
    /// Those that are counted.
    pub counted: Fields,
    pub group_events: GroupEvents,
    /// Where brokers are named. None: nowhere.
    pub nodes: Option<NodePlan>,
    /// For a Fetch: the struct with the replica that fetches, and its ID.
    pub replica: (Name, Name),
}

impl Row {
    /// The distinct topics in wire order, the request's first. An ID without a name is odd.
    pub fn topics<'a>(
        &self,
        decoded: &'a Decoded<'_>,
        names: &dyn TopicNames,
    ) -> Result<Vec<Cow<'a, str>>, Odd> {
        let mut found: Vec<Cow<'a, str>> = Vec::new();
        let both = [
            (&self.request_topics, &decoded.request),
            (&self.response_topics, &decoded.response),
        ];
        for (topics, body) in both {
            if let Some(topics) = topics {
                topics.find(body, names, None, &mut |topic, partition| {
                    if partition.is_none() && !found.contains(topic) {
                        found.push(topic.clone());
                    }
                    Ok(())
                })?;
            }
        }
        Ok(found)
    }

    /// Number and size of the records. None if the API has none; the number is None if compression hides it.
    pub fn records(&self, decoded: &Decoded<'_>) -> Result<Option<(Option<u64>, usize)>, Odd> {
        if self.request_records.is_empty() && self.response_records.is_empty() {
            return Ok(None);
        }
        let (mut number, mut size) = (Some(0), 0);
        let both = [
            (&self.request_records, &decoded.request),
            (&self.response_records, &decoded.response),
        ];
        for (paths, body) in both {
            for path in paths {
                each(body, path, &mut |value| {
                    if let Value::Records(data) = value {
                        let more = record_count(data).map_err(|_| Why::Records.odd())?;
                        number = number.zip(more).map(|(number, more)| number + more);
                        size += data.len();
                    }
                    Ok(())
                })?;
            }
        }
        Ok(Some((number, size)))
    }

    /// How many fields contain record data.
    pub fn record_fields(&self, decoded: &Decoded<'_>) -> usize {
        let mut number = 0;
        let both = [
            (&self.request_records, &decoded.request),
            (&self.response_records, &decoded.response),
        ];
        for (paths, body) in both {
            for path in paths {
                let counted = each(body, path, &mut |value| {
                    number += usize::from(matches!(value, Value::Records(_)));
                    Ok(())
                });
                debug_assert!(counted.is_ok());
            }
        }
        number
    }

    /// Of the broker that sent this Fetch.
    pub fn replica_id(&self, decoded: &Decoded<'_>) -> Option<i64> {
        self.counted.replica_id(&decoded.request)
    }

    /// Whether a replica sent this Fetch.
    pub fn is_replication(&self, decoded: &Decoded<'_>) -> bool {
        self.replica_id(decoded).is_some()
    }

    /// The cluster that an exchange names, as kdissect/exchanges/clusters.py finds it.
    pub fn cluster<'a>(&self, api_key: i16, decoded: &Decoded<'a>) -> Option<&'a str> {
        let fields = &self.counted;
        let (request, response) = (&decoded.request, &decoded.response);
        let is_named = api_key != FETCH && !response.get(fields.error_code).is_some_and(Value::is_true);
        let mut named = [response, request].into_iter().filter(|_| is_named);
        named.find_map(|body| match body.get(fields.cluster_id) {
            Some(Value::Text(text)) if !text.is_empty() => Some(*text),
            _ => None,
        })
    }

    /// None if absent.
    pub fn throttle_time_ms(&self, decoded: &Decoded<'_>) -> Option<i64> {
        self.counted.throttle_time_ms(&decoded.response)
    }
}

impl Topics {
    /// Every topic in wire order, each followed by its partitions. `outer`: of a struct around this one.
    fn find<'a>(
        &self,
        object: &'a Value<'_>,
        names: &dyn TopicNames,
        outer: Option<&Cow<'a, str>>,
        take: TakeTopic<'_, 'a>,
    ) -> Result<(), Odd> {
        let named: Option<Cow<'a, str>> = match self.name.and_then(|name| object.get(name)) {
            Some(Value::Text(text)) if !text.is_empty() => Some((*text).into()),
            _ => match self.id.and_then(|id| object.get(id)) {
                Some(Value::Uuid(id)) => Some(name_of(id, names)?.into()),
                _ => None,
            },
        };
        if let Some(topic) = &named {
            take(topic, None)?;
        }
        for name in &self.arrays {
            for value in elements(object.get(*name)) {
                match value {
                    Value::Text("") => (),
                    Value::Text(text) => take(&(*text).into(), None)?,
                    Value::Uuid(id) => take(&name_of(id, names)?.into(), None)?,
                    _ => return Err(Odd),
                }
            }
        }
        let topic = named.as_ref().or(outer);
        if let Some(topic) = topic {
            let single = self.partition.and_then(|name| object.get(name)).into_iter();
            let arrays = self
                .partitions
                .iter()
                .flat_map(|name| elements(object.get(*name)));
            for number in single.chain(arrays) {
                match number {
                    Value::Int(number) => take(topic, Some(*number))?,
                    _ => return Err(Odd),
                }
            }
        }
        for (name, inner) in &self.inner {
            for value in elements(object.get(*name)) {
                inner.find(value, names, topic, take)?;
            }
        }
        Ok(())
    }
}

/// Where both messages of an API in one version mention topics, partitions and groups: `MentionsPlan` of
/// kdissect/exchanges/undecoded.py.
pub struct Mentions {
    pub ids: TopicIds,
    pub request_topics: Option<Topics>,
    pub response_topics: Option<Topics>,
    pub groups: First,
    /// Where the values are that conditions need; None: no version of the API has such a field.
    pub fields: Vec<Option<FieldPath>>,
    /// What its latency depends on, if that is split.
    pub pace: Option<PacePlan>,
    /// The bytes after the correlation ID of a response.
    pub tags: Vec<u8>,
}

/// What the latency of an exchange depends on.
pub struct PacePlan {
    /// Whether it is a Fetch of any kind.
    pub is_fetch: bool,
    /// See [`Row`].
    pub is_recent: bool,
    pub names: Fields,
}

/// Topic IDs in an exchange, with what stands for each.
#[derive(Default)]
struct Shown(Vec<(String, String)>);

impl TopicNames for Shown {
    fn name(&self, id: &str) -> Option<String> {
        let (_, name) = self.0.iter().find(|(known, _)| known == id)?;
        Some(name.clone())
    }

    fn learn(&self, _: &str, _: &str) -> Result<(), Odd> {
        Ok(()) // sinks do
    }
}

/// What an exchange mentions.
#[derive(Default)]
pub struct Mentioned {
    /// As shown, each once.
    pub topics: Vec<String>,
    /// The place of a topic among them, and the number of a partition.
    pub partitions: Vec<(usize, i64)>,
    /// IDs that have a name, and those that have none.
    pub named: Vec<String>,
    pub unnamed: Vec<String>,
    pub groups: Vec<String>,
    /// None: it is in the response, which was not looked at.
    pub fields: Vec<Option<Given>>,
    /// Whether it is what the request mentions, and the response may mention more.
    pub is_partial: bool,
}

impl Mentions {
    pub fn has_ids(&self) -> bool {
        !(self.ids.request.is_empty() && self.ids.response.is_empty())
    }

    pub fn are_in_response(&self) -> bool {
        let is_in_response = |path: &FieldPath| !path.of_request;
        self.response_topics.is_some()
            || !self.ids.response.is_empty()
            || self.pace.is_some()
            || self.fields.iter().flatten().any(is_in_response)
    }

    pub fn are_in_request(&self) -> bool {
        let is_in_request = |path: &FieldPath| path.of_request;
        self.request_topics.is_some()
            || !self.ids.request.is_empty()
            || !self.groups.paths.is_empty()
            || self.pace.as_ref().is_some_and(|pace| pace.is_fetch)
            || self.fields.iter().flatten().any(is_in_request)
    }

    /// What is mentioned where no body mentions anything; `is_partial`: in those that were looked at.
    pub fn nothing(&self, is_partial: bool) -> Mentioned {
        let value = |path: &Option<FieldPath>| match path {
            Some(_) if is_partial => None,
            _ => Some(Given::Absent),
        };
        Mentioned {
            fields: self.fields.iter().map(value).collect(),
            is_partial,
            ..Mentioned::default()
        }
    }

    /// Odd: Python finds it. `topic_name`: see `CommonPlan`. `is_partial`: whether the response is missing here.
    pub fn find(
        &self,
        decoded: &Decoded<'_>,
        topic_name: &dyn Fn(&str) -> Option<String>,
        is_partial: bool,
    ) -> Result<Mentioned, Odd> {
        let value = |path: &Option<FieldPath>| match path {
            Some(path) if is_partial && !path.of_request => Ok(None),
            Some(path) => path.find(decoded).map(Some),
            None => Ok(Some(Given::Absent)),
        };
        let mut found = Mentioned {
            fields: self.fields.iter().map(value).collect::<Result<_, _>>()?,
            is_partial,
            ..Mentioned::default()
        };
        let refs = self.ids.refs_in(decoded)?;
        let mut shown = Shown::default();
        for id in refs.ids {
            let is_learned = || refs.learned.iter().any(|(learned, _)| *learned == id);
            let name = topic_name(&id);
            match &name {
                Some(name) if *name == id => found.unnamed.push(id.clone()),
                None if !is_learned() => return Err(Why::Nameless.odd()),
                _ => found.named.push(id.clone()),
            }
            shown.0.extend(name.map(|name| (id, name)));
        }
        let both = [
            (&self.request_topics, &decoded.request),
            (&self.response_topics, &decoded.response),
        ];
        for (topics, body) in both {
            if let Some(topics) = topics {
                let mut latest = 0;
                topics.find(body, &shown, None, &mut |topic, partition| {
                    let is_latest =
                        |place: &usize| found.topics.get(*place).is_some_and(|known| known == topic);
                    let place = Some(latest).filter(is_latest);
                    let place = place.or_else(|| found.topics.iter().position(|known| known == topic));
                    latest = place.unwrap_or(found.topics.len());
                    match partition {
                        Some(number) => found.partitions.push((latest, number)),
                        None if place.is_none() => found.topics.push(topic.to_string()),
                        None => (),
                    }
                    Ok(())
                })?;
            }
        }
        self.groups.each(&decoded.request, &mut |group| {
            found.groups.push(group.to_owned());
        })?;
        Ok(found)
    }
}

impl First {
    pub fn find<'a>(&self, body: &Value<'a>) -> Result<Option<&'a str>, Odd> {
        let mut found = None;
        self.each(body, &mut |text| {
            found.get_or_insert(text);
        })?;
        Ok(found)
    }

    /// All that are not empty.
    fn each<'a>(&self, body: &Value<'a>, take: &mut dyn FnMut(&'a str)) -> Result<(), Odd> {
        if let Some((name, absent, expected)) = self.test {
            match body.get(name) {
                None if absent == expected => (),
                Some(Value::Int(number)) if *number == expected => (),
                _ => return Ok(()),
            }
        }
        for path in &self.paths {
            each(body, path, &mut |value| {
                match value {
                    Value::Text(text) if !text.is_empty() => take(text),
                    _ => (),
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
