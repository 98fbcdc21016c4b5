"""Conversations in other protocols that run over TCP, made from their specifications: none of them is Kafka.

Many of them begin each message with its length, as Kafka does, and some count their messages as well.
"""

from __future__ import annotations

import json
from random import Random
from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Step = tuple[int, bytes]
"""Side (0: the end that opened the connection), payload of one packet."""

ROUNDS = 8

LIKE_KAFKA = "length, kind, version, number, name, text"
"""Invented: its requests begin like Kafka's, so that bodies alone can tell them apart."""

PROTOCOLS: dict[str, Callable[[Random], Iterator[Step]]] = {}


def protocol(name: str) -> Callable[[Callable[[Random], Iterator[Step]]], Callable[[Random], Iterator[Step]]]:
    def add(steps: Callable[[Random], Iterator[Step]]) -> Callable[[Random], Iterator[Step]]:
        PROTOCOLS[name] = steps
        return steps

    return add


def conversation(name: str, seed: int = 1) -> list[Step]:
    return list(PROTOCOLS[name](Random(f"{name} {seed}")))


def prefixed(data: bytes) -> bytes:
    """After its length in four bytes, which does not count itself."""
    return pack(">I", len(data)) + data


def counted(data: bytes) -> bytes:
    """After its length in four bytes, which counts itself."""
    return pack(">I", len(data) + 4) + data


def der(tag: int, *parts: bytes) -> bytes:
    """One value of BER (X.690, 8.1)."""
    body = b"".join(parts)
    size = len(body)
    return bytes((tag,)) + (bytes((size,)) if size < 128 else b"\x82" + pack(">H", size)) + body


def text(random: Random, least: int = 3, most: int = 40) -> bytes:
    letters = b"abcdefghijklmnopqrstuvwxyz-_0123456789"
    return bytes(random.choices(letters, k=random.randint(least, most)))


# Lines


@protocol("HTTP/1.1")
def _http(random: Random) -> Iterator[Step]:
    for _ in range(ROUNDS):
        yield 0, b"GET /%s HTTP/1.1\r\nHost: orders.example\r\nAccept: */*\r\n\r\n" % text(random)
        body = json.dumps({"id": random.randrange(1000), "name": text(random).decode()}).encode()
        yield 1, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@protocol("SMTP")
def _smtp(random: Random) -> Iterator[Step]:
    yield 1, b"220 mail.example ESMTP\r\n"
    for command in (b"EHLO client", b"MAIL FROM:<a@example>", b"RCPT TO:<b@example>"):
        yield 0, command + b"\r\n"
        yield 1, b"250 OK\r\n"
    yield 0, b"DATA\r\n"
    yield 1, b"354 End data with <CR><LF>.<CR><LF>\r\n"
    yield 0, b"Subject: %s\r\n\r\n%s\r\n.\r\n" % (text(random), text(random, 100, 900))
    yield 1, b"250 queued\r\n"


@protocol("IMAP")
def _imap(random: Random) -> Iterator[Step]:
    yield 1, b"* OK [CAPABILITY IMAP4rev1] ready\r\n"
    for number in range(ROUNDS):
        yield 0, b"a%03d FETCH %d (FLAGS BODY[])\r\n" % (number, number)
        body = text(random, 50, 500)
        yield 1, b"* %d FETCH (BODY[] {%d}\r\n%s)\r\na%03d OK\r\n" % (number, len(body), body, number)


@protocol("POP3")
def _pop3(random: Random) -> Iterator[Step]:
    yield 1, b"+OK ready\r\n"
    for number in range(ROUNDS):
        yield 0, b"RETR %d\r\n" % number
        yield 1, b"+OK\r\n%s\r\n.\r\n" % text(random, 50, 500)


@protocol("FTP")
def _ftp(random: Random) -> Iterator[Step]:
    yield 1, b"220 ready\r\n"
    for _ in range(ROUNDS):
        yield 0, b"RETR %s\r\n" % text(random)
        yield 1, b"550 No such file\r\n"


@protocol("Telnet")
def _telnet(random: Random) -> Iterator[Step]:
    yield 1, bytes.fromhex("fffd18fffd20fffd23fffd27")
    yield 0, bytes.fromhex("fffb18fffb20fffc23fffb27fffa1800787465726dfff0")
    for _ in range(ROUNDS):
        line = text(random)
        yield 0, line + b"\r\0"
        yield 1, line + b"\r\n$ "


