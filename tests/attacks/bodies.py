"""Bodies that cost far more to read than to send. All are legal JSON, and smaller than the limit of a body."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
)

Body = Callable[[int], bytes]
"""Returns a body of about so many bytes."""


def _filled(before: str, element: str, after: str) -> Body:
    """Return a maker of bodies with an array or object of many elements. `@` in an element is its number."""

    def make(size: int) -> bytes:
        count = size // (len(element) + 1 + 5 * element.count("@"))
        elements = (element.replace("@", str(at)) for at in range(count)) if "@" in element else [element] * count
        return f"{before}{','.join(elements)}{after}".encode()

    return make


_PART = '{"type":"text","text":"a"}'
_CALL = '{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}'
_TOOL = '{"type":"function","function":{"name":"f@","parameters":{}}}'
_ASKED = '"messages":[{"role":"user","content":"a"}]'

BODIES: Mapping[str, tuple[str, Body]] = MappingProxyType(
    {
        "an unknown field of arrays": (COMPLETIONS, _filled('{"prompt":"a","max_tokens":1,"x":[', "[]", "]}")),
        "an unknown field of objects": (COMPLETIONS, _filled('{"prompt":"a","max_tokens":1,"x":[', "{}", "]}")),
        "many unknown fields": (COMPLETIONS, _filled('{"prompt":"a","max_tokens":1,', '"x@":1', "}")),
        "wrong messages": (CHAT, _filled('{"messages":[', "{}", "]}")),
        "messages": (CHAT, _filled('{"messages":[', '{"role":"user","content":"a"}', "]}")),
        "parts of one message": (CHAT, _filled('{"messages":[{"role":"user","content":[', _PART, "]}]}")),
        "parts of many messages": (
            CHAT,
            _filled('{"messages":[', f'{{"role":"user","content":[{",".join([_PART] * 28)}]}}', "]}"),
        ),
        "calls of many messages": (
            CHAT,
            _filled('{"messages":[', f'{{"role":"assistant","tool_calls":[{",".join([_CALL] * 8)}]}}', "]}"),
        ),
        "tools": (CHAT, _filled(f'{{{_ASKED},"tools":[', _TOOL, "]}")),
        "one tool with many parameters": (
            CHAT,
            _filled(
                f'{{{_ASKED},"tools":[{{"type":"function","function":{{"name":"f","parameters":{{"properties":{{',
                '"p@":{}',
                "}}}}]}",
            ),
        ),
        "template variables": (CHAT, _filled(f'{{{_ASKED},"max_tokens":1,"chat_template_kwargs":{{', '"x@":@', "}}")),
        "documents": (CHAT, _filled(f'{{{_ASKED},"max_tokens":1,"documents":[', '{"a":"b"}', "]}")),
        "stops": (COMPLETIONS, _filled('{"prompt":"a","stop":[', '""', "]}")),
        "biases": (COMPLETIONS, _filled('{"prompt":"a","logit_bias":{', '"@":1', "}}")),
        "token ids": (COMPLETIONS, _filled('{"max_tokens":1,"prompt":[', "97", "]}")),
        "wrong prompts": (COMPLETIONS, _filled('{"prompt":[', "[]", "]}")),
        "long prompts": (COMPLETIONS, _filled('{"max_tokens":1,"prompt":[', f'"{"a" * 200_000}"', "]}")),
        "a wide schema": (COMPLETIONS, _filled('{"prompt":"a","json_schema":{"enum":[', '"a@"', "]}}")),
        "nested arrays": (COMPLETIONS, lambda size: b'{"prompt":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}"),
        "wrong inputs": (EMBEDDINGS, _filled('{"input":[', "[]", "]}")),
        "inputs": (EMBEDDINGS, _filled('{"input":[', '"a"', "]}")),
        "items": (RESPONSES, _filled('{"input":[', '{"role":"user","content":"a"}', "]}")),
        "parts of one item": (
            RESPONSES,
            _filled('{"input":[{"role":"user","content":[', '{"type":"input_text","text":"a"}', "]}]}"),
        ),
        "references": (RESPONSES, _filled('{"input":[', '{"type":"item_reference","id":"msg_@"}', "]}")),
        "tokens to join": ("/detokenize", _filled('{"tokens":[', "97", "]}")),
        "a text to tokenize": ("/tokenize", lambda size: b'{"content":"' + b"a" * size + b'"}'),
    }
)
