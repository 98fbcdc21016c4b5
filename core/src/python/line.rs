//! The class `kdissect._core.Line`: a [`about_template::Line`] for kdissect/text/about_template.py.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyTuple};

use crate::exchanges::guarded::{Protocols, UserData};
use crate::exchanges::topic_names::{TopicIds, TopicStruct};
use crate::kafka::tree::{Bodies, Decoded, Label, Name, Naming, Payload, ReadNames, TopicNames, KNOWN_NAMES};
use crate::python::decoder::structure;
use crate::python::projected::{projected, Kept};
use crate::sinks::about_template::{
    self, Clause, Enumerated, Expression, MessageStep, Noun, Path, Piece, Template, Test, TestKind, Word,
};
use crate::{guarded, Odd};

/// The lines of one API version.
#[pyclass(frozen, name = "Line", module = "kdissect._core")]
pub struct PyLine {
    pub line: Arc<about_template::Line>,
    /// The fields of request and response that `follow` needs. None: it is not called.
    pub followed: Option<(Kept, Kept)>,
}

#[pymethods]
impl PyLine {
    /// Arguments: see [`BodiesForm`]; the templates of request and response, specialized for the version; the
    /// fields of both that `follow` needs; and where responses have messages about errors.
    #[new]
    fn new(
        bodies: BodiesForm<'_>,
        request_template: &Bound<'_, PyTuple>,
        response_template: &Bound<'_, PyTuple>,
        followed: Option<(Vec<String>, Vec<String>)>,
        messages: Option<Vec<MessageForm<'_>>>,
    ) -> PyResult<Self> {
        let py = request_template.py();
        let names = Names::default();
        let mut line = about_template::Line {
            bodies: names.bodies(bodies)?,
            request_template: names.template(request_template, true)?,
            response_template: names.template(response_template, false)?,
            messages: messages.map(|steps| names.message_steps(steps)).transpose()?,
        };
        let followed = followed.map(|(request, response)| {
            names.is_request.set(true);
            let request = names.kept(py, &request);
            names.is_request.set(false);
            (request, names.kept(py, &response))
        });
        line.bodies
            .limit(&names.of_request.take(), &names.of_response.take());
        Ok(PyLine {
            line: Arc::new(line),
            followed,
        })
    }

    /// The text about an exchange, and the error codes in the response. None if it is left to Python.
    ///
    /// Arguments: frames and where their bodies begin, no response if there is none; the memory for both
    /// bodies; a function from a topic ID to its name, or None; one to learn an ID and its name; and `follow`,
    /// which gets its fields of both bodies and returns whether they are on the fast path.
    fn text(
        &self,
        request: (Bound<'_, PyBytes>, usize),
        response: Option<(Bound<'_, PyBytes>, usize)>,
        budget: i64,
        topic_name: Bound<'_, PyAny>,
        learn_name: Bound<'_, PyAny>,
        follow: Bound<'_, PyAny>,
    ) -> Option<(String, Vec<i64>)> {
        guarded(|| {
            let mut text = String::new();
            let request = request.0.as_bytes().get(request.1..).ok_or(Odd)?;
            let response = match response {
                Some((ref data, pos)) => Some(data.as_bytes().get(pos..).ok_or(Odd)?),
                None => None,
            };
            let topics = &TopicNameFunctions(&topic_name, &learn_name);
            let mut follow_both = |decoded: &Decoded<'_>| match &self.followed {
                Some(kept) => is_usual(follow.call1(followed(follow.py(), decoded, kept)?)),
                None => Ok(()),
            };
            let line = &self.line;
            match line.write(request, response, budget, topics, &mut follow_both, &mut text)? {
                (errors, false) => Ok((text, errors)),
                _ => Err(Odd), // Python also describes the bytes that follow
            }
        })
        .ok()
    }
}

/// A field, and `error`, `message`, or those in it: `message_plan` of kdissect/exchanges/content.py.
type MessageForm<'py> = (String, Bound<'py, PyAny>);

/// What `follow` gets of both bodies.
pub fn followed<'py>(
    py: Python<'py>,
    decoded: &Decoded<'_>,
    (of_request, of_response): &(Kept, Kept),
) -> Result<(Bound<'py, PyAny>, Bound<'py, PyAny>), Odd> {
    Ok((
        projected(py, &decoded.request, of_request)?,
        projected(py, &decoded.response, of_response)?,
    ))
}

/// Odd unless Python has returned True.
fn is_usual(returned: PyResult<Bound<'_, PyAny>>) -> Result<(), Odd> {
    match returned.and_then(|usual| usual.extract()) {
        Ok(true) => Ok(()),
        _ => Err(Odd),
    }
}

