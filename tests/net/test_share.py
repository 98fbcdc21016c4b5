from __future__ import annotations

from kdissect.net.share import Share, share_of
from kdissect.net.tcp import reversed_ends


def test_every_connection_is_in_one_share_whichever_way_its_segments_go() -> None:
    shares = [Share(number, 3) for number in range(3)]
    taken = [0, 0, 0]
    for port in range(40_000, 40_300):
        for addresses in (bytes([10, 0, 0, 5, 10, 0, 0, 1]), bytes(range(32))):
            ends = addresses + port.to_bytes(2, "big") + (9092).to_bytes(2, "big")
            owners = [share.number for share in shares if share.owns(ends)]
            assert owners == [share.number for share in shares if share.owns(reversed_ends(ends))]
            assert owners == [share_of(ends, 3)]
            taken[owners[0]] += 1
    assert min(taken) > 150
