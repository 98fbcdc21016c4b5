"""A frame, API key and version -> its decoded body and anomalies.

This is the only place where a ``DecodeError`` becomes an anomaly. The compiled decoder is tried first. If it
fails or leaves bytes, the layouts of pre-releases are tried (``draft`` in the .kmsg files). If none fits, the
walker reads the frame again and keeps every field it can read. Credentials are redacted here, before any
output sees a body.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.errors import DecodeError, Oversized, Truncated
from kdissect.kafka import apis, schema, secrets
from kdissect.kafka.compiler import LARGE_BYTES, decoder
from kdissect.kafka.headers import (
    API_VERSIONS,
    CORRELATION_ID_BYTES,
    HEADER_BEGINS_BYTES,
    read_correlation_id,
    read_request_header,
    response_body_pos,
)
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.vendors import is_vendor_key
from kdissect.kafka.walker import Walk, walk
from kdissect.limits import DEFAULT
from kdissect.model import ANSWERED, Anomaly, Embedded, Exchange, Frame, Redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.kafka.compiler import Decoder
    from kdissect.kafka.headers import RequestHeader
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.limits import Limits
    from kdissect.model import Body

REQUEST = "request"
RESPONSE = "response"

TRAILING_BYTES = "trailing_bytes"
"""The kind of anomaly of a body that is followed by more bytes."""

ENVELOPE = 58
_KINDS: dict[type[DecodeError], str] = {Truncated: "truncated_body", Oversized: "oversized"}
_UNCAPTURED = "uncaptured_body"
_Shape = tuple[object, ...]
_NO_TAGS = b"\0"
_UNSUPPORTED_VERSION = b"\x00\x23"  # error code 35, first in an ApiVersions response of any version


class BodyLayout(NamedTuple):
    """The schema, version and draft by which a body is decoded."""

    message: Message
    version: int
    draft: Draft | None = None


class DecodedBody(NamedTuple):
    """A body, as far as it could be decoded.

    Attributes:
        value: the decoded fields.
        layout: None if no schema describes the body.
    """

    value: Body
    layout: BodyLayout | None
    anomalies: list[Anomaly]


class _Plain(NamedTuple):
    """How to decode a body in the usual case: no processing is needed if it decodes to its last byte.

    Attributes:
        tags: the bytes expected after the correlation ID of a response.
        response_pos: where its body then begins.
    """

    layout: BodyLayout
    decode: Decoder
    tags: bytes
    response_pos: int


def decode_exchange(
    exchange: Exchange,
    *,
    show_secrets: bool = False,
    budget: DecodeBudget | None = None,
    only_request: bool = False,
) -> None:
    """Set ``request`` and ``response`` with their layouts and anomalies, unless already done. Of a request
    that did not end, the fields that came are set; of such a response none, because they would pass for all.

    Args:
        exchange: with its frames.
        show_secrets: do not redact credentials.
        budget: memory for both bodies. None: the default.
        only_request: whether to leave the response for later.
    """
    if budget is None:
        budget = DecodeBudget()
    plain_request, plain_response = _plain(exchange.api_key, exchange.api_version)
    frame = exchange.request_frame
    if exchange.request is None and frame is not None:
        header = exchange.request_header
        if plain_request is not None and header is not None and header.body_pos >= 0:
            exchange.request_layout = plain_request.layout
            exchange.request = _decode_plainly(plain_request, frame, header.body_pos, budget)
        if exchange.request is None:
            is_request_cut = exchange.announced is not None and not exchange.is_cut
            decoded = decode_request(
                frame.data,
                exchange.api_key,
                complete=frame.complete and not is_request_cut,
                header=header,
                show_secrets=show_secrets,
                budget=budget,
            )
            exchange.request, exchange.request_layout = decoded.value, decoded.layout
            exchange.anomalies += [
                each for each in decoded.anomalies if not (is_request_cut and each.kind == _UNCAPTURED)
            ]
    frame = exchange.response_frame
    if exchange.response is None and frame is not None and not only_request and exchange.announced is None:
        if plain_response is not None and frame.data.startswith(plain_response.tags, CORRELATION_ID_BYTES):
            exchange.response_layout = plain_response.layout
            exchange.response = _decode_plainly(plain_response, frame, plain_response.response_pos, budget)
        if exchange.response is None:
            quotes = secrets.quotes_secrets(exchange.api_key)
            decoded = decode_response(
                frame.data,
                exchange.api_key,
                exchange.api_version,
                complete=frame.complete,
                request=_whole_request(exchange) if quotes else exchange.request,
                show_secrets=show_secrets,
                budget=budget,
            )
            exchange.response, exchange.response_layout = decoded.value, decoded.layout
            exchange.anomalies += decoded.anomalies


def rejected_exchange(version: int, request: bytes, response: bytes, limits: Limits) -> Exchange:
    """An ApiVersions exchange in a version that the broker does not support, decoded: by nothing but its
    frames.
    """
    unknown: Any = None
    first, second = (Frame(data, len(data), 0, unknown, 0, 0) for data in (request, response))
    exchange = Exchange(unknown, 0, ANSWERED, first, second, API_VERSIONS, version, None)
    decode_exchange(exchange, budget=DecodeBudget(limits.decoded_bytes))
    return exchange


@cache
def _plain(api_key: int | None, api_version: int | None) -> tuple[_Plain | None, _Plain | None]:
    """Fast decoders of request and response. None if more than decoding is needed, or if they are unknown: an
    ApiVersions response can have another version, Envelope contains messages, and credentials must be
    redacted.
    """
    if api_key is None or api_version is None or api_key in (API_VERSIONS, ENVELOPE):
        return None, None
    if secrets.quotes_secrets(api_key):
        return None, None
    return (
        _plain_layout(schema.request(api_key), api_version),
        _plain_layout(schema.response(api_key), api_version),
    )


def _plain_layout(message: Message | None, version: int) -> _Plain | None:
    if message is None or version not in message.versions or secrets.carries_secrets(message):
        return None
    tags = _NO_TAGS if message.is_flexible(version) else b""
    return _Plain(
        BodyLayout(message, version), decoder(message, version), tags, CORRELATION_ID_BYTES + len(tags)
    )


def _decode_plainly(plain: _Plain, frame: Frame, pos: int, budget: DecodeBudget) -> Body | None:
    """The body. None if anything is unusual: the slow path then decodes it."""
    size = frame.size
    if size > LARGE_BYTES:
        return None
    try:
        body, end = plain.decode(frame.data, pos, budget)
    except DecodeError:
        return None
    return body if end == size and not budget.met_null else None


def decode_request(
    data: bytes,
    api_key: int | None,
    *,
    complete: bool = True,
    header: RequestHeader | None = None,
    show_secrets: bool = False,
    budget: DecodeBudget | None = None,
) -> DecodedBody:
    """Decode a request.

    Args:
        data: header and body, without the size field.
        api_key: as in its header. None: a SASL token without header.
        complete: whether ``data`` is the whole message.
        header: of ``data``, if already decoded.
        show_secrets: do not redact credentials.
        budget: memory for the body. None: the default for an exchange.
    """
    budget = budget or DecodeBudget()
    if api_key is None:
        return _sasl_token(data, show_secrets)
    header = header or read_request_header(data)
    if header.body_pos < 0:
        rest = data[HEADER_BEGINS_BYTES:]
        detail = f"client ID or tags do not fit {len(data)} bytes" if rest else "it ends before the client ID"
        fault = Anomaly("malformed_header", REQUEST, detail)
        anomaly = fault if complete else _uncaptured(data, REQUEST)
        known = None if schema.request(api_key) is None else api_key  # else it may be a SASL token
        return DecodedBody(_undecoded(known, rest, show_secrets) if rest else {}, None, [anomaly])
    message = schema.request(api_key)
    return _decode(
        message, REQUEST, api_key, header.api_version, data, header.body_pos, complete, show_secrets, budget
    )


def decode_response(
    data: bytes,
    api_key: int | None,
    api_version: int | None,
    *,
    complete: bool = True,
    request: Body | None = None,
    show_secrets: bool = False,
    budget: DecodeBudget | None = None,
) -> DecodedBody:
    """Decode a response.

    Args:
        data: header and body, without the size field.
        api_key: of its request. None if that was not captured.
        api_version: of its request, likewise.
        complete: whether ``data`` is all of it.
        request: the decoded request, None if not all of it was captured. An Envelope's response is decoded
            according to the forwarded request, and what brokers say about redacted values is redacted.
        show_secrets: do not redact credentials.
        budget: memory for the body. None: the default for an exchange.
    """
    budget = budget or DecodeBudget()
    if api_key is None or api_version is None:
        if request is not None:
            return _sasl_token(data, show_secrets)
        return DecodedBody(_undecoded(None, data[CORRELATION_ID_BYTES:], show_secrets), None, [])
    try:
        pos = response_body_pos(data, api_key, api_version)
    except DecodeError as error:
        anomaly = _malformed(error, RESPONSE) if complete else _uncaptured(data, RESPONSE)
        return DecodedBody(_undecoded(api_key, data[CORRELATION_ID_BYTES:], show_secrets), None, [anomaly])
    is_rejected = api_key == API_VERSIONS and data.startswith(_UNSUPPORTED_VERSION, pos)
    if is_rejected:
        api_version = 0  # KIP-511: the response of a broker that does not support the requested version
    message = schema.response(api_key)
    decoded = _decode(
        message, RESPONSE, api_key, api_version, data, pos, complete, show_secrets, budget, request
    )
    if is_rejected:  # clients only need the error code, and some brokers send no more
        anomalies = [each for each in decoded.anomalies if each.kind != _KINDS[Truncated]]
        return decoded._replace(anomalies=anomalies)
    return decoded


def request_layout(exchange: Exchange) -> BodyLayout | None:
    """The layout by which the request's body was decoded. None if no schema describes it."""
    layout: BodyLayout | None = exchange.request_layout
    return layout


