"""How much the tests try: little by default, much with ``KDISSECT_HYPOTHESIS=deep``."""

from __future__ import annotations

import os

PROFILE = os.environ.get("KDISSECT_HYPOTHESIS", "quick")
IS_DEEP = PROFILE == "deep"
