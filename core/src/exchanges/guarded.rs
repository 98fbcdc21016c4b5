//! What is shown of bodies only if Python does not decide otherwise: values of configs, which may be credentials, and
//! what members of groups tell each other, which is encoded as the protocol of the group has it.

use crate::kafka::body::Struct;
use crate::kafka::tree::{elements, embedded, Decoded, Label, Name, Value};
use crate::{Odd, Why};

/// The fields of a config.
pub struct Configs {
    pub value: Name,
    /// The first that it has is its name.
    pub names: [Name; 2],
    pub is_sensitive: Name,
}

impl Configs {
    /// Odd if a value in both bodies may be a credential. `is_secret`: of a config with this name.
    pub fn check(
        &self,
        decoded: &Decoded<'_>,
        is_secret: &dyn Fn(&str) -> Result<bool, Odd>,
    ) -> Result<(), Odd> {
        [&decoded.request, &decoded.response]
            .into_iter()
            .try_for_each(|body| self.check_value(body, is_secret))
    }

    fn check_value(
        &self,
        value: &Value<'_>,
        is_secret: &dyn Fn(&str) -> Result<bool, Odd>,
    ) -> Result<(), Odd> {
        match value {
            Value::List(values) => values
                .iter()
                .try_for_each(|each| self.check_value(each, is_secret)),
            Value::Struct(fields) => {
                if value.get(self.value).is_some() {
                    let is_marked = value.get(self.is_sensitive).is_some_and(Value::is_true);
                    let mut names = self.names.iter().filter_map(|name| match value.get(*name) {
                        Some(Value::Text(name)) => Some(*name),
                        _ => None,
                    });
                    let name = names.next().filter(|_| !is_marked);
                    if is_secret(name.ok_or_else(|| Why::Secret.odd())?)? {
                        return Err(Why::Secret.odd());
                    }
                }
                fields
                    .iter()
                    .try_for_each(|(_, inner)| self.check_value(inner, is_secret))
            }
            _ => Ok(()),
        }
    }
}

/// The fields that say which protocol a group has.
pub struct Protocols {
    pub group_id: Name,
    pub protocol_type: Name,
    pub protocol_name: Name,
    pub protocols: Name,
    pub name: Name,
    /// Those that name it, also in structs.
    pub names: Vec<Name>,
    /// The bytes of an assignor, in an embedded message.
    pub user_data: Name,
    pub formats: Vec<UserData>,
}

/// The bytes of an assignor.
pub struct UserData {
    /// Name of the protocol.
    pub protocol: String,
    /// The message, its version, and its layout. None: they are left to Python.
    pub message: Option<(Name, i16, Struct<Label>)>,
}

/// What bodies say about the protocol of a group: in both type and name; in the request, the group, and the names of
/// those that are offered.
pub struct ProtocolNames<'a> {
    pub group_id: Option<&'a str>,
    pub of_request: [Option<&'a str>; 2],
    pub of_response: [Option<&'a str>; 2],
    pub offered: Vec<Option<&'a str>>,
}

impl Protocols {
    pub fn mentioned<'a>(
        &self,
        Decoded {
            request, response, ..
        }: &Decoded<'a>,
    ) -> ProtocolNames<'a> {
        let of = |body: &Value<'a>| [self.protocol_type, self.protocol_name].map(|name| body.text(name));
        let offered = elements(request.get(self.protocols)).iter();
        ProtocolNames {
            group_id: match request.get(self.group_id) {
                Some(Value::Text(group)) => Some(group),
                _ => None,
            },
            of_request: of(request),
            of_response: of(response),
            offered: offered.map(|each| each.text(self.name)).collect(),
        }
    }

    /// Decodes the bytes of assignors. `protocol`: of the group.
    pub fn open(&self, decoded: &mut Decoded<'_>, protocol: &str, budget: i64) -> Result<(), Odd> {
        self.open_value(&mut decoded.request, protocol, budget)?;
        self.open_value(&mut decoded.response, protocol, budget)
    }

    fn open_value(&self, value: &mut Value<'_>, protocol: &str, budget: i64) -> Result<(), Odd> {
        let own = self.names.iter().find_map(|name| value.text(*name));
        let protocol = own.unwrap_or(protocol);
        match value {
            Value::List(values) => values
                .iter_mut()
                .try_for_each(|each| self.open_value(each, protocol, budget)),
            Value::Struct(fields) => fields
                .iter_mut()
                .try_for_each(|(_, inner)| self.open_value(inner, protocol, budget)),
            Value::Embedded(message) => {
                for (name, inner) in &mut message.fields {
                    match inner {
                        Value::Bytes(data) if *name == self.user_data && !data.is_empty() => {
                            let mut formats = self.formats.iter();
                            if let Some(format) = formats.find(|each| each.protocol == protocol) {
                                let (message, version, shape) = format.message.as_ref().ok_or(Odd)?;
                                *inner = embedded((*message, *version), shape, data, budget)?;
                            }
                        }
                        _ => (),
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
