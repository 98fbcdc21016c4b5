"""What tests of reports need, and a capture with hostile names for them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.cli.commands import capture_bytes
from tests.frames import HEARTBEAT, METADATA, request, response
from tests.segments import Talk

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "'\"&<!--{{7*7}}{% raw %}",
    "\u202egnp.exe\x1b[31m\n",
    "<svg/onload=fetch('http://192.0.2.1/')>",
    '["a.b"]\\.c',
    "12",
)

NEEDS_EXTRA = pytest.mark.skipif(
    None in map(find_spec, ("altair", "vl_convert", "jinja2")), reason="needs the extra kdissect[report]"
)


def hostile_capture() -> bytes:
    """Clients, groups and topics with such names, and an error of each."""
    talks = []
    for number, name in enumerate(HOSTILE):
        talk = Talk(("10.0.0.1", 40_000 + number))
        talk.handshake()
        for correlation_id in (1, 2):
            body = {"topics": [{"name": name}]}
            talk.client_sends(
                request(METADATA, 7, body, correlation_id=correlation_id, client_id=f"client {name}")
            )
            body = {"topics": [{"name": name, "error_code": 3}]}
            talk.broker_sends(response(METADATA, 7, body, correlation_id=correlation_id))
        for correlation_id in range(3, 9):
            body = {"group_id": f"group {name}", "generation_id": 7, "member_id": f"member {name}"}
            talk.client_sends(
                request(HEARTBEAT, 3, body, correlation_id=correlation_id, client_id=f"client {name}")
            )
            talk.broker_sends(response(HEARTBEAT, 3, {"error_code": 25}, correlation_id=correlation_id))
        talk.finish()
        talks.append(talk)
    return capture_bytes(*talks)
