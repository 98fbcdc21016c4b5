//! Bodies and templates -> what a line says about an exchange: what a function does that
//! kdissect/text/about_template.py generates.
//!
//! No text is written that a terminal could take for anything but text: whatever is not printable ASCII is
//! odd, and so is a topic ID without a name.

use std::fmt::Write;

use crate::tree::{record_count, Bodies, Decoded, Name, TopicNames, Value, NO_ID};
use crate::Odd;

/// Names listed before the rest is only counted, as in phrases.py.
const NAMES: usize = 3;
const TOPIC_NAMES: [Name; 3] = [0, 1, 2];
const TOPIC_ID: Name = 3;
const PARTITION_NUMBERS: [Name; 4] = [4, 5, 6, 7];
const CONFIGS: Name = 8;
const RECORDS: Name = 9;

/// Alternatives, which consist of clauses.
pub type Template = Vec<Vec<Clause>>;

pub struct Clause {
    pub words: Vec<Word>,
    pub test: Option<Test>,
}

/// What stands between the blanks around templates.
pub enum Word {
    Text(Vec<Piece>),
    Template(Template),
}

pub enum Piece {
    Text(String),
    Placeholder { value: Expression, raw: bool },
}

pub struct Test {
    pub kind: TestKind,
    pub value: Expression,
    pub number: i64,
}

pub enum TestKind {
    True,
    One,
    Several,
    Null,
    Empty,
    Decoded,
    Equal,
    Less,
    Greater,
}

pub struct Path {
    pub of_request: bool,
    pub names: Vec<Name>,
    /// Every array on the way must have exactly one element.
    pub only: bool,
}

pub type Enumerated = Vec<(i64, String)>;

pub enum Expression {
    Number(i64),
    Path(Path),
    Either(Vec<Expression>),
    Unless(Box<(Expression, Expression)>),
    Each(Path, Template),
    Topics(Box<Expression>),
    TopicsWithRecords(Box<Expression>),
    Records(Box<Expression>),
    Names(Box<Expression>),
    List(Box<Expression>, Option<Noun>),
    Count(Box<Expression>, String),
    Size(Box<Expression>),
    Enum(Box<Expression>, Enumerated),
    OffsetTime(Box<Expression>, Enumerated),
    Milliseconds(Box<Expression>),
}

pub enum Noun {
    Text(String),
    Value(Box<Expression>),
}

/// An expression's value: in a body, or gathered from there.
enum Found<'b, 'a> {
    Nothing,
    Number(i64),
    One(&'b Value<'a>),
    Many(Vec<&'b Value<'a>>),
}

impl Found<'_, '_> {
    fn is_true(&self) -> bool {
        match self {
            Found::Nothing => false,
            Found::Number(number) => *number != 0,
            Found::One(value) => value.is_true(),
            Found::Many(values) => !values.is_empty(),
        }
    }