/// Two Python functions: from a topic ID to its name, or None; and one to learn an ID and its name.
struct TopicNameFunctions<'a, 'py>(&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>);

impl TopicNames for TopicNameFunctions<'_, '_> {
    fn name(&self, id: &str) -> Option<String> {
        self.0.call1((id,)).ok()?.extract().ok()
    }

    fn learn(&self, id: &str, name: &str) -> Result<(), Odd> {
        self.1.call1((id, name)).map(|_| ()).map_err(|_| Odd)
    }
}

/// Of request and response, the struct as for `Decoder` (but each field's name together with whether it is an
/// error code, and which payload it is), and the structs with IDs and names of topics, see [`Naming`]. Then the
/// payloads: the versions of each, and their structs; and `hold_messages` and `may_be_followed` of [`Bodies`].
pub type BodiesForm<'py> = (
    Bound<'py, PyTuple>,
    Bound<'py, PyTuple>,
    Vec<(Vec<String>, String, String)>,
    Vec<(Vec<String>, String, String)>,
    Vec<(String, Vec<(i16, Bound<'py, PyTuple>)>)>,
    (bool, bool),
);

/// Name of a protocol; the message with the data of its assignor, its version, and its layout.
pub type UserDataForm<'py> = (String, Option<(String, i16, Bound<'py, PyTuple>)>);

/// Paths to the structs that name topics, their fields with IDs, and those with names.
pub type TopicStructForms = Vec<(Vec<String>, String, Option<String>)>;

/// Numbers for the names of fields, and templates in which they are used.
pub struct Names {
    numbers: RefCell<HashMap<String, Name>>,
    /// The fields read from both bodies, as far as known.
    of_request: RefCell<ReadNames>,
    of_response: RefCell<ReadNames>,
    /// Whether the next names belong to a request.
    is_request: Cell<bool>,
}

impl Default for Names {
    fn default() -> Self {
        let known = KNOWN_NAMES.iter().enumerate();
        Names {
            numbers: RefCell::new(known.map(|(number, name)| (name.to_string(), number)).collect()),
            of_request: RefCell::default(),
            of_response: RefCell::default(),
            is_request: Cell::new(true),
        }
    }
}

fn unknown(what: &str) -> PyErr {
    PyValueError::new_err(format!("left to Python: {what}"))
}

impl Names {
    pub fn number(&self, name: &str) -> Name {
        let mut names = self.numbers.borrow_mut();
        let next = names.len();
        *names.entry(name.to_owned()).or_insert(next)
    }

    /// Whose body the fields are in that are read from now on.
    pub fn are_of_request(&self, is_request: bool) {
        self.is_request.set(is_request);
    }

    /// The number of a field that is read.
    pub fn read(&self, name: &str) -> Name {
        let number = self.number(name);
        let of_body = if self.is_request.get() {
            &self.of_request
        } else {
            &self.of_response
        };
        of_body.borrow_mut().names.insert(number);
        number
    }

    /// Topics are read, perhaps of the request too: names of their fields, and arrays of any name.
    fn read_topics(&self) {
        let read = |of_body: &RefCell<ReadNames>| {
            let mut of_body = of_body.borrow_mut();
            of_body.names.extend(0..KNOWN_NAMES.len());
            of_body.arrays = true;
        };
        read(&self.of_request);
        if !self.is_request.get() {
            read(&self.of_response);
        }
    }

    pub fn numbers(&self, names: &[String]) -> Vec<Name> {
        names.iter().map(|name| self.read(name)).collect()
    }

    pub fn kept(&self, py: Python<'_>, fields: &[String]) -> Kept {
        let key = |name: &String| (self.read(name), PyString::intern(py, name).unbind());
        fields.iter().map(key).collect()
    }

    /// The names as keys of JSON.
    pub fn keys(&self) -> Vec<String> {
        let names = self.numbers.borrow();
        let mut keys = vec![String::new(); names.len()];
        for (name, number) in names.iter() {
            keys[*number] = format!("\"{name}\":");
        }
        keys
    }

