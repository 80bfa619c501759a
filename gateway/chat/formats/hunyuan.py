"""Tencent's Hunyuan 3 and 4.

Calls are those of GLM, in a block of all, with `<tool_sep>` behind the name. All tags but those of previews have a
suffix.
"""

from collections.abc import Mapping

from gateway.chat.formats.glm import Glm, marks_of, tags_of
from gateway.chat.formats.parser import Tags

NAME_END, SUFFIX = "<tool_sep>", ":opensource"


class Hunyuan(Glm):
    """Format of Hunyuan 3 and 4."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, suffix: str = "") -> None:
        """Create the format. `suffix` ends the names in its tags."""
        marks = marks_of(suffix, tags_of("tool_calls", suffix), f"{NAME_END[:-1]}{suffix}>")
        super().__init__(special_tokens, tags_of("think", suffix) if suffix else reasoning_tags, marks)
