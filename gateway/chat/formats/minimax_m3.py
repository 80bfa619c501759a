"""MiniMax M3.

A token stands before each tag of calls. An argument's tag has its name, and values are nested in further tags: those of
members have their names, those of items are `item`. An answer without reasoning begins with the end of reasoning.
"""

from collections.abc import Mapping

from gateway.chat.formats.parser import Tags
from gateway.chat.formats.tag_calls import Markup, TagCalls
from gateway.chat.formats.text_arguments import ValueTags

MARK = "]<]minimax[>["
REASONING = Tags("<mm:think>", "</mm:think>")
_BLOCK = Tags("<tool_call>", "</tool_call>")
_MARKUP = Markup(
    block=Tags(f"{MARK}{_BLOCK.opening}", f"{MARK}{_BLOCK.closing}"),
    shared_block=True,
    call=Tags(f'{MARK}<invoke name="', f"{MARK}</invoke>"),
    head_end='">',
    argument=Tags(f"{MARK}<", ">"),
    values=(ValueTags("", f"{MARK}</{{name}}>"),),
    between_arguments="",
    nested=True,
    inner_tokens=(MARK, _BLOCK.opening, _BLOCK.closing),
)


class MiniMaxM3(TagCalls):
    """Format of MiniMax M3. It reads nested values in tags and in JSON. Grammars force JSON, by all of its schema."""

    marks = (REASONING.closing,)
    answer_mark = REASONING.closing

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        super().__init__(special_tokens, reasoning_tags, _MARKUP)
