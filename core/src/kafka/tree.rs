//! Bodies -> trees of values, whose text and bytes stay in the frame; and topic names in them.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use crate::kafka::body::{Build, Decoding, Kind, Struct};
use crate::kafka::wire::{uuid_text, Reader};
use crate::{Odd, Why};

/// Larger bodies are decoded differently (compiler.py).
const LARGE_BYTES: usize = 1024 * 1024;

/// Budget per byte of an embedded message, an upper bound.
const PAYLOAD_COST: i64 = 2000;

/// A field's name as a number: its index in this list, or beyond it.
pub type Name = usize;
pub const KNOWN_NAMES: [&str; 10] = [
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "partition_index",
    "partition",
    "index",
    "partition_id",
    "configs",
    "records",
];
pub const NO_ID: [u8; 22] = [b'A'; 22];

/// A field of a layout.
pub struct Label {
    pub name: Name,
    /// Whether it is an error code.
    pub is_error: bool,
    /// For bytes that are an embedded message: its index in [`Bodies::payloads`].
    pub payload: Option<usize>,
    /// Whether its value is needed; if not, it is only checked.
    pub is_read: bool,
}

/// The fields to read from a body: those with these names, and perhaps all arrays.
#[derive(Default)]
pub struct ReadNames {
    pub names: HashSet<Name>,
    pub arrays: bool,
}

impl ReadNames {
    /// Marks the fields of a struct and of the structs in it.
    fn mark(&self, shape: &mut Struct<Label>) {
        for field in shape.positional.iter_mut().chain(&mut shape.tagged) {
            let is_array = field.element_bytes.is_some();
            field.name.is_read = self.names.contains(&field.name.name) || (self.arrays && is_array);
            if let Kind::Struct(shape) = &mut field.kind {
                self.mark(shape);
            }
        }
        let skipped = shape.positional.iter().map(|field| {
            let is_skipped = !field.name.is_read && !field.name.is_error && field.element_bytes.is_none();
            field.kind.fixed_bytes().filter(|_| is_skipped)
        });
        shape.skipped_bytes = skipped.sum();
    }
}

/// A decoded value; text and bytes stay in the frame.
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Uuid([u8; 22]),
    Bytes(&'a [u8]),
    Records(&'a [u8]),
    List(Vec<Value<'a>>),
    Struct(FieldValues<'a>),
    Embedded(Box<Embedded<'a>>),
}

type FieldValues<'a> = Vec<(Name, Value<'a>)>;

/// An embedded message, and its bytes.
pub struct Embedded<'a> {
    pub message: Name,
    pub version: i16,
    pub data: &'a [u8],
    pub fields: FieldValues<'a>,
}

impl<'a> Value<'a> {
    /// A field of a struct. None if this is not a struct, or the field is absent.
    pub fn get(&self, name: Name) -> Option<&Value<'a>> {
        let fields = match self {
            Value::Struct(fields) => fields,
            Value::Embedded(embedded) => &embedded.fields,
            _ => return None,
        };
        fields.iter().find(|field| field.0 == name).map(|field| &field.1)
    }

    /// Text that is not empty.
    pub fn text(&self, name: Name) -> Option<&'a str> {
        match self.get(name) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    fn add_errors(&self, errors: &mut Vec<i64>) {
        match self {
            Value::Int(code) if *code != 0 && !errors.contains(code) => errors.push(*code),
            Value::List(codes) => codes.iter().for_each(|code| code.add_errors(errors)),
            _ => (),
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Value::Null => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Text(text) => !text.is_empty(),
            Value::Bytes(bytes) => !bytes.is_empty(),
            Value::List(values) => !values.is_empty(),
            _ => true,
        }
    }
}

/// Builds these values.
struct Tree<'a, 'b> {
    data: &'a [u8],
    payloads: &'b [Payload],
    budget: i64,
    errors: RefCell<Vec<i64>>,
    has_unknown: Cell<bool>,
}

impl<'a> Tree<'a, '_> {
    /// An embedded message, which begins with its version.
    fn embedded(&self, payload: usize, data: &'a [u8]) -> Result<Value<'a>, Odd> {
        let mut reader = Reader::new(data, 0);
        let version = reader.i16()?;
        let known = self.payloads.get(payload).ok_or(Odd)?;
        let (_, shape) = known.versions.iter().find(|each| each.0 == version).ok_or(Odd)?;
        self.message((known.message, version), shape, reader, data)
    }

    /// The message that begins where the reader is in its bytes, and ends with them.
    fn message(
        &self,
        (message, version): (Name, i16),
        shape: &Struct<Label>,
        reader: Reader<'a>,
        data: &'a [u8],
    ) -> Result<Value<'a>, Odd> {
        let mut decoding = Decoding {
            reader,
            builder: self,
            budget: self.budget,
            flexible: shape.tag_bytes.is_some(),
            charges_text: false,
        };
        let fields = decoding.structure(shape)?;
        match decoding.reader.left() {
            0 => Ok(Value::Embedded(Box::new(Embedded {
                message,
                version,
                data,
                fields,
            }))),
            _ => Err(Odd),
        }
    }
}

