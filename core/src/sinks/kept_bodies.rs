//! Bodies of exchanges -> what Python keeps of them, so that it decodes those that are alike once. Holds the bodies,
//! up to a number of bytes.

use std::collections::HashMap;

use crate::exchanges::connection::Frame;
use crate::kafka::tree::Decoded;
use crate::sinks::facts::{Answered, Handle};
use crate::{Odd, Why};

/// Most bytes of the bodies, and of what Python keeps of them.
const MAX_BYTES: i64 = 4 << 20;
/// What Python keeps of any bodies: an exchange, and two dicts.
const EXCHANGE_BYTES: i64 = 1024;
/// Of those of one exchange; larger ones are left to Python.
const MAX_BYTES_OF_ONE: i64 = MAX_BYTES / 8;

/// What Python keeps of bodies: from a connection, API key and version, request and response. None: it
/// takes all exchanges that are alike.
pub type DecodeBodies =
    Box<dyn Fn(&Handle, (i16, i16), [&Frame; 2]) -> Result<Option<Handle>, Odd> + Send + Sync>;

#[derive(Default)]
pub struct KeptBodies {
    known: HashMap<Box<[u8]>, Option<Handle>>,
    bytes: i64,
    pub is_full: bool,
    key: Vec<u8>,
}

impl KeptBodies {
    /// What Python keeps of the bodies of an exchange. Odd: it takes the exchange. `tags`: see `Answered`.
    pub fn of(
        &mut self,
        exchange: &Answered<'_>,
        decoded: &Decoded<'_>,
        tags: &[u8],
        decode: &DecodeBodies,
    ) -> Result<Handle, Odd> {
        let (header, request) = (exchange.header, exchange.request_body()?);
        self.key.clear();
        self.key.extend_from_slice(&header.api_key.to_be_bytes());
        self.key.extend_from_slice(&header.api_version.to_be_bytes());
        self.key.extend_from_slice(&request.len().to_be_bytes());
        self.key.extend_from_slice(request);
        self.key.extend_from_slice(exchange.response_body(tags)?);
        if let Some(known) = self.known.get(&*self.key) {
            return known.clone().ok_or_else(|| Why::Content.odd());
        }
        let key_bytes = i64::try_from(self.key.len()).map_err(|_| Odd)?;
        let bytes = decoded
            .costs
            .iter()
            .sum::<i64>()
            .saturating_add(EXCHANGE_BYTES + key_bytes);
        self.is_full |= self.bytes.saturating_add(bytes) > MAX_BYTES;
        if self.is_full || bytes > MAX_BYTES_OF_ONE {
            return Err(Why::Content.odd());
        }
        let api = (header.api_key, header.api_version);
        let content = decode(exchange.known.info()?, api, [exchange.request, exchange.response])?;
        self.bytes += bytes;
        self.known.insert(self.key.as_slice().into(), content.clone());
        content.ok_or_else(|| Why::Content.odd())
    }

    /// Forgets all of them, if there is no room for more.
    pub fn make_room(&mut self) {
        if self.is_full {
            *self = KeptBodies::default();
        }
    }
}
