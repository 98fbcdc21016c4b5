//! The class `kdissect._core.Line`: a [`line::Line`] for kdissect/text/about_template.py.

use std::cell::RefCell;
use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyTuple};

use crate::line::{
    self, Enumerated, Expression, Fact, Label, Noun, Path, Piece, Template, Test, TestKind, TopicNames, Word,
    KNOWN_NAMES,
};
use crate::python::structure;
use crate::{guarded, Odd};

/// What the templates of one version of an API write.
#[pyclass(frozen, module = "kdissect._core")]
pub struct Line(pub line::Line);

#[pymethods]
impl Line {
    /// Arguments: of request and response, the struct as for `Decoder` (but each field's name together with
    /// whether it is an error code), the template, fitted to the version, and the structs with IDs and names of
    /// topics, see [`line::Naming`].
    #[new]
    fn new(
        request: &Bound<'_, PyTuple>,
        response: &Bound<'_, PyTuple>,
        request_template: &Bound<'_, PyTuple>,
        response_template: &Bound<'_, PyTuple>,
        request_names: Vec<(Vec<String>, String, String)>,
        response_names: Vec<(Vec<String>, String, String)>,
    ) -> PyResult<Self> {
        let names = Names::default();
        let label = |label: &Bound<'_, PyAny>| {
            let (name, is_error): (String, bool) = label.extract()?;
            Ok(Label {
                name: names.number(&name),
                is_error,
            })
        };
        Ok(Line(line::Line {
            request: structure(request, &label)?,
            response: structure(response, &label)?,
            request_template: names.template(request_template)?,
            response_template: names.template(response_template)?,
            request_names: names.naming(&request_names),
            response_names: names.naming(&response_names),
        }))
    }

    /// The text about the exchange with these bodies. None: it is left to Python.
    ///
    /// Arguments: frames and where their bodies begin, no response if there is none; the memory for both
    /// bodies; a function from the ID of a topic to its name, or None.
    fn text(
        &self,
        request: (Bound<'_, PyBytes>, usize),
        response: Option<(Bound<'_, PyBytes>, usize)>,
        budget: i64,
        topics: &Bound<'_, PyAny>,
    ) -> Option<String> {
        guarded(|| {
            let mut text = String::new();
            let request = request.0.as_bytes().get(request.1..).ok_or(Odd)?;
            let response = match response {
                Some((ref data, pos)) => Some(data.as_bytes().get(pos..).ok_or(Odd)?),
                None => None,
            };
            self.0.write(request, response, budget, topics, &mut text)?;
            Ok(text)
        })
        .ok()
    }
}

impl TopicNames for Bound<'_, PyAny> {
    fn name(&self, id: &str) -> Option<String> {
        self.call1((id,)).ok()?.extract().ok()
    }

    /// Whoever calls `text` learns names from the bodies.
    fn learn(&self, _: &str, _: &str) -> Result<(), Odd> {
        Ok(())
    }
}

/// Numbers for the names of fields, and templates in which they are used.
struct Names(RefCell<HashMap<String, line::Name>>);

impl Default for Names {
    fn default() -> Self {
        let known = KNOWN_NAMES.iter().enumerate();
        Names(RefCell::new(
            known.map(|(number, name)| (name.to_string(), number)).collect(),
        ))
    }
}

fn unknown(what: &str) -> PyErr {
    PyValueError::new_err(format!("left to Python: {what}"))
}

impl Names {
    fn number(&self, name: &str) -> line::Name {
        let mut names = self.0.borrow_mut();
        let next = names.len();
        *names.entry(name.to_owned()).or_insert(next)
    }

    fn naming(&self, naming: &[(Vec<String>, String, String)]) -> Vec<line::Naming> {
        let each = |(path, id, name): &(Vec<String>, String, String)| line::Naming {
            path: path.iter().map(|field| self.number(field)).collect(),
            id: self.number(id),
            name: self.number(name),
        };
        naming.iter().map(each).collect()
    }

    fn template(&self, template: &Bound<'_, PyTuple>) -> PyResult<Template> {
        let facts = |facts: Bound<'_, PyAny>| {
            let facts = facts.cast_into::<PyTuple>()?;
            facts.iter().map(|fact| self.fact(&fact)).collect()
        };
        template.iter().map(facts).collect()
    }

    fn fact(&self, fact: &Bound<'_, PyAny>) -> PyResult<Fact> {
        let (pieces, test): (Bound<'_, PyTuple>, Option<Bound<'_, PyAny>>) = fact.extract()?;
        let mut words = vec![Word::Text(Vec::new())];
        for piece in pieces.iter() {
            let piece = match piece.cast::<PyTuple>() {
                Err(_) => Piece::Text(piece.extract()?),
                Ok(hole) if hole.len() == 2 && hole.get_item(1)?.is_instance_of::<PyBool>() => Piece::Hole {
                    value: self.expression(&hole.get_item(0)?)?,
                    raw: hole.get_item(1)?.extract()?,
                },
                Ok(template) => {
                    words.push(Word::Template(self.template(template)?));
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
        Ok(Fact {
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
        Ok(match function.as_str() {
            "only" => Expression::Path(self.path(&arguments.get_item(0)?, true)?),
            "either" => {
                let each = arguments.iter().map(|each| self.expression(&each));
                Expression::Either(each.collect::<PyResult<_>>()?)
            }
            "unless" => Expression::Unless(Box::new((*argument()?, self.expression(&second()?)?))),
            "each" => {
                let path = self.path(&arguments.get_item(0)?, false)?;
                Expression::Each(path, self.template(second()?.cast()?)?)
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
        Ok(Path {
            of_request: root == "request",
            names: names.iter().map(|name| self.number(name)).collect(),
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