def response_layout(exchange: Exchange) -> BodyLayout | None:
    """The layout by which the response's body was decoded. None if no schema describes it."""
    layout: BodyLayout | None = exchange.response_layout
    return layout


def walk_request(exchange: Exchange, *, show_secrets: bool = False) -> Walk | None:
    """Every field of the request's body with its position in ``request_frame.data``. None if no schema
    describes it.
    """
    layout, frame = request_layout(exchange), exchange.request_frame
    if layout is None or frame is None:
        return None
    return _walk(layout, frame, read_request_header(frame.data).body_pos, show_secrets)


def walk_response(exchange: Exchange, *, show_secrets: bool = False) -> Walk | None:
    """Every field of the response's body with its position in ``response_frame.data``. None if no schema
    describes it.
    """
    layout, frame = response_layout(exchange), exchange.response_frame
    if layout is None or frame is None or exchange.api_key is None or exchange.api_version is None:
        return None
    pos = response_body_pos(frame.data, exchange.api_key, exchange.api_version)
    return _walk(layout, frame, pos, show_secrets, exchange)


def fits_request(data: bytes, *, to_the_end: bool = True) -> bool:
    """Whether ``data`` is a request frame that decodes to its last byte (or, not ``to_the_end``, as far as it
    goes). This is how Kafka is recognized.
    """
    try:
        header = read_request_header(data)
    except DecodeError:
        return False
    message = schema.request(header.api_key)
    if header.body_pos < 0 or message is None or header.api_version not in message.versions:
        return False
    return _fits(message, header.api_version, data, header.body_pos, to_the_end)


