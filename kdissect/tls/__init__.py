"""The bytes of a TLS connection and the secrets of a key log -> the bytes that passed inside."""
