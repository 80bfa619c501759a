"""The billing header that a coding client puts before its system prompt."""

import re

_STAMP = re.compile(r"\A(x-anthropic-billing-header:[^\n]*?\bcch=)[^;\s]*")
"""The header up to its stamp, and the stamp, which is another one in each request."""


def without_stamp(system: str) -> str:
    """Return a system prompt whose header has no stamp, so that the prompts of all turns begin alike."""
    return _STAMP.sub(r"\1", system)