def trailing_bytes(data: bytes) -> int | None:
    """Bytes after the body of a request frame that decodes. None if it does not."""
    header = read_request_header(data)
    message = schema.request(header.api_key)
    if header.body_pos < 0 or message is None or header.api_version not in message.versions:
        return None
    try:
        end = decoder(message, header.api_version)(data, header.body_pos, DecodeBudget())[1]
    except DecodeError:
        return None
    return len(data) - end


def is_newer_request(data: bytes) -> bool:
    """Whether ``data`` has a request header with an API or version newer than kdissect."""
    try:
        header = read_request_header(data)
    except DecodeError:
        return False
    message = schema.request(header.api_key)
    return header.body_pos >= 0 and (message is None or header.api_version > message.versions.last)


def fits_response(data: bytes, api_key: int, api_version: int, *, to_the_end: bool = True) -> bool:
    """Whether ``data`` can be the response to a request of this API and version, see ``fits_request``."""
    message = schema.response(api_key)
    if message is None or api_version not in message.versions:
        return False
    try:
        pos = response_body_pos(data, api_key, api_version)
    except DecodeError:
        return False
    if api_key == API_VERSIONS and data.startswith(_UNSUPPORTED_VERSION, pos):
        api_version = 0
    return _fits(message, api_version, data, pos, to_the_end)


@cache
def is_unique_response(api_key: int, api_version: int) -> bool:
    """Whether no other API's response has the same types of fields in the same order."""
    message = schema.response(api_key)
    return message is not None and _apis_by_response()[_shape(message, api_version)] == {api_key}


