from __future__ import annotations

import pytest

from kdissect.kafka.codes import uuid_text
from tests.kafka.encoder import ZERO, uuid_bytes


def test_text_form_is_kafkas() -> None:
    raw = bytes.fromhex("fbff00112233445566778899aabbccdd")
    assert uuid_text(raw) == "-_8AESIzRFVmd4iZqrvM3Q"
    assert uuid_bytes("-_8AESIzRFVmd4iZqrvM3Q") == raw
    assert uuid_text(bytes(16)) == ZERO
    assert uuid_bytes(ZERO) == bytes(16)


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "!", "!" * 22])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22 characters"):
        uuid_bytes(text)