    pub fn bodies(
        &self,
        (request, response, request_names, response_names, payloads, flags): BodiesForm<'_>,
    ) -> PyResult<Bodies> {
        let label = |label: &Bound<'_, PyAny>| self.label(label);
        let version =
            |(version, shape): &(i16, Bound<'_, PyTuple>)| Ok((*version, structure(shape, &label)?));
        let naming = |(path, id, name): &(Vec<String>, String, String)| Naming {
            path: self.numbers(path),
            id: self.read(id),
            name: self.read(name),
        };
        let namings = |forms: &[(Vec<String>, String, String)], is_request| {
            self.is_request.set(is_request);
            forms.iter().map(naming).collect()
        };
        Ok(Bodies {
            request: structure(&request, &label)?,
            response: structure(&response, &label)?,
            request_names: namings(&request_names, true),
            response_names: namings(&response_names, false),
            payloads: payloads
                .iter()
                .map(|(message, versions)| {
                    Ok(Payload {
                        message: self.number(message),
                        versions: versions.iter().map(version).collect::<PyResult<_>>()?,
                    })
                })
                .collect::<PyResult<_>>()?,
            hold_messages: flags.0,
            may_be_followed: flags.1,
        })
    }

    fn label(&self, label: &Bound<'_, PyAny>) -> PyResult<Label> {
        let (name, is_error, payload): (String, bool, Option<usize>) = label.extract()?;
        Ok(Label {
            name: self.number(&name),
            is_error,
            payload,
            is_read: true,
        })
    }

    pub fn protocols(&self, formats: Vec<UserDataForm<'_>>) -> PyResult<Protocols> {
        let format = |(protocol, message): UserDataForm<'_>| {
            let message = message.map(|(name, version, shape)| {
                let shape = structure(&shape, &|label: &Bound<'_, PyAny>| self.label(label))?;
                Ok::<_, PyErr>((self.number(&name), version, shape))
            });
            Ok(UserData {
                protocol,
                message: message.transpose()?,
            })
        };
        let names = ["protocol_name", "protocol_data", "protocol", "name"];
        Ok(Protocols {
            group_id: self.number("group_id"),
            protocol_type: self.number("protocol_type"),
            protocol_name: self.number("protocol_name"),
            protocols: self.number("protocols"),
            name: self.number("name"),
            names: names.map(|name| self.number(name)).into(),
            user_data: self.number("user_data"),
            formats: formats.into_iter().map(format).collect::<PyResult<_>>()?,
        })
    }

    /// Where topic IDs are; nothing else is read from the bodies.
    pub fn topic_ids(
        &self,
        bodies: BodiesForm<'_>,
        (request, response): (TopicStructForms, TopicStructForms),
    ) -> PyResult<TopicIds> {
        let structs = |forms: TopicStructForms, is_request| {
            self.is_request.set(is_request);
            let each = forms.iter().map(|(path, id, name)| TopicStruct {
                path: self.numbers(path),
                id: self.read(id),
                name: name.as_ref().map(|name| self.read(name)),
            });
            each.collect()
        };
        let mut ids = TopicIds {
            bodies: self.bodies(bodies)?,
            request: structs(request, true),
            response: structs(response, false),
        };
        ids.bodies
            .limit(&self.of_request.take(), &self.of_response.take());
        Ok(ids)
    }

    /// Those of a response.
    fn message_steps(&self, steps: Vec<MessageForm<'_>>) -> PyResult<Vec<(Name, MessageStep)>> {
        let step = |(name, step): (String, Bound<'_, PyAny>)| {
            let step = match step.extract::<String>() {
                Ok(kind) if kind == "error" => MessageStep::Error,
                Ok(_) => MessageStep::Message,
                Err(_) => MessageStep::Inner(self.message_steps(step.extract()?)?),
            };
            Ok((self.read(&name), step))
        };
        steps.into_iter().map(step).collect()
    }

    /// The template of a request or response.
    fn template(&self, template: &Bound<'_, PyTuple>, of_request: bool) -> PyResult<Template> {
        self.is_request.set(of_request);
        self.inner_template(template)
    }

    fn inner_template(&self, template: &Bound<'_, PyTuple>) -> PyResult<Template> {
        let clauses = |clauses: Bound<'_, PyAny>| {
            let clauses = clauses.cast_into::<PyTuple>()?;
            clauses.iter().map(|clause| self.clause(&clause)).collect()
        };
        template.iter().map(clauses).collect()
    }

