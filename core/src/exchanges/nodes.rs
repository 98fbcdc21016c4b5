//! Bodies -> the brokers that they name, as kdissect/exchanges/nodes.py finds them, and those that a response
//! advertises.

use crate::exchanges::connection::NAME_BYTES;
use crate::kafka::tree::{each, elements, field, Decoded, Name, Value};
use crate::Odd;

/// Structs that name brokers: the path to them, the field with the ID, and the path from there to host and port.
pub struct NodePlace {
    pub structs: Vec<Name>,
    pub id: Name,
    pub inside: Vec<Name>,
}

/// Where brokers are in both messages.
pub struct NodePlan {
    pub request: Vec<NodePlace>,
    pub response: Vec<NodePlace>,
    /// Whether clients connect to those in the response, and whether these are in the cluster that it names.
    pub are_advertised: bool,
    pub are_of_cluster: bool,
    pub host: Name,
    pub port: Name,
    /// The first that is not empty counts.
    pub racks: [Name; 2],
    /// Arrays of advertised brokers; the response can be one itself.
    pub lists: [Name; 2],
}

/// A broker, as a message names it.
pub struct Node<'a> {
    pub id: i64,
    pub host: &'a str,
    pub port: i64,
    pub rack: Option<&'a str>,
}

impl NodePlan {
    /// The brokers in wire order; some may be there twice.
    pub fn nodes<'a>(&self, decoded: &Decoded<'a>) -> Result<Vec<Node<'a>>, Odd> {
        let mut nodes = Vec::new();
        let both = [
            (&self.request, &decoded.request),
            (&self.response, &decoded.response),
        ];
        for (places, body) in both {
            for place in places {
                each(body, &place.structs, &mut |named| {
                    let Some(id @ 0..) = field(Some(named), place.id)? else {
                        return Ok(());
                    };
                    let mut racks = self.racks.iter().map(|name| text(named, *name));
                    let rack = racks.find_map(Result::transpose).transpose()?;
                    each(named, &place.inside, &mut |listener| {
                        let host = text(listener, self.host)?;
                        if let Some((host, port)) = host.zip(field(Some(listener), self.port)?) {
                            nodes.push(Node { id, host, port, rack });
                        }
                        Ok(())
                    })
                })?;
            }
        }
        Ok(nodes)
    }

    /// Host and port of those that the response advertises.
    pub fn advertised<'a>(&self, decoded: &Decoded<'a>) -> Result<Vec<(&'a str, i64)>, Odd> {
        let mut ends = Vec::new();
        if !self.are_advertised {
            return Ok(ends);
        }
        let response = &decoded.response;
        let listed = self.lists.iter().flat_map(|name| elements(response.get(*name)));
        for each in listed.chain([response]) {
            let port = field(Some(each), self.port)?.filter(|port| *port > 0);
            ends.extend(text(each, self.host)?.zip(port));
        }
        Ok(ends)
    }
}

/// Text that is not empty.
fn text<'a>(value: &Value<'a>, name: Name) -> Result<Option<&'a str>, Odd> {
    match value.get(name) {
        Some(Value::Text(text)) if text.len() > NAME_BYTES => Err(Odd),
        Some(Value::Text(text)) if !text.is_empty() => Ok(Some(text)),
        Some(Value::Text(_) | Value::Null) | None => Ok(None),
        Some(_) => Err(Odd),
    }
}
