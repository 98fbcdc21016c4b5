//! TLS records -> their plaintext: the common case of kdissect/tls/.

pub mod records;