    fn clause(&self, clause: &Bound<'_, PyAny>) -> PyResult<Clause> {
        let (pieces, test): (Bound<'_, PyTuple>, Option<Bound<'_, PyAny>>) = clause.extract()?;
        let mut words = vec![Word::Text(Vec::new())];
        for piece in pieces.iter() {
            let piece = match piece.cast::<PyTuple>() {
                Err(_) => Piece::Text(piece.extract()?),
                Ok(placeholder)
                    if placeholder.len() == 2 && placeholder.get_item(1)?.is_instance_of::<PyBool>() =>
                {
                    Piece::Placeholder {
                        value: self.expression(&placeholder.get_item(0)?)?,
                        raw: placeholder.get_item(1)?.extract()?,
                    }
                }
                Ok(template) => {
                    words.push(Word::Template(self.inner_template(template)?));
                    words.push(Word::Text(Vec::new()));
                    continue;
                }
            };
            if let Some(Word::Text(word)) = words.last_mut() {
                word.push(piece);
            }
        }
        if words.len() > 1 {
            words.iter_mut().for_each(strip);
        }
        Ok(Clause {
            words,
            test: test.map(|test| self.test(&test)).transpose()?,
        })
    }

    fn test(&self, test: &Bound<'_, PyAny>) -> PyResult<Test> {
        let (kind, value, number): (String, Bound<'_, PyAny>, i64) = test.extract()?;
        Ok(Test {
            kind: match kind.as_str() {
                "" => TestKind::True,
                "one" => TestKind::One,
                "several" => TestKind::Several,
                "null" => TestKind::Null,
                "empty" => TestKind::Empty,
                "decoded" => TestKind::Decoded,
                "=" => TestKind::Equal,
                "<" => TestKind::Less,
                ">" => TestKind::Greater,
                _ => return Err(unknown(&kind)),
            },
            value: self.expression(&value)?,
            number,
        })
    }

    fn expression(&self, value: &Bound<'_, PyAny>) -> PyResult<Expression> {
        if value.is_instance_of::<PyInt>() {
            return Ok(Expression::Number(value.extract()?));
        }
        let (function, arguments): (String, Bound<'_, PyTuple>) = value.extract()?;
        if matches!(function.as_str(), "" | "request" | "exchange") {
            return Ok(Expression::Path(self.path(value, false)?));
        }
        let argument = || Ok::<_, PyErr>(Box::new(self.expression(&arguments.get_item(0)?)?));
        let second = || arguments.get_item(1);
        if matches!(
            function.as_str(),
            "topics" | "topics_with_records" | "records" | "names"
        ) {
            self.read_topics();
        }
        Ok(match function.as_str() {
            "only" => Expression::Path(self.path(&arguments.get_item(0)?, true)?),
            "either" => {
                let each = arguments.iter().map(|each| self.expression(&each));
                Expression::Either(each.collect::<PyResult<_>>()?)
            }
            "unless" => Expression::Unless(Box::new((*argument()?, self.expression(&second()?)?))),
            "each" => {
                let path = self.path(&arguments.get_item(0)?, false)?;
                Expression::Each(path, self.inner_template(second()?.cast()?)?)
            }
            "topics" => Expression::Topics(argument()?),
            "topics_with_records" => Expression::TopicsWithRecords(argument()?),
            "records" => Expression::Records(argument()?),
            "names" => Expression::Names(argument()?),
            "size" => Expression::Size(argument()?),
            "milliseconds" => Expression::Milliseconds(argument()?),
            "count" => Expression::Count(argument()?, second()?.extract()?),
            "enum" => Expression::Enum(argument()?, self.enumerated(&second()?)?),
            "offset_time" => Expression::OffsetTime(argument()?, self.enumerated(&second()?)?),
            "list" => Expression::List(
                argument()?,
                match second() {
                    Err(_) => None,
                    Ok(noun) if noun.is_instance_of::<PyString>() => Some(Noun::Text(noun.extract()?)),
                    Ok(noun) => Some(Noun::Value(Box::new(self.expression(&noun)?))),
                },
            ),
            _ => return Err(unknown(&function)),
        })
    }

    fn path(&self, path: &Bound<'_, PyAny>, only: bool) -> PyResult<Path> {
        let (root, names): (String, Vec<String>) = path.extract()?;
        if root == "exchange" {
            return Err(unknown(&root));
        }
        let of_request = root == "request";
        let is_request = self.is_request.replace(of_request || self.is_request.get());
        let names = self.numbers(&names);
        self.is_request.set(is_request);
        Ok(Path {
            of_request,
            names,
            only,
        })
    }

    fn enumerated(&self, names: &Bound<'_, PyAny>) -> PyResult<Enumerated> {
        names.extract::<Vec<(i64, String)>>()
    }
}

/// Removes the blanks between a text and the templates around it.
fn strip(word: &mut Word) {
    if let Word::Text(pieces) = word {
        if let Some(Piece::Text(text)) = pieces.first_mut() {
            *text = text.trim_start().to_owned();
        }
        if let Some(Piece::Text(text)) = pieces.last_mut() {
            *text = text.trim_end().to_owned();
        }
    }
}
