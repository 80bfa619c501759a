"""Characters inside of JSON that clients may take for the end of a line."""

_ESCAPES = {char.encode(): b"\\u%04x" % ord(char) for char in "\u0085\u2028\u2029"}
"""JSON's escapes. JSON always escapes the other characters at which `str.splitlines` ends a line."""


def on_one_line(data: bytes) -> bytes:
    """Return JSON with escapes for Unicode's own line ends.

    No format of a stream ends a line there, but `str.splitlines` does, and so do clients that read lines by HTTPX, such
    as Ollama's for Python.
    """
    if not data.isascii():
        for line_end, escape in _ESCAPES.items():
            data = data.replace(line_end, escape)
    return data
