"""A config's name -> whether its value is a credential, by sensitive.txt: read on first use, kept."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cache

from kdissect.kafka.tables import lines


def is_sensitive_config(name: str) -> bool:
    """Whether values of this config are withheld, even where the broker does not call it sensitive."""
    plain = name.lower().replace("-", ".").replace("_", ".")
    sensitive, harmless = _patterns()
    return sensitive.match(plain) is not None and harmless.match(plain) is None


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    patterns = lines("sensitive.txt")
    harmless = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return _any_of([pattern for pattern in patterns if not pattern.startswith("!")]), _any_of(harmless)


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
