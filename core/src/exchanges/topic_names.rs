//! Bodies -> the topic IDs in them, and the names that they reveal, as kdissect/exchanges/topic_names.py finds them.

use crate::kafka::tree::{Bodies, Decoded, Name, Value, NO_ID};
use crate::Odd;

/// A struct that names topics: the path to it, and its fields with an ID, or several, and with a name.
pub struct TopicStruct {
    pub path: Vec<Name>,
    pub id: Name,
    pub name: Option<Name>,
}

/// Where topic IDs are in exchanges of an API in one version.
pub struct TopicIds {
    pub bodies: Bodies,
    pub request: Vec<TopicStruct>,
    pub response: Vec<TopicStruct>,
}

/// The topic IDs in an exchange, each once, in wire order; and those with their names.
#[derive(Default)]
pub struct TopicRefs {
    pub ids: Vec<String>,
    pub learned: Vec<(String, String)>,
}

impl TopicIds {
    /// `budget`: memory for both bodies.
    pub fn refs(&self, request: &[u8], response: Option<&[u8]>, budget: i64) -> Result<TopicRefs, Odd> {
        self.refs_in(&self.bodies.decoded(request, response, budget)?)
    }

    /// The same of decoded bodies.
    pub fn refs_in(&self, decoded: &Decoded<'_>) -> Result<TopicRefs, Odd> {
        let mut refs = TopicRefs::default();
        for (structs, body) in [
            (&self.request, &decoded.request),
            (&self.response, &decoded.response),
        ] {
            for each in structs {
                each.find(body, &each.path, &mut refs)?;
            }
        }
        Ok(refs)
    }
}

impl TopicStruct {
    fn find(&self, value: &Value<'_>, path: &[Name], refs: &mut TopicRefs) -> Result<(), Odd> {
        match (value, path.split_first()) {
            (Value::List(values), _) => values.iter().try_for_each(|each| self.find(each, path, refs)),
            (_, Some((first, rest))) => match value.get(*first) {
                Some(value) => self.find(value, rest, refs),
                None => Ok(()),
            },
            (_, None) => match value.get(self.id) {
                Some(Value::List(ids)) => ids.iter().try_for_each(|id| refs.add(id, None)),
                Some(id) => refs.add(id, self.name.and_then(|name| value.get(name))),
                None => Ok(()),
            },
        }
    }
}

impl TopicRefs {
    fn add(&mut self, id: &Value<'_>, name: Option<&Value<'_>>) -> Result<(), Odd> {
        let id = match id {
            Value::Uuid(id) if *id != NO_ID => std::str::from_utf8(id).map_err(|_| Odd)?,
            _ => return Ok(()),
        };
        if !self.ids.iter().any(|known| known == id) {
            self.ids.push(id.to_owned());
        }
        match name {
            Some(Value::Text(name)) if !name.is_empty() => {
                self.learned.push((id.to_owned(), (*name).to_owned()));
            }
            _ => (),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::wire::uuid_text;

    const TOPICS: Name = 20;
    const ID: Name = 21;
    const NAME: Name = 22;

    fn topic(id: u8, name: &'static str) -> Value<'static> {
        let raw = if id == 0 { [0; 16] } else { [id; 16] };
        Value::Struct(vec![(ID, Value::Uuid(uuid_text(raw))), (NAME, Value::Text(name))])
    }

    #[test]
    fn ids_are_found_once_and_in_order() {
        let topics = [topic(2, "b"), topic(1, ""), topic(0, "none"), topic(2, "again")];
        let body = Value::Struct(vec![(TOPICS, Value::List(topics.into()))]);
        let each = TopicStruct {
            path: vec![TOPICS],
            id: ID,
            name: Some(NAME),
        };
        let mut refs = TopicRefs::default();
        assert!(each.find(&body, &each.path, &mut refs).is_ok());
        let [one, two] = [1, 2].map(|id| String::from_utf8(uuid_text([id; 16]).to_vec()).unwrap());
        assert_eq!(refs.ids, [two.clone(), one]);
        assert_eq!(refs.learned, [(two.clone(), "b".into()), (two, "again".into())]);
    }

    #[test]
    fn arrays_of_ids_have_no_names() {
        let ids = [1, 0, 1].map(|id| Value::Uuid(uuid_text([id; 16])));
        let body = Value::Struct(vec![(ID, Value::List(ids.into())), (NAME, Value::Text("a"))]);
        let each = TopicStruct {
            path: vec![],
            id: ID,
            name: Some(NAME),
        };
        let mut refs = TopicRefs::default();
        assert!(each.find(&body, &each.path, &mut refs).is_ok());
        assert_eq!((refs.ids.len(), refs.learned.len()), (1, 0));
    }
}