impl<'a> Build<'a> for Tree<'a, '_> {
    type Name = Label;
    type Value = Value<'a>;
    type Struct = FieldValues<'a>;

    fn null(&self) -> Value<'a> {
        Value::Null
    }
    fn bool(&self, value: bool) -> Value<'a> {
        Value::Bool(value)
    }
    fn int(&self, value: i64) -> Result<Value<'a>, Odd> {
        Ok(Value::Int(value))
    }
    fn float(&self, value: f64) -> Value<'a> {
        Value::Float(value)
    }
    fn text(&self, value: &'a str) -> Value<'a> {
        Value::Text(value)
    }
    fn uuid(&self, raw: [u8; 16]) -> Result<Value<'a>, Odd> {
        Ok(Value::Uuid(uuid_text(raw)))
    }
    fn bytes(&self, value: &'a [u8]) -> Value<'a> {
        Value::Bytes(value)
    }
    fn records(&self, start: usize, end: usize) -> Result<Value<'a>, Odd> {
        self.data.get(start..end).map(Value::Records).ok_or(Odd)
    }
    fn list(&self, values: Vec<Value<'a>>) -> Result<Value<'a>, Odd> {
        Ok(Value::List(values))
    }
    fn begin(&self, shape: &Struct<Label>) -> FieldValues<'a> {
        if shape.skipped_bytes.is_some() {
            return Vec::new();
        }
        let read = shape.positional.iter().filter(|field| field.name.is_read);
        Vec::with_capacity(read.count())
    }
    #[inline]
    fn set(&self, object: &mut FieldValues<'a>, label: &Label, value: Value<'a>) -> Result<(), Odd> {
        if label.is_error {
            value.add_errors(&mut self.errors.borrow_mut());
        }
        let value = match (label.payload, value) {
            (Some(payload), Value::Bytes(data)) if !data.is_empty() => self.embedded(payload, data)?,
            (_, value) => value,
        };
        if label.is_read {
            object.push((label.name, value));
        }
        Ok(())
    }
    fn set_unknown(&self, _: &mut FieldValues<'a>, _: Vec<(u64, &'a [u8])>) -> Result<(), Odd> {
        self.has_unknown.set(true);
        Ok(())
    }
    fn end(&self, object: FieldValues<'a>) -> Value<'a> {
        Value::Struct(object)
    }
}

/// Names of topics by their IDs.
pub trait TopicNames {
    fn name(&self, id: &str) -> Option<String>;
    /// Called when a message has both.
    fn learn(&self, id: &str, name: &str) -> Result<(), Odd>;
}

/// The structs of a message that have a topic's ID and its name: the path to them, and both fields.
pub struct Naming {
    pub path: Vec<Name>,
    pub id: Name,
    pub name: Name,
}

impl Naming {
    fn learn(&self, body: &Value, topics: &dyn TopicNames) -> Result<(), Odd> {
        self.learn_from(body, &self.path, topics)
    }

