"""Exchanges of a connection -> who is at its client end: software (KIP-511), SASL mechanism, principal.

Read from ApiVersions, SaslHandshake and SaslAuthenticate, and from the raw tokens that follow SaslHandshake
v0. A user is believed only once the broker has accepted the credentials; the credentials themselves are
looked at here and kept nowhere.
"""

from __future__ import annotations

import base64
import binascii
from struct import Struct
from typing import TYPE_CHECKING

from kdissect.kafka.bodies import decode_request, decode_response
from kdissect.kafka.headers import API_VERSIONS

if TYPE_CHECKING:
    from kdissect.model import Body, ConnectionInfo, Exchange, Frame

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36

_KEY_AND_VERSION = Struct(">hh")

_TELLING = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, None})


class Identity:
    """What one connection has told about its client so far.

    Attributes:
        raw_tokens: SaslHandshake v0 was sent: frames that are no requests are SASL tokens.
    """

    __slots__ = ("_candidate", "_info", "_rounds", "raw_tokens")

    def __init__(self, info: ConnectionInfo) -> None:
        self._info = info
        self._candidate: str | None = None
        self._rounds = 0
        self.raw_tokens = False

    def begins_with_gssapi(self) -> None:
        """The stream began with a GSSAPI token instead of a request, as 0.9 clients do."""
        self.raw_tokens = True
        self._info.sasl_mechanism = "GSSAPI"

    def asked(self, frame: Frame) -> None:
        """Look at a SaslHandshake before its answer is there."""
        _, api_version = _KEY_AND_VERSION.unpack_from(frame.data)
        self._info.sasl_mechanism = _request(frame, SASL_HANDSHAKE).get("mechanism")
        self._candidate, self._rounds = None, 0
        self.raw_tokens = api_version == 0

    def learn(self, exchange: Exchange) -> None:
        """Look at a finished exchange, and write on it who the client is."""
        if exchange.api_key in _TELLING:
            if exchange.api_key == API_VERSIONS:
                self._learn_software(exchange)
            elif exchange.api_key in (SASL_AUTHENTICATE, None):
                self._learn_principal(exchange)
        info = self._info
        exchange.client_software_name = info.client_software_name
        exchange.client_software_version = info.client_software_version
        exchange.principal = info.principal
        exchange.sasl_mechanism = info.sasl_mechanism

    def _learn_software(self, exchange: Exchange) -> None:
        if exchange.request_frame is not None:
            request = _request(exchange.request_frame, API_VERSIONS)
            self._info.client_software_name = (
                request.get("client_software_name") or self._info.client_software_name
            )
            self._info.client_software_version = (
                request.get("client_software_version") or self._info.client_software_version
            )

    def _learn_principal(self, exchange: Exchange) -> None:
        if exchange.request_frame is None:
            return
        mechanism = self._info.sasl_mechanism or ""
        self._rounds += 1
        if self._rounds == 1:
            self._candidate = user_of(mechanism, _asked_token(exchange))
        answer = _accepting_token(exchange)
        if answer is None or self._candidate is None:
            return
        if _accepts(mechanism, answer):
            self._info.principal = f"User:{self._candidate}"


def _accepts(mechanism: str, answer: bytes) -> bool:
    """Whether the broker's token says that the credentials are good: the error code can be 0 even if not.

    SCRAM's last token says whether the proof was right, v= or e= (RFC 5802). OAUTHBEARER refuses by a token
    that says why, and the client has to answer that first (RFC 7628, 3.2.2).
    """
    if mechanism.startswith("SCRAM"):
        return answer.startswith(b"v=")
    return mechanism != "OAUTHBEARER" or not answer


def user_of(mechanism: str | None, token: bytes) -> str | None:
    """The user that a client's first token names; None where the mechanism does not tell.

    PLAIN (RFC 4616): [authzid] NUL user NUL password. SCRAM (RFC 5802): ``n,,n=user,r=nonce``. OAUTHBEARER
    (RFC 7628): a JWT, whose ``sub`` is the principal by default.
    """
    if mechanism == "PLAIN":
        parts = token.split(b"\0")
        return parts[1].decode(errors="backslashreplace") if len(parts) == 3 else None
    if mechanism is not None and mechanism.startswith("SCRAM"):
        for attribute in token.split(b","):
            if attribute.startswith(b"n="):
                name = attribute[2:].decode(errors="backslashreplace")
                return name.replace("=2C", ",").replace("=3D", "=")
        return None
    if mechanism == "OAUTHBEARER":
        return _jwt_subject(token)
    return None


def _jwt_subject(token: bytes) -> str | None:
    import orjson  # which few connections need

    try:
        claims = token.split(b"Bearer ", 1)[1].split(b".")[1]
        subject = orjson.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4))).get("sub")
    except (IndexError, ValueError, AttributeError, binascii.Error):
        return None
    return subject if isinstance(subject, str) else None


def _asked_token(exchange: Exchange) -> bytes:
    assert exchange.request_frame is not None
    if exchange.api_key is None:
        return exchange.request_frame.data
    token = _request(exchange.request_frame, SASL_AUTHENTICATE).get("auth_bytes")
    return token if isinstance(token, bytes) else b""


def _accepting_token(exchange: Exchange) -> bytes | None:
    """What the broker said, None where it said nothing or no."""
    frame = exchange.response_frame
    if frame is None or exchange.api_key is None:
        return frame and frame.data
    version, complete = exchange.api_version, frame.complete
    answer = decode_response(
        frame.data, SASL_AUTHENTICATE, version, complete=complete, show_secrets=True
    ).value
    if answer.get("error_code") != 0:
        return None
    return answer.get("auth_bytes") or b""


def _request(frame: Frame, api_key: int) -> Body:
    return decode_request(frame.data, api_key, complete=frame.complete, show_secrets=True).value
