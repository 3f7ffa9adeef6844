"""Examples for property tests of parsers, which are cheap: more than of others."""

from __future__ import annotations

from hypothesis import settings

EXAMPLES = max(300, settings().max_examples)