    fn learn_from(&self, value: &Value, path: &[Name], topics: &dyn TopicNames) -> Result<(), Odd> {
        match (value, path.split_first()) {
            (Value::List(values), _) => values
                .iter()
                .try_for_each(|each| self.learn_from(each, path, topics)),
            (_, Some((first, rest))) => match value.get(*first) {
                Some(value) => self.learn_from(value, rest, topics),
                None => Ok(()),
            },
            (_, None) => match (value.get(self.id), value.get(self.name)) {
                (Some(Value::Uuid(id)), Some(Value::Text(name))) if *id != NO_ID && !name.is_empty() => {
                    topics.learn(std::str::from_utf8(id).map_err(|_| Odd)?, name)
                }
                _ => Ok(()),
            },
        }
    }
}

/// The versions of an embedded message.
pub struct Payload {
    pub message: Name,
    pub versions: Vec<(i16, Struct<Label>)>,
}

/// Decodes an embedded message without a version before it, to its last byte.
pub fn embedded<'a>(
    message: (Name, i16),
    shape: &Struct<Label>,
    data: &'a [u8],
    budget: i64,
) -> Result<Value<'a>, Odd> {
    let tree = Tree {
        data,
        payloads: &[],
        budget,
        errors: RefCell::default(),
        has_unknown: Cell::new(false),
    };
    let value = tree.message(message, shape, Reader::new(data, 0), data)?;
    match tree.has_unknown.get() {
        true => Err(Why::Unknown.odd()),
        false => Ok(value),
    }
}

/// One version of an API.
pub struct Bodies {
    pub request: Struct<Label>,
    pub response: Struct<Label>,
    pub request_names: Vec<Naming>,
    pub response_names: Vec<Naming>,
    pub payloads: Vec<Payload>,
    /// Whether they have embedded messages, which take more of the budget than their bytes.
    pub hold_messages: bool,
    /// Whether bytes may follow them, because no other layout could fit those.
    pub may_be_followed: bool,
}

/// Both bodies of an exchange.
pub struct Decoded<'a> {
    pub request: Value<'a>,
    /// Without fields if there is no response.
    pub response: Value<'a>,
    /// The distinct error codes in the response, in wire order, without 0.
    pub errors: Vec<i64>,
    /// Whether there are unknown tagged fields.
    pub has_unknown: bool,
    /// Whether bytes follow a body.
    pub is_followed: bool,
    /// Whether of the response nothing but the error is here.
    pub is_rejected: bool,
    /// The memory of both bodies, as the budget counts it.
    pub costs: [i64; 2],
}

impl Decoded<'_> {
    /// Odd if there is more than the known fields.
    pub fn check(&self) -> Result<(), Odd> {
        match (self.has_unknown, self.is_followed) {
            (true, _) => Err(Why::Unknown.odd()),
            (_, true) => Err(Why::Followed.odd()),
            _ => Ok(()),
        }
    }
}

impl Bodies {
    /// Builds the values of these fields of request and response only.
    pub fn limit(&mut self, request: &ReadNames, response: &ReadNames) {
        request.mark(&mut self.request);
        response.mark(&mut self.response);
    }

