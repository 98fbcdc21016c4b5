"""An exchange -> whether its bytes contain a credential, or could contain one. Holds no state.

The exchange was decoded with credentials redacted: if any was, its bytes on the wire must not be written. Nor
must undecoded bytes: after a gap that hides the start of a message, its remaining bytes are skipped, and they
may contain a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka.records import RecordData
from kdissect.kafka.secrets import FETCH, FETCH_SNAPSHOT, is_cluster_metadata, is_credential_api
from kdissect.model import Embedded, Redacted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Anomaly, Exchange

_CONNECTION = "connection"


def may_hide_credentials(anomalies: Iterable[Anomaly]) -> bool:
    """Whether bytes of the connection were skipped, or may have been: every anomaly of a connection, rather
    than of a message, means that, except that a direction was not captured.
    """
    return any(each.where == _CONNECTION and each.kind != "one_direction" for each in anomalies)


def may_carry_credentials(exchange: Exchange) -> bool:
    """Whether either message has a redacted value or a record of the cluster metadata topic, which holds
    SCRAM credentials and delegation tokens; or may have one in a part that was not captured; or bytes before
    it were skipped.
    """
    if may_hide_credentials(exchange.anomalies):
        return True
    if not is_credential_api(exchange.api_key):
        return False
    is_complete = all(frame.complete for frame in (exchange.request_frame, exchange.response_frame) if frame)
    if not is_complete and exchange.api_key != FETCH:
        return True
    is_metadata = exchange.api_key == FETCH_SNAPSHOT
    return any(_is_secret(body, is_metadata, is_complete) for body in (exchange.request, exchange.response))


def _is_secret(value: Any, is_metadata: bool, is_complete: bool) -> bool:
    if isinstance(value, dict):
        is_metadata = is_metadata or is_cluster_metadata(value)
        if is_metadata and not is_complete:
            return True
        return any(_is_secret(each, is_metadata, is_complete) for each in value.values())
    if isinstance(value, list):
        return any(_is_secret(each, is_metadata, is_complete) for each in value)
    if isinstance(value, Embedded):
        return any(_is_secret(each, is_metadata, is_complete) for each in (value.data, value.decoded))
    if isinstance(value, RecordData):
        return is_metadata and len(value) > 0
    return isinstance(value, Redacted)
