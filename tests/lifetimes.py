"""Random captures of connections that open and end all the time, most of them as usual: for comparisons of
the native core with Python. Few ends are used, again and again, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.frames import HEARTBEAT, request, response, sized
from tests.segments import ACK, FIN, MILLISECOND, PSH, RST, START_NS, SYN, Talk

if TYPE_CHECKING:
    from random import Random

PRODUCE, METADATA, SASL_HANDSHAKE, API_VERSIONS = 0, 3, 17, 18
_SOFTWARE = {"client_software_name": "library", "client_software_version": "1.2"}
_SYN_OPTIONS = tuple(
    map(bytes.fromhex, ("", "020405b4", "020405b401030307", "020405b4030308", "01030300", "0303", "03037f00"))
)
_PAUSES = (0.0, 0.001, 0.1, 0.3, 1.0)
_LONG_PAUSES = (30.0, 100.0, 1000.0)


def lifetimes(random: Random, count: int, rate: float) -> list[tuple[int, bytes]]:
    """Times and bytes of the packets of so many connections. ``rate``: how likely each step is unusual."""
    now_ns, packets = START_NS, []
    for _ in range(count):
        talk = _lifetime(random, now_ns, rate)
        packets += [(each.time_ns, each.data) for each in talk.packets]
        now_ns += random.choice((1, 5, 50)) * MILLISECOND
        if random.random() < rate:
            now_ns += round(random.choice(_LONG_PAUSES) * 1000) * MILLISECOND
    packets.sort(key=lambda each: each[0])
    for place in range(1, len(packets)):
        if random.random() < rate / 10:
            one, two = packets[place - 1 : place + 1]
            packets[place - 1 : place + 1] = [(one[0], two[1]), (two[0], one[1])] if place % 2 else [two, one]
    return [each for each in packets if random.random() > rate / 20]


def _lifetime(random: Random, start_ns: int, rate: float) -> Talk:
    client = ("10.0.0.1", 40_000 + random.randrange(12))
    starts = ((1000, 5000), (2000, 9000), (0xFFFF_FFF0, 7), (random.getrandbits(32), 1))
    client_start, broker_start = random.choice(starts)
    talk = Talk(
        client,
        client_start=client_start,
        broker_start=broker_start,
        start_ns=start_ns,
        step_ns=random.choice((1, 9)) * MILLISECOND // 10,
    )

    def is_odd() -> bool:
        return random.random() < rate

    if not _opens(talk, random, is_odd=is_odd()):
        return talk
    number = random.randrange(100)
    client_id = random.choice(("reader", "writer", None)) if is_odd() else "reader"
    if is_odd():
        _odd_begin(talk, random)
    else:
        talk.client_sends(request(API_VERSIONS, 3, _SOFTWARE, correlation_id=number, client_id=client_id))
        if not is_odd():
            talk.broker_sends(response(API_VERSIONS, 3, correlation_id=number))
    held = b""  # a response that a later one overtakes
    for _ in range(random.randrange(5)):
        number += random.choice((0, -1, 5)) if is_odd() else 1
        api_key, version = random.choice(((HEARTBEAT, 4), (METADATA, 9)))
        if is_odd():
            api_key, version = random.choice(((PRODUCE, 8), (SASL_HANDSHAKE, 1), (API_VERSIONS, 3)))
        body = {"acks": random.choice((0, 1))} if api_key == PRODUCE else {}
        frame = request(api_key, version, body, correlation_id=number, client_id=client_id)
        for piece in (frame[:7], frame[7:]) if is_odd() else (frame,):
            talk.client_sends(piece)
        if is_odd():
            talk.waits(random.choice(_PAUSES))
        if is_odd():
            talk.put(0, PSH | ACK, frame, sequence=talk._next[0] - len(frame))
            if random.random() < 0.3:
                talk.put(1, ACK, options=_d_sack(talk._next[0] - len(frame), len(frame)))
        if body == {"acks": 0} and not is_odd():
            continue
        if not is_odd():
            answer = response(api_key, version, correlation_id=number)
            if is_odd():
                held += answer
            else:
                talk.broker_sends(answer + held)
                held = b""
        if random.random() < 0.5:
            talk.client_acks()
    _ends(talk, random, is_odd=is_odd())
    return talk


def _d_sack(sequence: int, size: int) -> bytes:
    """The option that reports these bytes as received twice (RFC 2883)."""
    edges = ((sequence + offset & 0xFFFFFFFF).to_bytes(4, "big") for offset in (0, size))
    return b"\1\1\5\n" + b"".join(edges)


def _opens(talk: Talk, random: Random, *, is_odd: bool) -> bool:
    """Whether there is more than its handshake."""
    if not is_odd:
        talk.handshake(*(random.choice(_SYN_OPTIONS) for _ in range(2)))
        return True
    kind = random.randrange(9)
    talk.put(0, SYN, b"early" if kind == 0 else b"", acknowledgment=0)
    if kind == 1:
        talk.put(0, SYN, sequence=talk._next[0] - 1, acknowledgment=0).waits(random.choice(_PAUSES))
    elif kind == 2:
        talk.put(1, RST | ACK)
    elif kind == 3:
        talk.put(1, SYN, acknowledgment=0)
    elif kind == 4:
        talk.waits(random.choice(_PAUSES))
    elif kind == 5:
        talk.put(1, SYN | ACK, acknowledgment=77).put(0, RST, sequence=77)
    elif kind == 6:
        talk.put(0, RST)
    if kind in (2, 6, 7):
        return random.random() < 0.3
    talk.put(1, SYN | ACK)
    if kind == 8:
        talk.put(1, SYN | ACK, sequence=talk._next[1] - 1)
    talk.put(0, ACK)
    return True


def _odd_begin(talk: Talk, random: Random) -> None:
    frame = request(random.choice((METADATA, API_VERSIONS)), 3, correlation_id=1)
    kind = random.randrange(7)
    if kind == 0:
        talk.client_sends(frame[:9]).client_sends(frame[9:])
    elif kind == 1:
        talk.client_sends(bytes.fromhex("16030100050100000100")).broker_sends(b"\x15\3\1\0\2\2\50")
    elif kind == 2:
        talk.client_sends(b"GET / HTTP/1.1\r\n\r\n").broker_sends(b"HTTP/1.1 200 OK\r\n\r\n")
    elif kind == 3:
        talk.broker_sends(sized(b"welcome")).client_sends(frame)
    elif kind == 4:
        talk.client_sends(frame + frame[:5]).client_sends(frame[5:])
    elif kind == 5:
        talk.client_sends(frame[:-1] + b"?")
    else:
        talk.client_skips(10).client_sends(frame)


def _ends(talk: Talk, random: Random, *, is_odd: bool) -> None:
    if not is_odd:
        if random.random() < 0.8:
            talk.finish()
        else:
            talk.reset(random.randrange(2))
        return
    first = random.randrange(2)
    data = request(HEARTBEAT, 4, correlation_id=5000)
    for _ in range(random.randrange(1, 5)):
        kind = random.randrange(10)
        side = random.choice((first, 1 - first))
        if kind == 0:
            talk.put(side, FIN | ACK, data)
        elif kind in (1, 2):
            talk.put(side, FIN | ACK)
        elif kind == 3:
            talk.put(side, FIN | ACK, sequence=talk._next[side] - 1)
        elif kind == 4:
            talk.put(side, RST, sequence=talk._next[side] + random.choice((-1, 0, 9, 1 << 30)))
        elif kind == 5:
            talk.reset(side).reset(1 - side)
        elif kind == 6:
            talk.put(side, PSH | ACK, data)
        elif kind == 7:
            talk.put(side, ACK, acknowledgment=talk._next[1 - side] + 50)
        elif kind == 8:
            talk.client_skips(1)
        elif kind == 9:
            talk.put(side, PSH | ACK, data[: random.randrange(1, 20)])
        talk.waits(random.choice(_PAUSES))