    /// Decodes bodies; `budget` is the memory for both.
    pub fn decoded<'a>(
        &self,
        request: &'a [u8],
        response: Option<&'a [u8]>,
        budget: i64,
    ) -> Result<Decoded<'a>, Odd> {
        let mut decoded = self.decoded_request(request, budget)?;
        if let Some(response) = response {
            self.add_response(&mut decoded, response, budget)?;
        }
        Ok(decoded)
    }

    /// Decodes a request, to which the response may be added.
    pub fn decoded_request<'a>(&self, request: &'a [u8], budget: i64) -> Result<Decoded<'a>, Odd> {
        let mut decoded = Decoded {
            request: Value::Struct(Vec::new()),
            response: Value::Struct(Vec::new()),
            errors: Vec::new(),
            has_unknown: false,
            is_followed: false,
            is_rejected: false,
            costs: [0; 2],
        };
        (decoded.request, decoded.costs[0]) = self.decode(&self.request, request, budget, &mut decoded)?;
        Ok(decoded)
    }

    /// `budget`: the memory for both.
    pub fn add_response<'a>(
        &self,
        decoded: &mut Decoded<'a>,
        response: &'a [u8],
        budget: i64,
    ) -> Result<(), Odd> {
        let left = budget - decoded.costs[0];
        (decoded.response, decoded.costs[1]) = self.decode(&self.response, response, left, decoded)?;
        Ok(())
    }

    /// Adds the first field of a response, an error.
    pub fn add_rejection(&self, decoded: &mut Decoded<'_>, code: i64) -> Result<(), Odd> {
        let error = self.response.positional.first().ok_or(Odd)?;
        decoded.response = Value::Struct(vec![(error.name.name, Value::Int(code))]);
        decoded.errors = vec![code];
        decoded.is_rejected = true;
        Ok(())
    }

    /// Returns the values of a body and its cost.
    fn decode<'a>(
        &self,
        shape: &Struct<Label>,
        data: &'a [u8],
        budget: i64,
        decoded: &mut Decoded<'a>,
    ) -> Result<(Value<'a>, i64), Odd> {
        let size = i64::try_from(data.len()).map_err(|_| Odd)?;
        let is_costly = self.hold_messages && size > budget / PAYLOAD_COST;
        if data.len() > LARGE_BYTES || is_costly {
            return Err(Odd);
        }
        let tree = Tree {
            data,
            payloads: &self.payloads,
            budget,
            errors: RefCell::default(),
            has_unknown: Cell::new(false),
        };
        let mut decoding = Decoding {
            reader: Reader::new(data, 0),
            builder: &tree,
            budget,
            flexible: shape.tag_bytes.is_some(),
            charges_text: false,
        };
        let fields = decoding.structure(shape)?;
        let cost = budget - decoding.budget;
        if decoding.reader.left() > 0 {
            if !self.may_be_followed {
                return Err(Odd);
            }
            decoded.is_followed = true;
        }
        decoded.errors.append(&mut tree.errors.take());
        decoded.has_unknown |= tree.has_unknown.get();
        Ok((Value::Struct(fields), cost))
    }

    /// Learns the names in both bodies.
    pub fn learn(&self, decoded: &Decoded<'_>, topics: &dyn TopicNames) -> Result<(), Odd> {
        let both = [
            (&self.request_names, &decoded.request),
            (&self.response_names, &decoded.response),
        ];
        let mut names = both
            .into_iter()
            .flat_map(|(names, body)| names.iter().map(move |each| (each, body)));
        names.try_for_each(|(naming, body)| naming.learn(body, topics))
    }
}

/// What stands for the ID of a topic; the zero ID itself. One that may still get a name is odd.
pub fn name_of(id: &[u8; 22], names: &dyn TopicNames) -> Result<String, Odd> {
    let text = std::str::from_utf8(id).map_err(|_| Odd)?;
    match *id == NO_ID {
        true => Ok(text.to_owned()),
        false => names.name(text).ok_or_else(|| Why::Nameless.odd()),
    }
}

/// The elements of an array, or a struct alone.
pub fn elements<'b, 'a>(value: Option<&'b Value<'a>>) -> &'b [Value<'a>] {
    match value {
        Some(Value::List(values)) => values,
        Some(value @ Value::Struct(_)) => std::slice::from_ref(value),
        _ => &[],
    }
}

/// The values at the end of a path.
pub fn each<'b, 'a>(
    value: &'b Value<'a>,
    path: &[Name],
    take: &mut dyn FnMut(&'b Value<'a>) -> Result<(), Odd>,
) -> Result<(), Odd> {
    match (value, path.split_first()) {
        (Value::List(values), _) => values.iter().try_for_each(|value| each(value, path, take)),
        (_, Some((first, rest))) => value.get(*first).map_or(Ok(()), |value| each(value, rest, take)),
        (_, None) => take(value),
    }
}

/// The elements of an array that is not null.
pub fn list<'b, 'a>(value: Option<&'b Value<'a>>) -> Result<&'b [Value<'a>], Odd> {
    match value {
        Some(Value::List(values)) => Ok(values),
        Some(Value::Null) | None => Ok(&[]),
        Some(_) => Err(Odd),
    }
}

/// A number in a struct; None if it is null or absent.
pub fn field(body: Option<&Value<'_>>, name: Name) -> Result<Option<i64>, Odd> {
    match body.and_then(|body| body.get(name)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Int(number)) => Ok(Some(*number)),
        Some(_) => Err(Odd),
    }
}