@protocol("SIP")
def _sip(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        head = b"Via: SIP/2.0/TCP a.example\r\nCSeq: %d OPTIONS\r\nCall-ID: %s\r\nContent-Length: 0\r\n\r\n"
        head %= number, text(random)
        yield 0, b"OPTIONS sip:b@example SIP/2.0\r\n" + head
        yield 1, b"SIP/2.0 200 OK\r\n" + head


@protocol("Redis")
def _redis(random: Random) -> Iterator[Step]:
    for _ in range(ROUNDS):
        key, value = text(random), text(random)
        yield 0, b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)
        yield 1, b"+OK\r\n"


@protocol("memcached")
def _memcached(random: Random) -> Iterator[Step]:
    for _ in range(ROUNDS):
        value = text(random)
        yield 0, b"set %s 0 0 %d\r\n%s\r\n" % (text(random), len(value), value)
        yield 1, b"STORED\r\n"


@protocol("NATS")
def _nats(random: Random) -> Iterator[Step]:
    yield 1, b'INFO {"server_id":"N1","version":"2.10.0","max_payload":1048576}\r\n'
    yield 0, b'CONNECT {"verbose":false,"lang":"go"}\r\nPING\r\n'
    yield 1, b"PONG\r\n"
    for _ in range(ROUNDS):
        body = text(random, 5, 90)
        yield 0, b"PUB orders.new %d\r\n%s\r\n" % (len(body), body)
        yield 1, b"MSG orders.new 1 %d\r\n%s\r\n" % (len(body), body)


@protocol("STOMP")
def _stomp(random: Random) -> Iterator[Step]:
    yield 0, b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"
    yield 1, b"CONNECTED\nversion:1.2\n\n\0"
    for number in range(ROUNDS):
        yield 0, b"SEND\ndestination:/queue/a\nreceipt:%d\n\n%s\0" % (number, text(random))
        yield 1, b"RECEIPT\nreceipt-id:%d\n\n\0" % number


@protocol("syslog")
def _syslog(random: Random) -> Iterator[Step]:
    for _ in range(ROUNDS):  # RFC 6587, 3.4.1: octet counting
        line = b"<34>1 2026-01-01T00:00:00Z host app - - - " + text(random)
        yield 0, b"%d %s" % (len(line), line)


@protocol("SSH")
def _ssh(random: Random) -> Iterator[Step]:
    yield 0, b"SSH-2.0-OpenSSH_9.6\r\n"
    yield 1, b"SSH-2.0-OpenSSH_9.6\r\n"
    for kind in (20, 30):  # RFC 4253, 6: length, padding length, message number
        for side in (0, 1):
            yield side, prefixed(bytes((6, kind)) + random.randbytes(random.randrange(40, 900)))
    for _ in range(ROUNDS):
        yield 0, random.randbytes(random.randrange(28, 200))
        yield 1, random.randbytes(random.randrange(28, 200))


# Lengths of two or three bytes, or little-endian


