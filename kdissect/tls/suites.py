"""Numbers of versions and cipher suites -> what they stand for. Needs no library for decryption.

Stateless.
"""

from __future__ import annotations

from typing import NamedTuple

TLS_1_0, TLS_1_1, TLS_1_2, TLS_1_3 = 0x0301, 0x0302, 0x0303, 0x0304

GCM, CCM, CCM_8, CHACHA, CBC = "GCM", "CCM", "CCM_8", "CHACHA20_POLY1305", "CBC"


class Suite(NamedTuple):
    """A cipher suite.

    Attributes:
        name: as IANA registers it, without ``TLS_``.
        kind: how records are protected.
        key_bytes: of the encryption key.
        hash: of the key schedule; before TLS 1.2 it is always MD5 with SHA-1.
        mac: hash of the MAC; empty for AEAD.
    """

    name: str
    kind: str
    key_bytes: int
    hash: str
    mac: str = ""


def _suites() -> dict[int, Suite]:
    suites = {
        0x1301: Suite("AES_128_GCM_SHA256", GCM, 16, "sha256"),
        0x1302: Suite("AES_256_GCM_SHA384", GCM, 32, "sha384"),
        0x1303: Suite("CHACHA20_POLY1305_SHA256", CHACHA, 32, "sha256"),
        0x1304: Suite("AES_128_CCM_SHA256", CCM, 16, "sha256"),
        0x1305: Suite("AES_128_CCM_8_SHA256", CCM_8, 16, "sha256"),
    }
    # Key exchange: the suites AES_128_CBC_SHA, AES_256_CBC_SHA, AES_128_CBC_SHA256, AES_256_CBC_SHA256 or
    # _SHA384, AES_128_GCM_SHA256, AES_256_GCM_SHA384, AES_128_CCM, AES_256_CCM, AES_128_CCM_8, AES_256_CCM_8,
    # CHACHA20.
    rows: dict[str, tuple[int | None, ...]] = {
        "RSA": (0x2F, 0x35, 0x3C, 0x3D, 0x9C, 0x9D, 0xC09C, 0xC09D, 0xC0A0, 0xC0A1, None),
        "DHE_RSA": (0x33, 0x39, 0x67, 0x6B, 0x9E, 0x9F, 0xC09E, 0xC09F, 0xC0A2, 0xC0A3, 0xCCAA),
        "DHE_DSS": (0x32, 0x38, 0x40, 0x6A, 0xA2, 0xA3, None, None, None, None, None),
        "DH_anon": (0x34, 0x3A, 0x6C, 0x6D, 0xA6, 0xA7, None, None, None, None, None),
        "ECDHE_ECDSA": (
            0xC009, 0xC00A, 0xC023, 0xC024, 0xC02B, 0xC02C, 0xC0AC, 0xC0AD, 0xC0AE, 0xC0AF, 0xCCA9,
        ),
        "ECDHE_RSA": (0xC013, 0xC014, 0xC027, 0xC028, 0xC02F, 0xC030, None, None, None, None, 0xCCA8),
        "ECDH_ECDSA": (0xC004, 0xC005, 0xC025, 0xC026, 0xC02D, 0xC02E, None, None, None, None, None),
        "ECDH_RSA": (0xC00E, 0xC00F, 0xC029, 0xC02A, 0xC031, 0xC032, None, None, None, None, None),
        "ECDH_anon": (0xC018, 0xC019, None, None, None, None, None, None, None, None, None),
    }  # fmt: skip
    for exchange, numbers in rows.items():
        wide = "sha384" if exchange.startswith("EC") else "sha256"
        ciphers = (
            Suite("AES_128_CBC_SHA", CBC, 16, "sha256", "sha1"),
            Suite("AES_256_CBC_SHA", CBC, 32, "sha256", "sha1"),
            Suite("AES_128_CBC_SHA256", CBC, 16, "sha256", "sha256"),
            Suite(f"AES_256_CBC_{wide.upper()}", CBC, 32, wide, wide),
            Suite("AES_128_GCM_SHA256", GCM, 16, "sha256"),
            Suite("AES_256_GCM_SHA384", GCM, 32, "sha384"),
            Suite("AES_128_CCM", CCM, 16, "sha256"),
            Suite("AES_256_CCM", CCM, 32, "sha256"),
            Suite("AES_128_CCM_8", CCM_8, 16, "sha256"),
            Suite("AES_256_CCM_8", CCM_8, 32, "sha256"),
            Suite("CHACHA20_POLY1305_SHA256", CHACHA, 32, "sha256"),
        )
        for number, cipher in zip(numbers, ciphers, strict=True):
            if number is not None:
                suites[number] = cipher._replace(name=f"{exchange}_WITH_{cipher.name}")
    return suites


SUITES = _suites()
"""Number of a cipher suite -> the suite. Others cannot be decrypted."""
