//! Decoded bodies -> the values at paths in them, as `value_at` of kdissect/query/where.py finds them.

use crate::kafka::tree::{Decoded, Name, Value};
use crate::{Odd, Why};

/// Where a value is.
pub struct FieldPath {
    /// Whether it is in the request.
    pub of_request: bool,
    /// Names of fields, outermost first.
    pub names: Vec<Name>,
}

/// A value as an expression sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Given {
    Absent,
    Bool(bool),
    Number(i64),
    Text(String),
    /// It has some fields.
    Struct,
    List(Vec<Given>),
}

/// What is at a path.
pub enum Found<'b> {
    /// None: it is absent.
    One(Option<&'b Value<'b>>),
    /// Through an array: one value per element.
    Many(Vec<Option<&'b Value<'b>>>),
}

impl FieldPath {
    /// `keys`: names of fields as keys of JSON, by their numbers.
    pub fn of(of_request: bool, names: &[String], keys: &[String]) -> Self {
        let number = |name: &String| {
            let key = format!("\"{name}\":");
            keys.iter().position(|known| *known == key).unwrap_or(Name::MAX)
        };
        FieldPath {
            of_request,
            names: names.iter().map(number).collect(),
        }
    }

    /// Odd: its type is left to Python.
    pub fn find(&self, decoded: &Decoded<'_>) -> Result<Given, Odd> {
        match self.values(decoded)? {
            Found::One(value) => Given::of(value),
            Found::Many(values) => {
                let values = values.into_iter().map(Given::of);
                Ok(Given::List(values.collect::<Result<_, _>>()?))
            }
        }
    }

    /// Odd: the path leads into record data, or into an embedded message, or is not here of a response.
    pub fn values<'b>(&self, decoded: &'b Decoded<'_>) -> Result<Found<'b>, Odd> {
        let body = match self.of_request {
            true => &decoded.request,
            false => &decoded.response,
        };
        let is_known = |name| self.of_request || !decoded.is_rejected || body.get(name).is_some();
        if !self.names.first().is_some_and(|name| is_known(*name)) {
            return Err(Why::Response.odd());
        }
        let (mut values, mut is_many): (Vec<Option<&'b Value<'b>>>, bool) = (vec![Some(body)], false);
        for name in &self.names {
            let mut structs = Vec::with_capacity(values.len());
            for outer in values {
                match outer {
                    Some(Value::List(elements)) => {
                        is_many = true;
                        structs.extend(elements.iter().map(Some));
                    }
                    Some(Value::Records(_) | Value::Embedded(_)) => return Err(Odd),
                    outer => structs.push(outer),
                }
            }
            let inner = structs
                .into_iter()
                .map(|each| each.and_then(|each| each.get(*name)));
            values = inner.collect();
        }
        if !is_many {
            return values.first().map(|value| Found::One(*value)).ok_or(Odd);
        }
        let mut all = Vec::with_capacity(values.len());
        for value in values {
            match value {
                Some(Value::List(elements)) => all.extend(elements.iter().map(Some)),
                value => all.push(value),
            }
        }
        Ok(Found::Many(all))
    }
}

impl Given {
    fn of(value: Option<&Value<'_>>) -> Result<Self, Odd> {
        Ok(match value {
            None | Some(Value::Null) => Given::Absent,
            Some(Value::Bool(value)) => Given::Bool(*value),
            Some(Value::Int(number)) => Given::Number(*number),
            Some(Value::Text(text)) => Given::Text((*text).to_owned()),
            Some(Value::Uuid(id)) => Given::Text(std::str::from_utf8(id).map_err(|_| Odd)?.to_owned()),
            Some(Value::Struct(_)) => Given::Struct,
            Some(Value::List(elements)) => {
                let elements = elements.iter().map(|each| Given::of(Some(each)));
                Given::List(elements.collect::<Result<_, _>>()?)
            }
            Some(Value::Float(_) | Value::Bytes(_) | Value::Records(_) | Value::Embedded(_)) => {
                return Err(Odd)
            }
        })
    }

    pub fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Given::List(texts.into_iter().map(|text| Given::Text(text.into())).collect())
    }

    /// Whether it is a number in one of these ranges, or a list with one.
    pub fn is_within(&self, ranges: &[(i64, i64)]) -> bool {
        match self {
            Given::Number(number) => ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(number)),
            Given::List(values) => values.iter().any(|value| value.is_within(ranges)),
            _ => false,
        }
    }

    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        size_of::<Given>()
            + match self {
                Given::Text(text) => text.len(),
                Given::List(values) => values.iter().map(Given::size).sum(),
                _ => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(request: Vec<(Name, Value<'a>)>, names: &[Name]) -> Result<Given, Odd> {
        let path = FieldPath {
            of_request: true,
            names: names.to_vec(),
        };
        path.find(&Decoded {
            request: Value::Struct(request),
            response: Value::Struct(Vec::new()),
            errors: Vec::new(),
            has_unknown: false,
            is_followed: false,
            is_rejected: false,
            costs: [0; 2],
        })
    }

    #[test]
    fn values_are_found_through_arrays() {
        let body = || {
            let one = Value::Struct(vec![(1, Value::Int(5)), (2, Value::List(vec![Value::Text("x")]))]);
            let two = Value::Struct(vec![(1, Value::Null)]);
            vec![(0, Value::List(vec![one, two])), (3, Value::Bool(true))]
        };
        let text = Given::Text("x".to_owned());
        for (names, expected) in [
            (&[3][..], Given::Bool(true)),
            (&[4], Given::Absent),
            (&[3, 1], Given::Absent),
            (&[0], Given::List(vec![Given::Struct, Given::Struct])),
            (&[0, 1], Given::List(vec![Given::Number(5), Given::Absent])),
            (&[0, 2], Given::List(vec![text, Given::Absent])),
            (&[0, 7, 1], Given::List(vec![Given::Absent, Given::Absent])),
        ] {
            assert_eq!(found(body(), names), Ok(expected), "{names:?}");
        }
        assert_eq!(
            found(vec![(0, Value::List(Vec::new()))], &[0, 1]),
            Ok(Given::List(Vec::new()))
        );
        assert_eq!(found(vec![(0, Value::Records(b""))], &[0, 1]), Err(Odd));
        assert_eq!(found(vec![(0, Value::Bytes(b""))], &[0]), Err(Odd));
    }

    #[test]
    fn names_are_those_of_the_row() {
        let keys = ["\"name\":", "\"topic\":"].map(String::from);
        let path = FieldPath::of(false, &["topic", "nosuch"].map(String::from), &keys);
        assert_eq!((path.of_request, path.names), (false, vec![1, Name::MAX]));
    }

    #[test]
    fn a_list_is_within_ranges_if_any_of_its_numbers_is() {
        let list = |values: &[i64]| Given::List(values.iter().copied().map(Given::Number).collect());
        assert!(Given::Number(3).is_within(&[(1, 2), (3, 4)]));
        assert!(list(&[9, 2]).is_within(&[(1, 2)]));
        assert!(!list(&[9, 0]).is_within(&[(1, 2)]));
        assert!(!Given::Bool(true).is_within(&[(1, 2)]) && !Given::Absent.is_within(&[(1, 2)]));
    }
}