@protocol("DNS")
def _dns(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        name = b"".join(bytes((len(one),)) + one for one in (text(random, 3, 20), b"example")) + b"\0"
        query = pack(">6H", number, 0x0100, 1, 0, 0, 0) + name + pack(">HH", 1, 1)
        answer = pack(">6H", number, 0x8180, 1, 1, 0, 0) + query[12:]
        answer += pack(">HHHIH4B", 0xC00C, 1, 1, 60, 4, 10, 0, 0, number)
        yield 0, pack(">H", len(query)) + query
        yield 1, pack(">H", len(answer)) + answer


@protocol("RTP")
def _rtp(random: Random) -> Iterator[Step]:
    for number in range(4 * ROUNDS):  # RFC 4571
        packet = pack(">BBHII", 0x80, 96, number, 3000 * number, 0xC0FFEE) + random.randbytes(160)
        yield 1, pack(">H", len(packet)) + packet


@protocol("RTSP")
def _rtsp(random: Random) -> Iterator[Step]:
    yield 0, b"PLAY rtsp://camera/1 RTSP/1.0\r\nCSeq: 4\r\n\r\n"
    yield 1, b"RTSP/1.0 200 OK\r\nCSeq: 4\r\n\r\n"
    for number in range(ROUNDS):  # RFC 7826, 14: interleaved
        packet = pack(">BBHII", 0x80, 96, number, 3000 * number, 0xC0FFEE) + random.randbytes(400)
        yield 1, b"$\0" + pack(">H", len(packet)) + packet


@protocol("MySQL")
def _mysql(random: Random) -> Iterator[Step]:
    def packet(number: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "little") + bytes((number,)) + body

    yield 1, packet(0, b"\x0a8.0.36\0" + pack("<I", 9) + random.randbytes(8) + bytes(40))
    yield 0, packet(1, pack("<II", 0x3FA685, 1 << 24) + bytes(24) + b"app\0\x14" + random.randbytes(20))
    yield 1, packet(2, b"\0\0\0\x02\0\0\0")
    for _ in range(ROUNDS):
        yield 0, packet(0, b"\x03SELECT " + text(random))
        row = text(random)
        yield 1, packet(1, b"\x01") + packet(2, b"\x03def" + bytes(20)) + packet(3, bytes((len(row),)) + row)


@protocol("TDS")
def _tds(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side, kind in ((0, 1), (1, 4)):
            body = text(random, 10, 90).decode().encode("utf-16-le")
            yield side, pack(">BBHHBB", kind, 1, len(body) + 8, 0, number, 0) + body


@protocol("MongoDB")
def _mongodb(random: Random) -> Iterator[Step]:
    for number in range(1, ROUNDS + 1):
        for side in (0, 1):
            name = text(random)
            bson = (
                b"\x02find\0" + pack("<i", len(name) + 1) + name + b"\0\x10n\0" + pack("<i", number) + b"\0"
            )
            body = pack("<IB", 0, 0) + pack("<i", len(bson) + 4) + bson
            ids = (number, 0) if side == 0 else (1000 + number, number)
            yield side, pack("<iiii", 16 + len(body), *ids, 2013) + body


@protocol("SMB2")
def _smb(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            head = b"\xfeSMB" + pack("<HHIHHIIQIIQ16s", 64, 1, 0, 8, 1, side, 0, number, 0, 5, 7, bytes(16))
            yield side, prefixed(head + pack("<H", 49) + random.randbytes(random.randrange(30, 300)))


@protocol("RDP")
def _rdp(random: Random) -> Iterator[Step]:
    for _ in range(ROUNDS):
        for side in (0, 1):
            body = b"\x02\xf0\x80" + random.randbytes(random.randrange(20, 400))
            yield side, pack(">BBH", 3, 0, len(body) + 4) + body


@protocol("RTMP")
def _rtmp(random: Random) -> Iterator[Step]:
    yield 0, b"\x03" + bytes(8) + random.randbytes(1528)
    yield 1, b"\x03" + bytes(8) + random.randbytes(1528)
    for number in range(ROUNDS):
        body = b"\x02\0\x07connect\0" + pack(">d", number) + text(random)
        yield number % 2, b"\x03" + bytes(3) + len(body).to_bytes(3, "big") + b"\x14" + bytes(4) + body


@protocol("DRDA")
def _drda(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            body = pack(">HH", random.randrange(20, 90) + 4, 0x1041) + random.randbytes(20)
            yield side, pack(">HBBH", len(body) + 6, 0xD0, 1, number) + body


@protocol("Modbus")
def _modbus(random: Random) -> Iterator[Step]:
    for number in range(2 * ROUNDS):
        yield 0, pack(">HHHBBHH", number, 0, 6, 1, 3, 0, 4)
        yield 1, pack(">HHHBBB4H", number, 0, 11, 1, 3, 8, *(random.randrange(500) for _ in range(4)))


@protocol("VNC")
def _vnc(random: Random) -> Iterator[Step]:
    yield 1, b"RFB 003.008\n"
    yield 0, b"RFB 003.008\n"
    yield 1, b"\x01\x01"
    yield 0, b"\x01"
    yield 1, bytes(4)
    yield 0, b"\x01"
    yield 1, pack(">HH", 800, 600) + bytes.fromhex("20180001 00ff00ff00ff100800000000") + prefixed(b"desktop")
    for _ in range(ROUNDS):
        yield 0, pack(">BBHHHH", 3, 1, 0, 0, 800, 600)
        yield 1, pack(">BBHHHHHi", 0, 0, 1, 0, 0, 4, 4, 0) + random.randbytes(64)


@protocol("WebSocket")
def _websocket(random: Random) -> Iterator[Step]:
    yield 0, b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    yield 1, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
    for _ in range(ROUNDS):
        body = text(random)
        yield 0, bytes((0x81, 0x80 | len(body))) + random.randbytes(4) + body
        yield 1, bytes((0x81, len(body))) + body


@protocol("MQTT")
def _mqtt(random: Random) -> Iterator[Step]:
    yield 0, b"\x10\x10\0\x04MQTT\x04\x02\0\x3c\0\x04dev1"
    yield 1, b"\x20\x02\0\0"
    for number in range(ROUNDS):
        body = b"\0\x05a/b/c" + pack(">H", number) + text(random)
        yield 0, bytes((0x32, len(body))) + body
        yield 1, b"\x40\x02" + pack(">H", number)


@protocol("TLS")
def _tls(random: Random) -> Iterator[Step]:
    yield 0, b"\x16\x03\x01\x00\xc8\x01\0\0\xc4\x03\x03" + random.randbytes(194)
    yield 1, b"\x16\x03\x03\x00\x7a\x02\0\0\x76\x03\x03" + random.randbytes(116)
    for _ in range(ROUNDS):
        for side in (0, 1):
            size = random.randrange(30, 600)
            yield side, b"\x17\x03\x03" + pack(">H", size) + random.randbytes(size)


@protocol("BGP")
def _bgp(random: Random) -> Iterator[Step]:
    for side in (0, 1):
        yield side, b"\xff" * 16 + pack(">HBBHHIB", 29, 1, 4, 65001 + side, 180, 0x0A000001, 0)
    for number in range(ROUNDS):
        body = pack(">HH", 0, 0) + bytes((24, 10, number, random.randrange(255)))
        yield number % 2, b"\xff" * 16 + pack(">HB", 19 + len(body), 2) + body
        yield 1 - number % 2, b"\xff" * 16 + pack(">HB", 19, 4)


# Frames of tags, types and lengths


@protocol("PostgreSQL")
def _postgresql(random: Random) -> Iterator[Step]:
    yield 0, counted(pack(">i", 196608) + b"user\0app\0database\0orders\0\0")
    yield 1, b"R" + counted(pack(">i", 0)) + b"Z" + counted(b"I")
    for number in range(ROUNDS):
        yield 0, b"Q" + counted(b"SELECT " + text(random) + b"\0")
        value = text(random)
        columns = pack(">H", 1) + b"id\0" + pack(">IHIHIH", 0, 0, 23, 4, 0xFFFFFFFF, 0)
        row = pack(">HI", 1, len(value)) + value
        yield 1, b"T" + counted(columns) + b"D" + counted(row) + b"C" + counted(b"SELECT %d\0" % number)


@protocol("PostgreSQL, extended")
def _postgresql_extended(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        query = b"s%d\0SELECT $1\0" % number + pack(">HI", 1, 23)
        bind = b"\0s%d\0" % number + pack(">HHHI", 0, 0, 1, 4) + pack(">iH", random.randrange(9), 0)
        yield (
            0,
            b"P"
            + counted(query)
            + b"B"
            + counted(bind)
            + b"E"
            + counted(b"\0" + bytes(4))
            + b"S"
            + counted(b""),
        )
        yield 1, b"1" + counted(b"") + b"2" + counted(b"") + b"Z" + counted(b"I")


@protocol("AMQP 0-9-1")
def _amqp(random: Random) -> Iterator[Step]:
    def frame(kind: int, channel: int, body: bytes) -> bytes:
        return pack(">BHI", kind, channel, len(body)) + body + b"\xce"

    yield 0, b"AMQP\0\0\x09\x01"
    yield 1, frame(1, 0, pack(">HHBBI", 10, 10, 0, 9, 0) + prefixed(b"PLAIN") + prefixed(b"en_US"))
    for number in range(ROUNDS):
        body = text(random, 10, 300)
        publish = frame(1, 1, pack(">HHH", 60, 40, 0) + b"\0\x06orders\0")
        header = frame(2, 1, pack(">HHQH", 60, 0, len(body), 0))
        yield 0, publish + header + frame(3, 1, body)
        yield 1, frame(1, 1, pack(">HHQB", 60, 80, number, 0))


@protocol("AMQP 1.0")
def _amqp_1(random: Random) -> Iterator[Step]:
    for side in (0, 1):
        yield side, b"AMQP\0\1\0\0"
    for number in range(ROUNDS):
        for side in (0, 1):
            body = b"\0\x53" + bytes((0x14 + side, 0xC0)) + pack(">BB", 9, 3) + pack(">BI", 0x70, number)
            yield side, counted(pack(">BBH", 2, 0, 1) + body + text(random))


@protocol("Cassandra")
def _cassandra(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        query = prefixed(b"SELECT " + text(random)) + pack(">HB", 1, 0)
        yield 0, pack(">BBHB", 4, 0, number, 7) + prefixed(query)
        yield 1, pack(">BBHB", 0x84, 0, number, 8) + prefixed(pack(">III", 2, 4, 1) + text(random))


@protocol("HTTP/2")
def _http2(random: Random) -> Iterator[Step]:
    yield from _frames_of_http2(random, lambda body: body)


@protocol("gRPC")
def _grpc(random: Random) -> Iterator[Step]:
    yield from _frames_of_http2(random, lambda body: b"\0" + prefixed(body))


def _frames_of_http2(random: Random, message: Callable[[bytes], bytes]) -> Iterator[Step]:
    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "big") + pack(">BBI", kind, flags, stream) + body

    yield 0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, pack(">HI", 3, 100))
    yield 1, frame(4, 0, 0, b"") + frame(4, 1, 0, b"")
    for number in range(1, 2 * ROUNDS, 2):
        head = frame(1, 4, number, random.randbytes(30))
        yield 0, head + frame(0, 1, number, message(b"\x0a\x05" + text(random)))
        yield 1, frame(1, 4, number, b"\x88" + random.randbytes(12))
        yield 1, frame(0, 0, number, message(b"\x0a\x05" + text(random))) + frame(1, 5, number, b"\x89")


@protocol("iSCSI")
def _iscsi(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        data = random.randbytes(512)
        command = pack(
            ">BBHB3sQIIII16s", 1, 0xC1, 0, 0, bytes(3), 0, number, 512, number, number, b"\x28" + bytes(15)
        )
        yield 0, command
        head = pack(
            ">BBHB3sQIIIIIIII", 0x25, 0x81, 0, 0, b"\0\2\0", 0, number, 0, number, number, 99, 0, 0, 0
        )
        yield 1, head[:48] + data


@protocol("LDAP")
def _ldap(random: Random) -> Iterator[Step]:
    for number in range(1, ROUNDS + 1):
        base = der(4, b"ou=" + text(random) + b",dc=example")
        search = der(0x63, base, der(10, b"\2"), der(10, b"\0"), der(2, b"\0"), der(2, b"\0"), der(1, b"\0"))
        yield 0, der(0x30, der(2, bytes((number,))), search)
        yield 1, der(0x30, der(2, bytes((number,))), der(0x65, der(10, b"\0"), der(4), der(4)))


@protocol("Kerberos")
def _kerberos(random: Random) -> Iterator[Step]:
    for _ in range(ROUNDS):  # RFC 4120, 7.2.2: length in four bytes
        name = der(0x1B, text(random))
        yield (
            0,
            prefixed(
                der(0x6A, der(0x30, der(0xA1, der(2, b"\5")), der(0xA2, der(2, b"\x0a")), der(0xA4, name)))
            ),
        )
        yield 1, prefixed(der(0x6B, der(0x30, der(0xA0, der(2, b"\5")), der(0xA1, random.randbytes(300)))))


@protocol("Diameter")
def _diameter(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            avp = pack(">IB3s", 264, 0x40, (8 + 12).to_bytes(3, "big")) + random.randbytes(12)
            head = b"\x01" + (20 + len(avp)).to_bytes(3, "big") + bytes((0x80 * (1 - side),))
            yield side, head + (280).to_bytes(3, "big") + pack(">III", 0, number, number) + avp


# A length in four bytes, as Kafka has it


@protocol("ZooKeeper")
def _zookeeper(random: Random) -> Iterator[Step]:
    yield 0, prefixed(pack(">iqiq", 0, 0, 30_000, 0) + prefixed(bytes(16)) + b"\0")
    yield 1, prefixed(pack(">iiq", 0, 30_000, 0x100000000) + prefixed(random.randbytes(16)) + b"\0")
    for xid in range(1, 2 * ROUNDS):
        kind = random.choice([1, 3, 4, 5, 8])  # create, exists, getData, setData, getChildren
        path, data = b"/" + text(random), text(random)
        yield (
            0,
            prefixed(
                pack(">ii", xid, kind) + prefixed(path) + (prefixed(data) if kind == 5 else b"") + b"\0"
            ),
        )
        stat = pack(">qqqqiiiqiiq", 1, 1, 10**12, 10**12, 0, 0, 0, 0, len(data), 0, 1)
        body = {
            1: prefixed(path),
            3: stat,
            4: prefixed(data) + stat,
            5: stat,
            8: pack(">i", 1) + prefixed(data),
        }[kind]
        yield 1, prefixed(pack(">iqi", xid, 0x100000000 + xid, 0) + body)
        if not xid % 5:
            yield 0, prefixed(pack(">ii", -2, 11))
            yield 1, prefixed(pack(">iqi", -2, 0x100000000 + xid, 0))


@protocol("ZooKeeper, errors and pings")
def _zookeeper_errors(_: Random) -> Iterator[Step]:
    for xid in range(1, 2 * ROUNDS):
        yield 0, prefixed(pack(">ii", xid, 3) + prefixed(b"/controller") + b"\0")
        yield 1, prefixed(pack(">iqi", xid, 7, -101))


@protocol("Thrift, framed")
def _thrift(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            head = pack(">I", 0x80010001 + side) + prefixed(b"get") + pack(">i", number)
            yield side, prefixed(head + b"\x0b\0\1" + prefixed(text(random)) + b"\0")


@protocol("Thrift, framed, old")
def _thrift_old(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            head = prefixed(b"get") + bytes((1 + side,)) + pack(">i", number)
            yield side, prefixed(head + b"\x0b\0\1" + prefixed(text(random)) + b"\0")


@protocol("Thrift, compact")
def _thrift_compact(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            value = text(random)
            head = bytes((0x82, 0x21 + 0x20 * side, number, 3)) + b"get"
            yield side, prefixed(head + bytes((0x18, len(value))) + value + b"\0")


@protocol("NFS")
def _nfs(random: Random) -> Iterator[Step]:
    def record(body: bytes) -> bytes:
        return pack(">I", 0x80000000 | len(body)) + body

    for xid in range(7, 7 + ROUNDS):
        yield 0, record(pack(">10I", xid, 0, 2, 100003, 3, 1, 0, 0, 0, 0) + prefixed(random.randbytes(32)))
        yield 1, record(pack(">6I", xid, 1, 0, 0, 0, 0) + pack(">I", 0) + random.randbytes(84))


@protocol("NFS, fragments")
def _nfs_fragments(random: Random) -> Iterator[Step]:
    for xid in range(7, 7 + ROUNDS):  # RFC 5531, 11: all but the last have no mark
        yield (
            0,
            prefixed(pack(">10I", xid, 0, 2, 100003, 3, 7, 0, 0, 0, 0)) + pack(">I", 0x80000020) + bytes(32),
        )
        yield 1, prefixed(pack(">6I", xid, 1, 0, 0, 0, 0)) + pack(">I", 0x80000010) + random.randbytes(16)


@protocol("Pulsar")
def _pulsar(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            command = (
                b"\x08" + bytes((6 + side,)) + b"\x3a\x04\x08" + bytes((number,)) + b"\x10" + text(random)
            )
            yield (
                side,
                prefixed(prefixed(command) + (b"\x0e\x01" + random.randbytes(30) if side == 0 else b"")),
            )


@protocol("SMPP")
def _smpp(random: Random) -> Iterator[Step]:
    for number in range(1, ROUNDS + 1):
        yield 0, counted(pack(">III", 4, 0, number) + b"\0\1\1123\0\1\1456\0" + bytes(9) + text(random))
        yield 1, counted(pack(">III", 0x80000004, 0, number) + text(random, 3, 8) + b"\0")


@protocol("OpenWire")
def _openwire(random: Random) -> Iterator[Step]:
    yield 0, prefixed(b"\x01ActiveMQ" + pack(">i", 12) + bytes(200))
    for number in range(ROUNDS):
        yield 0, prefixed(pack(">Bi", 23, number) + b"\x01" + text(random))
        yield 1, prefixed(pack(">Bi", 30, number) + b"\0" + pack(">i", number))


@protocol("Hadoop RPC")
def _hadoop(random: Random) -> Iterator[Step]:
    yield 0, b"hrpc\x09\0\0"
    for number in range(ROUNDS):
        for side in (0, 1):
            head = b"\x08\x02\x10\0\x18" + bytes((2 * number,)) + b"\x22\x10" + random.randbytes(16)
            yield side, prefixed(bytes((len(head),)) + head + bytes((5,)) + text(random, 5, 5))


@protocol("Elasticsearch transport")
def _elasticsearch(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            yield side, b"ES" + prefixed(pack(">QBi", number, side, 8_000_099) + text(random))


@protocol("length, JSON")
def _length_and_json(random: Random) -> Iterator[Step]:
    for number in range(ROUNDS):
        for side in (0, 1):
            yield side, prefixed(json.dumps({"id": number, "text": text(random).decode()}).encode())


@protocol("length, number, JSON")
def _length_number_json(random: Random) -> Iterator[Step]:
    for number in range(2 * ROUNDS):
        for side in (0, 1):
            body = json.dumps({"id": number, "text": text(random).decode()}).encode()
            yield side, prefixed(pack(">i", number) + body)


@protocol("length, number, noise")
def _length_number_noise(random: Random) -> Iterator[Step]:
    for number in range(2 * ROUNDS):
        for side in (0, 1):
            yield side, prefixed(pack(">i", number) + random.randbytes(random.randrange(1, 200)))


@protocol(LIKE_KAFKA)
def _like_kafka(random: Random) -> Iterator[Step]:
    for number in range(2 * ROUNDS):
        kind = random.randrange(6)
        name = text(random)
        yield (
            0,
            prefixed(pack(">HHi", kind, 1, number) + pack(">H", len(name)) + name + prefixed(text(random))),
        )
        yield 1, prefixed(pack(">iH", number, 0) + prefixed(text(random)))


@protocol("length, kind, number, text")
def _length_kind_number_text(random: Random) -> Iterator[Step]:
    for number in range(2 * ROUNDS):
        name = text(random)
        yield 0, prefixed(pack(">Hi", random.randrange(6), number) + pack(">H", len(name)) + name)
        yield 1, prefixed(pack(">Hi", 0, number) + prefixed(text(random)))


@protocol("length, number, counters")
def _length_number_counters(random: Random) -> Iterator[Step]:
    for number in range(2 * ROUNDS):
        yield 0, prefixed(pack(">4i", number, 1, 2, random.randrange(9)))
        yield 1, prefixed(pack(">6i", number, *(random.randrange(1, 1000) for _ in range(5))))


# No protocol at all


@protocol("noise")
def _noise(random: Random) -> Iterator[Step]:
    for _ in range(4 * ROUNDS):
        yield random.randrange(2), random.randbytes(random.randrange(1, 1400))


@protocol("zeros")
def _zeros(random: Random) -> Iterator[Step]:
    for _ in range(4 * ROUNDS):
        yield random.randrange(2), bytes(random.randrange(1, 400))


@protocol("few ones")
def _few_ones(random: Random) -> Iterator[Step]:
    for _ in range(4 * ROUNDS):
        yield (
            random.randrange(2),
            bytes(random.choices((0, 0, 0, 0, 0, 0, 1, 4, 8), k=random.randrange(20, 400))),
        )


@protocol("integers")
def _integers(random: Random) -> Iterator[Step]:
    for _ in range(2 * ROUNDS):
        values = [random.randrange(1, 40) for _ in range(random.randrange(4, 60))]
        yield random.randrange(2), pack(f">{len(values)}i", *values)


@protocol("rising integers")
def _rising_integers(random: Random) -> Iterator[Step]:
    number = 0
    for _ in range(2 * ROUNDS):
        values = range(number, number + random.randrange(4, 60))
        number = values.stop
        yield random.randrange(2), pack(f">{len(values)}i", *values)