@cache
def _apis_by_response() -> dict[_Shape, set[int]]:
    by_shape: dict[_Shape, set[int]] = {}
    for api in apis.all_apis():
        message = schema.response(api.key)
        if message is not None:
            for version in range(message.versions.first, message.versions.last + 1):
                by_shape.setdefault(_shape(message, version), set()).add(api.key)
    return by_shape


def _shape(message: Message, version: int) -> _Shape:
    return message.is_flexible(version), *_types(message.fields, version)


def _types(fields: tuple[Field, ...], version: int) -> Iterator[object]:
    for field in fields:
        if version in field.versions:
            yield field.type, field.array, field.tag, *_types(field.fields, version)


def can_be_response(beginning: bytes, api_key: int, api_version: int) -> bool:
    """Whether a response that begins like this can belong to the request. For unknown APIs and versions,
    always.
    """
    message = schema.response(api_key)
    if message is None or api_version not in message.versions:
        return True
    return fits_response(beginning, api_key, api_version, to_the_end=False)


def _fits(message: Message, version: int, data: bytes, pos: int, to_the_end: bool) -> bool:
    for layout in _layouts(message, version):
        try:
            end = decoder(message, version, layout.draft)(data, pos, DecodeBudget(DEFAULT.oversized_bytes))[1]
        except Oversized:
            return True  # it fits up to the limit
        except Truncated:
            if not to_the_end:
                return True
        except DecodeError:
            continue
        else:
            if end == len(data):
                return True
    return False


def _layouts(message: Message, version: int) -> list[BodyLayout]:
    drafts = [BodyLayout(message, version, draft) for draft in message.drafts if version in draft.versions]
    return [BodyLayout(message, version), *drafts]


def _decode(
    message: Message | None,
    where: str,
    api_key: int,
    version: int,
    data: bytes,
    pos: int,
    complete: bool,
    show_secrets: bool,
    budget: DecodeBudget,
    request: Body | None = None,
) -> DecodedBody:
    if message is None or version not in message.versions:
        kind = "unknown_api" if message is None else "unknown_version"
        detail = f"API key {api_key}, version {version}"
        anomalies = [] if is_vendor_key(api_key) else [Anomaly(kind, where, detail)]
        return DecodedBody(_undecoded(api_key, data[pos:], show_secrets), None, anomalies)
    layout = BodyLayout(message, version)
    anomalies = []
    fault: DecodeError | None = None
    budget.met_null = False
    try:
        value, end = decoder(message, version, large=len(data) > LARGE_BYTES)(data, pos, budget)
    except DecodeError as error:
        value, end, fault = {}, -1, _bare(error)
    if complete and end != len(data):
        for draft in _layouts(message, version)[1:]:
            drafted = _decode_exactly(draft, data, pos, budget)
            if drafted is not None and draft.draft is not None:
                layout, value, end, fault = draft, drafted, len(data), None
                anomalies.append(Anomaly("draft_layout", where, f"as in Kafka {draft.draft.releases}"))
                break
    if budget.met_null:
        anomalies += _nulls(layout, where, data, pos, budget)
    if fault is not None:
        max_bytes = min(budget.left, budget.oversized) if isinstance(fault, Oversized) else budget.left
        allowed = DecodeBudget(max_bytes)
        walked = walk(message, version, data, pos, budget=allowed, max_spans=None)
        budget.left -= max_bytes - allowed.left
        value, end = walked.value, walked.end
        fault = walked.error or fault
        if isinstance(fault, Oversized):
            anomalies.append(_malformed(fault, where))
        elif complete:
            anomalies.append(_malformed(fault, where))
            if end < len(data):
                value["_undecoded"] = _raw(api_key, data[end:], show_secrets)
    elif end < len(data):
        anomalies.append(Anomaly(TRAILING_BYTES, where, f"{len(data) - end} bytes after the complete body"))
        value["_trailing"] = _raw(api_key, data[end:], show_secrets)
    if not complete:
        anomalies.append(_uncaptured(data, where))
    if api_key == ENVELOPE:
        if where == REQUEST:
            _decode_envelope_request(value, show_secrets, budget)
        elif request is not None:
            _decode_envelope_response(value, request, show_secrets, budget)
    if not show_secrets:
        if where == RESPONSE and secrets.quotes_secrets(api_key):
            secrets.redact_quotes(message, value, request)
        secrets.redact(message, value)
    return DecodedBody(value, layout, anomalies)


