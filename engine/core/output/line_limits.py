"""Limits that end a choice by its lines: their indentation, and the time."""

from engine.request import GenerationRequest


class LineLimits:
    """Follows the text of one choice line by line. Editors limit completions of code so."""

    def __init__(self, indent: int, seconds: float | None) -> None:
        """Set the limits.

        Args:
            indent: minimum of spaces and tabs at the beginning of every line but the first.
            seconds: time after which a line break ends the text; None sets no limit.
        """
        self._indent = indent
        self._seconds = seconds
        self._missing = 0
        """Spaces and tabs that the current line needs before its first other character."""

    def kept(self, text: str, seconds: float) -> int | None:
        """Return the number of characters of the next text that remain if it ends the choice; None if it does not.

        Args:
            text: the next text.
            seconds: time that the choice has taken until now.
        """
        for at, character in enumerate(text):
            if character == "\n":
                if self._seconds is not None and seconds > self._seconds:
                    return at + 1
                self._missing = self._indent
            elif self._missing and character in " \t":
                self._missing -= 1
            elif self._missing:
                return at
        return None


def line_limits_of(request: GenerationRequest) -> LineLimits | None:
    """Return the limits of lines, if the request has any."""
    limited = request.indent or request.line_seconds is not None
    return LineLimits(request.indent, request.line_seconds) if limited else None
