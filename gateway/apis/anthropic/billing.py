"""The billing header that a coding client puts before its system prompt."""

import re

_HEADER = re.compile(r"\Ax-anthropic-billing-header:(?: *\w+=[^;\s]*;?)*\n?")
"""The header and its fields. Some are other ones in each conversation (`cc_version`) or in each request (`cch`)."""


def without_billing(system: str) -> str:
    """Return a system prompt without its billing header, so that all prompts with the same instructions begin alike."""
    return _HEADER.sub("", system)
