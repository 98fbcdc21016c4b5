//! Values of bodies, and keys and values of records, as JSON (kdissect/tables/values.py); the latter also as text
//! (kdissect/text/table.py).

use crate::kafka::entries::{entries, LogEntry};
use crate::kafka::tree::{Name, Value};
use crate::sinks::decimal::put;
use crate::Odd;

/// Writes a key or value as JSON, and after `between` its encoding, as `text_and_encoding` in
/// kdissect/tables/values.py defines them.
pub fn json(payload: Option<&[u8]>, between: &[u8], out: &mut Vec<u8>) {
    let encoding: &[u8] = match payload {
        None => {
            out.extend_from_slice(b"null");
            b"null"
        }
        Some(payload) if std::str::from_utf8(payload).is_ok() => {
            json_text(payload, out);
            b"\"utf-8\""
        }
        Some(payload) => {
            out.push(b'"');
            base64(payload, out);
            out.push(b'"');
            b"\"base64\""
        }
    };
    out.extend_from_slice(between);
    out.extend_from_slice(encoding);
}

/// Writes UTF-8 as orjson does.
pub fn json_text(mut text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    loop {
        let plain = prefix(text, |byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
        out.extend_from_slice(&text[..plain]);
        let Some(byte) = text.get(plain) else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        text = &text[plain + 1..];
    }
    out.push(b'"');
}

/// Number of bytes before the first that is not plain.
fn prefix(text: &[u8], is_plain: impl Fn(u8) -> bool) -> usize {
    let are_plain = |block: &&[u8]| block.iter().fold(true, |all, byte| all & is_plain(*byte)); // vectorized
    let blocks = BLOCK * text.chunks_exact(BLOCK).take_while(are_plain).count();
    blocks + text[blocks..].iter().take_while(|byte| is_plain(**byte)).count()
}

const BLOCK: usize = 32;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648 with padding.
pub fn base64(data: &[u8], out: &mut Vec<u8>) {
    for chunk in data.chunks(3) {
        let mut bytes = [0; 3];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let [first, second, third] = bytes;
        let sextets = [
            first >> 2,
            first << 4 | second >> 4,
            second << 2 | third >> 6,
            third,
        ];
        let mut text = sextets.map(|sextet| BASE64[usize::from(sextet & 0x3F)]);
        text[chunk.len() + 1..].fill(b'=');
        out.extend_from_slice(&text);
    }
}

const NULL: &str = "NULL";
/// Whole numbers below are written without an exponent, and exactly.
const WHOLE: f64 = 1e15;

/// The text of a key or value. None if it contains anything but printable ASCII, or nothing but blanks, or needs
/// quotes because it looks like a null or empty one.
pub fn plain_text(payload: Option<&[u8]>) -> Option<&str> {
    let Some(payload) = payload else {
        return Some(NULL);
    };
    if prefix(payload, |byte| (0x20..0x7F).contains(&byte)) < payload.len() {
        return None;
    }
    let text = std::str::from_utf8(payload).ok()?;
    let inside = text.trim_matches(['\\', '"']);
    (!inside.trim_matches(' ').is_empty() && inside != NULL).then_some(text)
}

/// Writes a value as JSON; `keys`: by the number of a name.
pub fn value_json(keys: &[String], value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Odd> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(value) => put_bool(out, *value),
        Value::Int(number) => put(out, *number),
        Value::Float(number) if number.fract() == 0.0 && number.abs() < WHOLE => {
            out.extend_from_slice(format!("{number:.1}").as_bytes());
        }
        Value::Float(_) => return Err(Odd),
        Value::Embedded(embedded) => {
            out.extend_from_slice(b"{\"base64\":\"");
            base64(embedded.data, out);
            out.extend_from_slice(b"\",\"decoded\":{\"_message\":");
            out.extend_from_slice(
                keys.get(embedded.message)
                    .ok_or(Odd)?
                    .trim_end_matches(':')
                    .as_bytes(),
            );
            out.extend_from_slice(b",\"_version\":");
            put(out, embedded.version.into());
            for field in &embedded.fields {
                out.push(b',');
                field_json(keys, field, out)?;
            }
            out.extend_from_slice(b"}}");
        }
        Value::Text(text) => json_text(text.as_bytes(), out),
        Value::Uuid(id) => {
            out.push(b'"');
            out.extend_from_slice(id);
            out.push(b'"');
        }
        Value::Bytes(bytes) => {
            out.extend_from_slice(b"{\"base64\":\"");
            base64(bytes, out);
            out.extend_from_slice(b"\"}");
        }
        Value::Records(data) => listed(entries(data), b"[", b"]", out, |entry, out| {
            header(&entry?, out);
            Ok(())
        })?,
        Value::List(values) => listed(values.iter(), b"[", b"]", out, |each, out| {
            value_json(keys, each, out)
        })?,
        Value::Struct(fields) => listed(fields.iter(), b"{", b"}", out, |field, out| {
            field_json(keys, field, out)
        })?,
    }
    Ok(())
}