    fn number(&self) -> Option<i64> {
        match self {
            Found::Number(number) => Some(*number),
            Found::One(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }
}

impl<'b, 'a> Found<'b, 'a> {
    /// The elements of an array, none if it is null or absent.
    fn elements(self) -> Result<Vec<&'b Value<'a>>, Odd> {
        match self {
            Found::Nothing => Ok(Vec::new()),
            Found::One(Value::List(values)) => Ok(values.iter().collect()),
            Found::Many(values) => Ok(values),
            _ => Err(Odd),
        }
    }
}

/// One version of an API.
pub struct Line {
    pub bodies: Bodies,
    pub request_template: Template,
    pub response_template: Template,
}

impl Line {
    /// Writes the text about an exchange. If anything is odd, nothing is written. Returns the errors in the
    /// response, and whether bytes follow a body.
    ///
    /// `request` and `response` are bodies, without headers; `budget` is the memory for both once decoded.
    /// `follow` takes them when nothing about them is odd, unless it is for what they are about.
    pub fn write(
        &self,
        request: &[u8],
        response: Option<&[u8]>,
        budget: i64,
        topics: &dyn TopicNames,
        follow: &mut dyn FnMut(&Decoded<'_>) -> Result<(), Odd>,
        out: &mut String,
    ) -> Result<(Vec<i64>, bool), Odd> {
        let start = out.len();
        let written = self.try_write(request, response, budget, topics, follow, out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn try_write(
        &self,
        request: &[u8],
        response: Option<&[u8]>,
        budget: i64,
        topics: &dyn TopicNames,
        follow: &mut dyn FnMut(&Decoded<'_>) -> Result<(), Odd>,
        out: &mut String,
    ) -> Result<(Vec<i64>, bool), Odd> {
        let decoded = self.bodies.decoded(request, response, budget)?;
        let describing = Describing {
            request: &decoded.request,
            topics,
        };
        let start = out.len();
        let has_request = describing.template(&self.request_template, &decoded.request, out)?;
        let end = out.len();
        out.push_str(if has_request { " -> " } else { "-> " });
        if !describing.template(&self.response_template, &decoded.response, out)? {
            out.truncate(end);
        } else if out[start..].starts_with(' ') {
            return Err(Odd); // Python strips it
        }
        follow(&decoded)?;
        self.bodies.learn(&decoded, topics)?;
        Ok((decoded.errors, decoded.is_followed))
    }
}

struct Describing<'b, 'a> {
    request: &'b Value<'a>,
    topics: &'b dyn TopicNames,
}

impl<'b, 'a> Describing<'b, 'a> {
    /// Writes the first alternative that is not empty. False: there is none. So do the others below.
    fn template(&self, template: &Template, scope: &'b Value<'a>, out: &mut String) -> Result<bool, Odd> {
        let start = out.len();
        for clauses in template {
            for clause in clauses {
                let before = out.len();
                if before > start {
                    out.push_str(", ");
                }
                if !self.clause(clause, scope, out)? {
                    out.truncate(before);
                }
            }
            if out.len() > start {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn clause(&self, clause: &Clause, scope: &'b Value<'a>, out: &mut String) -> Result<bool, Odd> {
        if let Some(test) = &clause.test {
            if !self.test(test, scope)? {
                return Ok(false);
            }
        }
        let start = out.len();
        for word in &clause.words {
            let before = out.len();
            if before > start {
                out.push(' ');
            }
            let after = out.len();
            match word {
                Word::Template(template) => {
                    self.template(template, scope, out)?;
                }
                Word::Text(pieces) => {
                    for piece in pieces {
                        match piece {
                            Piece::Text(text) => out.push_str(text),
                            Piece::Placeholder { value, raw } => {
                                if !self.placeholder(value, *raw, scope, out)? {
                                    return Ok(false);
                                }
                            }
                        }
                    }
                }
            }
            if out.len() == after {
                out.truncate(before);
            }
        }
        Ok(out.len() > start)
    }

    fn test(&self, test: &Test, scope: &'b Value<'a>) -> Result<bool, Odd> {
        if let (TestKind::Null | TestKind::Empty, Expression::Path(path)) = (&test.kind, &test.value) {
            let value = path.names.first().and_then(|name| scope.get(*name));
            return Ok(match (&test.kind, value) {
                (TestKind::Null, Some(Value::Null)) => true,
                (TestKind::Empty, Some(Value::List(values))) => values.is_empty(),
                _ => false,
            });
        }
        let found = self.find(&test.value, scope)?;
        Ok(match test.kind {
            TestKind::True => found.is_true(),
            TestKind::One => found.elements()?.len() == 1,
            TestKind::Several => found.elements()?.len() > 1,
            TestKind::Decoded => matches!(found, Found::One(Value::Embedded(_))),
            TestKind::Equal => found.number() == Some(test.number),
            TestKind::Less => found.number().is_some_and(|number| number < test.number),
            TestKind::Greater => found.number().is_some_and(|number| number > test.number),
            TestKind::Null | TestKind::Empty => return Err(Odd),
        })
    }

    // Values

    fn find(&self, value: &Expression, scope: &'b Value<'a>) -> Result<Found<'b, 'a>, Odd> {
        match value {
            Expression::Number(number) => Ok(Found::Number(*number)),
            Expression::Path(path) => self.path(path, scope),
            Expression::Either(values) => {
                let mut found = Found::Nothing;
                for value in values {
                    found = self.find(value, scope)?;
                    if found.is_true() || found.number().is_some() {
                        break;
                    }
                }
                Ok(found)
            }
            _ => Err(Odd),
        }
    }

    fn path(&self, path: &Path, scope: &'b Value<'a>) -> Result<Found<'b, 'a>, Odd> {
        let mut found = Found::One(if path.of_request { self.request } else { scope });
        for &name in &path.names {
            let elements: Vec<&'b Value<'a>> = match found {
                Found::One(value @ (Value::Struct(_) | Value::Embedded(_))) => {
                    found = value.get(name).map_or(Found::Nothing, Found::One);
                    continue;
                }
                Found::One(Value::List(values)) if path.only => {
                    found = match values.as_slice() {
                        [value] => value.get(name).map_or(Found::Nothing, Found::One),
                        _ => Found::Nothing,
                    };
                    continue;
                }
                Found::One(Value::Null | Value::Bytes(_)) | Found::Nothing => return Ok(Found::Nothing),
                other => other.elements()?,
            };
            let mut inner = Vec::new();
            for element in elements {
                match element.get(name) {
                    Some(Value::List(values)) => inner.extend(values),
                    Some(Value::Null) | None => (),
                    Some(value) => inner.push(value),
                }
            }
            found = Found::Many(inner);
        }
        Ok(match found {
            Found::One(Value::Null) => Found::Nothing,
            other => other,
        })
    }

    // Functions

    fn placeholder(
        &self,
        value: &Expression,
        raw: bool,
        scope: &'b Value<'a>,
        out: &mut String,
    ) -> Result<bool, Odd> {
        let start = out.len();
        match value {
            Expression::Number(_) | Expression::Path(_) | Expression::Either(_) => {
                return match self.find(value, scope)? {
                    Found::Nothing => Ok(false),
                    Found::Number(number) | Found::One(&Value::Int(number)) => {
                        put(out, number);
                        Ok(raw || number >= 0)
                    }
                    Found::One(value) => {
                        scalar(value, out)?;
                        Ok(raw || (out.len() > start && !matches!(value, Value::Uuid(id) if *id == NO_ID)))
                    }
                    Found::Many(_) => Err(Odd),
                };
            }
            Expression::Unless(pair) => {
                let mut other = String::new();
                self.placeholder(&pair.1, true, scope, &mut other)?;
                return Ok(self.placeholder(&pair.0, raw, scope, out)? && out[start..] != other);
            }
            Expression::Each(path, template) => {
                let elements = self.path(path, scope)?.elements()?;
                listed(&elements, "", out, |element, out| {
                    self.template(template, element, out).map(|_| ())
                })?;
            }
            Expression::Topics(value) => {
                let topics = self.find(value, scope)?.elements()?;
                self.topics(&topics, false, out)?;
            }
            Expression::TopicsWithRecords(value) => {
                let mut topics = self.find(value, scope)?.elements()?;
                topics.retain(|topic| array_of(topic).iter().any(|each| !records_of(each).is_empty()));
                self.topics(&topics, true, out)?;
            }
            Expression::Records(value) => match self.find(value, scope)? {
                Found::Nothing => (),
                found => records(&found.elements()?, out)?,
            },
            Expression::Names(value) => {
                let topics = self.find(value, scope)?.elements()?;
                listed(&topics, "", out, |topic, out| self.topic_name(topic, out))?;
            }
            Expression::List(value, noun) => {
                let names = match self.find(value, scope)? {
                    Found::One(value @ Value::Text(_)) => vec![value],
                    found => found.elements()?,
                };
                let mut label = String::new();
                match noun {
                    Some(Noun::Text(text)) => label.push_str(text),
                    Some(Noun::Value(value)) => _ = self.placeholder(value, false, scope, &mut label)?,
                    None => (),
                }
                listed(&names, &label, out, |name, out| scalar(name, out))?;
            }
            Expression::Count(value, noun) => match self.find(value, scope)? {
                Found::Nothing => (),
                found => match found.number() {
                    Some(number) if number < 0 => (),
                    Some(number) => many(number as u64, noun, out),
                    None => many(found.elements()?.len() as u64, noun, out),
                },
            },
            Expression::Size(value) => match self.find(value, scope)? {
                Found::Nothing => (),
                Found::One(Value::Bytes(bytes) | Value::Records(bytes)) => size(bytes.len(), out),
                _ => return Err(Odd),
            },
            Expression::Enum(value, names) => {
                if let Some(number) = self.find(value, scope)?.number() {
                    enumerated(number, names, out);
                }
            }
            Expression::OffsetTime(value, names) => {
                let timestamps = self.find(value, scope)?.elements()?;
                let mut numbers = timestamps.iter().map(|each| Found::One(each).number());
                if let Some(first) = numbers.next() {
                    let first = first.ok_or(Odd)?;
                    if numbers.all(|number| number == Some(first)) {
                        if first >= 0 {
                            return Err(Odd); // a date is left to Python
                        }
                        enumerated(first, names, out);
                    }
                }
            }
            Expression::Milliseconds(value) => {
                if let Some(number) = self.find(value, scope)?.number() {
                    milliseconds(number, out);
                }
            }
        }
        Ok(out.len() > start)
    }

    /// Topics with their partitions: all, or those with records.
    fn topics(&self, topics: &[&'b Value<'a>], with_records: bool, out: &mut String) -> Result<(), Odd> {
        if topics
            .first()
            .is_some_and(|topic| topic.get(PARTITION_NUMBERS[0]).is_some())
        {
            return Err(Odd); // old controllers repeat the topic for each partition
        }
        for (place, topic) in topics.iter().take(NAMES).enumerate() {
            if place > 0 {
                out.push_str(", ");
            }
            self.topic_name(topic, out)?;
            let partitions = array_of(topic);
            let is_shown = |each: &&Value| !with_records || !records_of(each).is_empty();
            let count = partitions.iter().filter(is_shown).count();
            if count > NAMES {
                out.push_str(" (");
                many(count as u64, "partition", out);
                out.push(')');
                continue;
            }
            let key = partitions.first().and_then(|first| {
                PARTITION_NUMBERS
                    .into_iter()
                    .find(|name| first.get(*name).is_some())
            });
            for (place, partition) in partitions.iter().filter(is_shown).enumerate() {
                out.push(if place > 0 { ',' } else { '-' });
                let number = key.map_or(Some(partition), |key| partition.get(key)).ok_or(Odd)?;
                put(out, Found::One(number).number().ok_or(Odd)?);
            }
        }
        if topics.len() > NAMES {
            out.push_str(" and ");
            many((topics.len() - NAMES) as u64, "more topic", out);
        }
        Ok(())
    }

    fn topic_name(&self, topic: &Value, out: &mut String) -> Result<(), Odd> {
        for key in TOPIC_NAMES {
            match topic.get(key) {
                Some(Value::Text(name)) if !name.is_empty() => return text(name, out),
                _ => (),
            }
        }
        match topic.get(TOPIC_ID) {
            Some(Value::Uuid(id)) => {
                let id = std::str::from_utf8(id).map_err(|_| Odd)?;
                text(
                    &self.topics.name(id).filter(|name| !name.is_empty()).ok_or(Odd)?,
                    out,
                )
            }
            _ => Ok(()),
        }
    }
}

/// The array of a topic's partitions: the only one besides its configs.
fn array_of<'b, 'a>(topic: &'b Value<'a>) -> &'b [Value<'a>] {
    if let Value::Struct(fields) = topic {
        for (name, value) in fields {
            match value {
                Value::List(values) if *name != CONFIGS => return values,
                _ => (),
            }
        }
    }
    &[]
}

fn records_of<'a>(partition: &Value<'a>) -> &'a [u8] {
    match partition.get(RECORDS) {
        Some(Value::Records(data)) => data,
        _ => &[],
    }
}

/// Number and size of the records in topics.
fn records(topics: &[&Value], out: &mut String) -> Result<(), Odd> {
    let (mut number, mut bytes) = (0, 0);
    for topic in topics {
        for partition in array_of(topic) {
            if partition.get(RECORDS).is_none() {
                return Err(Odd);
            }
            let data = records_of(partition);
            number += record_count(data)?;
            bytes += data.len();
        }
    }
    if bytes == 0 {
        out.push_str("no records");
        return Ok(());
    }
    many(number, "record", out);
    out.push_str(", ");
    size(bytes, out);
    Ok(())
}

// Text, as in phrases.py

/// Writes text from the wire.
fn text(value: &str, out: &mut String) -> Result<(), Odd> {
    if value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
        return Err(Odd);
    }
    out.push_str(value);
    Ok(())
}

pub fn put(out: &mut String, number: i64) {
    if number < 0 {
        out.push('-');
    }
    digits(out, number.unsigned_abs(), 1);
}

/// Writes a number with at least so many digits, 20 at most: in a third of the time that `write!` takes.
pub fn digits(out: &mut String, mut number: u64, least: usize) {
    let mut text = [b'0'; 20];
    let mut start = text.len();
    while number > 0 || text.len() - start < least {
        start -= 1;
        text[start] += (number % 10) as u8;
        number /= 10;
    }
    out.push_str(std::str::from_utf8(&text[start..]).unwrap_or_default());
}

fn scalar(value: &Value, out: &mut String) -> Result<(), Odd> {
    match value {
        Value::Text(value) => text(value, out),
        Value::Uuid(id) => text(std::str::from_utf8(id).map_err(|_| Odd)?, out),
        Value::Int(number) => {
            put(out, *number);
            Ok(())
        }
        _ => Err(Odd),
    }
}

fn enumerated(number: i64, names: &Enumerated, out: &mut String) {
    match names.iter().find(|name| name.0 == number) {
        Some((_, name)) => out.push_str(name),
        None => put(out, number),
    }
}

/// The first few and the number of the rest, after a noun if there is one.
fn listed<'b, 'a>(
    values: &[&'b Value<'a>],
    noun: &str,
    out: &mut String,
    mut write: impl FnMut(&'b Value<'a>, &mut String) -> Result<(), Odd>,
) -> Result<(), Odd> {
    if !noun.is_empty() && !values.is_empty() {
        out.push_str(noun);
        out.push_str(if values.len() > 1 { "s " } else { " " });
    }
    for (place, value) in values.iter().take(NAMES).enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write(value, out)?;
    }
    if values.len() > NAMES {
        out.push_str(" and ");
        thousands((values.len() - NAMES) as u64, out);
        out.push_str(" more");
    }
    Ok(())
}

fn many(number: u64, noun: &str, out: &mut String) {
    thousands(number, out);
    out.push(' ');
    out.push_str(noun);
    if number != 1 {
        out.push('s');
    }
}

/// With commas.
fn thousands(number: u64, out: &mut String) {
    if number >= 1000 {
        thousands(number / 1000, out);
        out.push(',');
        digits(out, number % 1000, 3);
    } else {
        digits(out, number, 1);
    }
}

/// A duration with three or four digits.
fn milliseconds(number: i64, out: &mut String) {
    _ = match number.unsigned_abs() {
        0 => write!(out, "0us"),
        1..10 => write!(out, "{number}.00ms"),
        10..1000 => write!(out, "{number}.0ms"),
        _ => write!(out, "{:.2}s", number as f64 / 1000.0),
    };
}

/// Bytes in the largest unit that gives at least 1.
fn size(count: usize, out: &mut String) {
    if count < 1000 {
        digits(out, count as u64, 1);
        out.push_str(" B");
        return;
    }
    let mut amount = count as f64;
    for unit in ["KB", "MB", "GB"] {
        amount /= 1000.0;
        if amount < 999.95 {
            _ = write!(out, "{amount:.1} {unit}");
            return;
        }
    }
    _ = write!(out, "{:.1} TB", amount / 1000.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        assert_eq!(written(|out| many(1, "record", out)), "1 record");
        assert_eq!(written(|out| many(0, "record", out)), "0 records");
        assert_eq!(written(|out| many(1_002_003, "record", out)), "1,002,003 records");
        assert_eq!(written(|out| size(999, out)), "999 B");
        assert_eq!(written(|out| size(1250, out)), "1.2 KB");
        assert_eq!(written(|out| size(999_949, out)), "999.9 KB");
        assert_eq!(written(|out| size(999_950, out)), "1.0 MB");
        assert_eq!(written(|out| milliseconds(5, out)), "5.00ms");
        assert_eq!(written(|out| milliseconds(-999, out)), "-999.0ms");
        assert_eq!(written(|out| milliseconds(300_000, out)), "300.00s");
        for number in [0, 7, -10, i64::MAX, i64::MIN] {
            assert_eq!(written(|out| put(out, number)), number.to_string());
        }
        assert_eq!(written(|out| digits(out, 70, 6)), "000070");
        assert_eq!(written(|out| digits(out, 0, 0)), "");
    }

    #[test]
    fn only_printable_ascii_is_written() {
        let mut out = String::new();
        assert_eq!(text("a ~", &mut out), Ok(()));
        for odd in ["\u{1b}[2J", "a\n", "\u{7f}", "é", "\u{202e}"] {
            assert_eq!(text(odd, &mut out), Err(Odd));
        }
        assert_eq!(out, "a ~");
    }
}