def _nulls(layout: BodyLayout, where: str, data: bytes, pos: int, budget: DecodeBudget) -> Iterator[Anomaly]:
    """An anomaly for each field that is null although it is not nullable."""
    budget.met_null = False
    allowed = DecodeBudget(budget.oversized)
    walked = walk(layout.message, layout.version, data, pos, layout.draft, allowed, max_spans=None)
    for path, first in walked.nulls.items():
        yield Anomaly(
            "unexpected_null", f"{where}.{path}", f"null at byte {first}; the field is not nullable"
        )


def _bare(error: DecodeError) -> DecodeError:
    """The error without its traceback, whose frames hold everything decoded so far."""
    error.__traceback__ = error.__context__ = None
    return error


def _decode_exactly(layout: BodyLayout, data: bytes, pos: int, budget: DecodeBudget) -> Body | None:
    try:
        value, end = decoder(*layout, large=len(data) > LARGE_BYTES)(data, pos, budget)
    except DecodeError:
        return None
    return value if end == len(data) else None


def _decode_envelope_request(value: Body, show_secrets: bool, budget: DecodeBudget) -> None:
    """Decode the request that a broker forwards for its client (KIP-590): header and body, without a size."""
    data = value.get("request_data")
    if not isinstance(data, bytes):
        return
    try:
        header = read_request_header(data)
    except DecodeError:
        return
    if (
        header.api_key == ENVELOPE
    ):  # brokers do not forward forwarded requests, but a damaged frame could nest endlessly
        return
    inner = decode_request(data, header.api_key, show_secrets=show_secrets, budget=budget)
    names: Body = {
        "request_api_key": header.api_key,
        "request_api_version": header.api_version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
    }
    value["request_data"] = Embedded(
        _raw(header.api_key, data, show_secrets), {"header": names, "body": inner.value}
    )


def _decode_envelope_response(value: Body, request: Body, show_secrets: bool, budget: DecodeBudget) -> None:
    data, request_data = value.get("response_data"), request.get("request_data")
    if not (isinstance(data, bytes) and isinstance(request_data, Embedded)):
        return
    header = request_data.decoded["header"]
    api_key, version = header["request_api_key"], header["request_api_version"]
    inner = decode_response(
        data,
        api_key,
        version,
        request=request_data.decoded["body"],
        show_secrets=show_secrets,
        budget=budget,
    )
    names: Body = {"correlation_id": read_correlation_id(data)}
    value["response_data"] = Embedded(
        _raw(api_key, data, show_secrets), {"header": names, "body": inner.value}
    )


def _walk(
    layout: BodyLayout, frame: Frame, pos: int, show_secrets: bool, answered: Exchange | None = None
) -> Walk:
    walked = walk(layout.message, layout.version, frame.data, pos, layout.draft)
    if not show_secrets:
        if answered is not None and secrets.quotes_secrets(answered.api_key):
            secrets.redact_quotes(layout.message, walked.value, _whole_request(answered))
        secrets.redact_spans(layout.message, walked)
    return walked


def _whole_request(exchange: Exchange) -> Body | None:
    """The decoded request. None if not all of it was captured."""
    frame = exchange.request_frame
    return exchange.request if frame is not None and frame.complete else None


def _sasl_token(data: bytes, show_secrets: bool) -> DecodedBody:
    return DecodedBody({"sasl_token": data if show_secrets else Redacted(len(data))}, None, [])


def _undecoded(api_key: int | None, data: bytes, show_secrets: bool) -> Body:
    return {"_undecoded": _raw(api_key, data, show_secrets)}


def _raw(api_key: int | None, data: bytes, show_secrets: bool) -> bytes | Redacted:
    return data if show_secrets or not secrets.is_credential_api(api_key) else Redacted(len(data))


def _malformed(error: DecodeError, where: str) -> Anomaly:
    kind = _KINDS.get(type(error), "malformed_body")
    return Anomaly(
        kind, f"{where}.{error.path}" if error.path else where, f"{error.reason} at byte {error.pos}"
    )


def _uncaptured(data: bytes, where: str) -> Anomaly:
    return Anomaly(_UNCAPTURED, where, f"only the first {len(data)} bytes were captured")