fn field_json(keys: &[String], (name, value): &(Name, Value<'_>), out: &mut Vec<u8>) -> Result<(), Odd> {
    out.extend_from_slice(keys.get(*name).ok_or(Odd)?.as_bytes());
    value_json(keys, value, out)
}

pub fn listed<T>(
    values: impl Iterator<Item = T>,
    before: &[u8],
    after: &[u8],
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>) -> Result<(), Odd>,
) -> Result<(), Odd> {
    out.extend_from_slice(before);
    for (place, value) in values.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write(value, out)?;
    }
    out.extend_from_slice(after);
    Ok(())
}

/// The header of a batch or message, with its attributes by name.
fn header(entry: &LogEntry, out: &mut Vec<u8>) {
    let put_all = |numbers: &[(&str, i64)], out: &mut Vec<u8>| {
        for (name, number) in numbers {
            out.extend_from_slice(name.as_bytes());
            put(out, *number);
        }
    };
    match entry {
        LogEntry::Batch(batch) => put_all(
            &[
                ("{\"base_offset\":", batch.base_offset),
                (",\"batch_length\":", batch.length.into()),
                (",\"partition_leader_epoch\":", batch.leader_epoch.into()),
                (",\"magic\":", entry.magic().into()),
                (",\"crc\":", batch.crc.into()),
                (",\"attributes\":", batch.attributes.into()),
                (",\"last_offset_delta\":", batch.last_offset_delta.into()),
                (",\"base_timestamp\":", batch.base_timestamp),
                (",\"max_timestamp\":", batch.max_timestamp),
                (",\"producer_id\":", batch.producer_id),
                (",\"producer_epoch\":", batch.producer_epoch.into()),
                (",\"base_sequence\":", batch.base_sequence.into()),
                (",\"records_count\":", batch.records.into()),
            ],
            out,
        ),
        LogEntry::Message(message) => {
            put_all(
                &[
                    ("{\"offset\":", message.offset),
                    (",\"message_size\":", message.size.into()),
                    (",\"crc\":", message.crc.into()),
                    (",\"magic\":", message.magic.into()),
                    (",\"attributes\":", message.attributes.into()),
                ],
                out,
            );
            if let Some(timestamp) = message.timestamp {
                put_all(&[(",\"timestamp\":", timestamp)], out);
            }
        }
    }
    let timestamp_type = entry
        .timestamp_type()
        .map(|kind| [",\"timestamp_type\":\"", kind, "\""]);
    let compression = [",\"compression\":\"", entry.codec(), "\""];
    for text in compression
        .into_iter()
        .chain(timestamp_type.into_iter().flatten())
    {
        out.extend_from_slice(text.as_bytes());
    }
    if let Some(batch) = entry.batch() {
        for (name, value) in [
            (",\"transactional\":", batch.is_transactional()),
            (",\"control\":", batch.is_control()),
            (",\"delete_horizon\":", batch.attributes & 0x40 != 0),
        ] {
            out.extend_from_slice(name.as_bytes());
            put_bool(out, value);
        }
    }
    out.push(b'}');
}

fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(payload: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        json(payload, b",", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn payloads_become_json() {
        assert_eq!(json_of(None), "null,null");
        assert_eq!(json_of(Some(b"")), r#""","utf-8""#);
        assert_eq!(
            json_of(Some("a\"\\/\u{7f}é".as_bytes())),
            "\"a\\\"\\\\/\u{7f}é\",\"utf-8\""
        );
        assert_eq!(
            json_of(Some(b"\x08\t\n\x0c\r\0\x1f")),
            r#""\b\t\n\f\r\u0000\u001f","utf-8""#
        );
        assert_eq!(json_of(Some(b"\xff")), r#""/w==","base64""#);
        assert_eq!(json_of(Some(b"\xff\xfe")), r#""//4=","base64""#);
        assert_eq!(json_of(Some(b"\xff\0\x01\xfb")), r#""/wAB+w==","base64""#);
    }

    #[test]
    fn an_escape_is_found_wherever_it_is() {
        for at in 0..3 * BLOCK {
            let mut text = [b'x'; 3 * BLOCK];
            text[at] = b'\n';
            let expected = format!(
                r#""{}\n{}","utf-8""#,
                "x".repeat(at),
                "x".repeat(3 * BLOCK - 1 - at)
            );
            assert_eq!(json_of(Some(&text)), expected);
            assert_eq!(plain_text(Some(&text)), None);
        }
    }

    #[test]
    fn text_is_plain_or_left_out() {
        assert_eq!(plain_text(None), Some("NULL"));
        assert_eq!(plain_text(Some(b"a ~")), Some("a ~"));
        for odd in ["", " ", "NULL", "\"", "\\\"NULL\"", "é", "\u{7f}", "\t"] {
            assert_eq!(plain_text(Some(odd.as_bytes())), None, "{odd:?}");
        }
    }
}
