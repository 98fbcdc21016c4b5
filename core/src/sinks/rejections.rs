//! ApiVersions requests in a version that the broker does not support -> what Python writes about them. It responds in
//! version 0 (KIP-511), and all clients of its kind get the same. Holds the latest texts, by frames without correlation
//! IDs.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::ops::Range;

use crate::sinks::facts::Answered;
use crate::Odd;

/// Where the correlation ID is in requests and responses.
const REQUEST_ID: Range<usize> = 4..8;
const RESPONSE_ID: Range<usize> = 0..4;
/// Maximum number of texts, and of bytes of a frame.
const TEXTS: usize = 256;
const FRAME_BYTES: usize = 1024;

/// From version and both frames to a text.
type Describe = dyn Fn(i16, &[u8], &[u8]) -> Result<String, Odd> + Send + Sync;

pub struct Rejections {
    describe: Box<Describe>,
    texts: HashMap<Rejection, String>,
}

type Rejection = (i16, Box<[u8]>, Box<[u8]>);

impl Rejections {
    pub fn new(describe: Box<Describe>) -> Self {
        Rejections {
            describe,
            texts: HashMap::new(),
        }
    }

    pub fn text(&mut self, exchange: &Answered<'_>) -> Result<&str, Odd> {
        let (request, response) = (&exchange.request.data, &exchange.response.data);
        if request.len().max(response.len()) > FRAME_BYTES {
            return Err(Odd);
        }
        if self.texts.len() >= TEXTS {
            self.texts.clear();
        }
        let version = exchange.header.api_version;
        let rest = |frame: &[u8], id: Range<usize>| [&frame[..id.start], &frame[id.end..]].concat();
        let key = (
            version,
            rest(request, REQUEST_ID).into(),
            rest(response, RESPONSE_ID).into(),
        );
        Ok(match self.texts.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert((self.describe)(version, request, response)?),
        })
    }
}
