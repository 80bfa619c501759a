"""Parser of command lines, and their help. Errors are one line, without what was typed as a value: it may be a key."""

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from typing_extensions import override

_FLAG = re.compile(r"(--?[a-z][a-z-]{0,39})(=.*)?", re.DOTALL)
_QUOTED = re.compile(r"(invalid choice): .+(?= \(choose from)|(ignored explicit argument) .+", re.DOTALL)
"""Part of a command line that argparse quotes."""


class Help(argparse.HelpFormatter):
    """Help that names the value of a flag once, after all names of the flag."""

    @override
    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


class Parser(argparse.ArgumentParser):
    """Parser that prints an error in one line, without the usage."""

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {without_values(message)}\n")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the arguments of a command line. Unknown flags are an error that names them without their values."""
        given, unknown = self.parse_known_args(arguments)
        if unknown:
            self.error(f"unrecognized arguments: {flags_in(unknown) or 'a value stands without its flag'}")
        return given


def flags_in(arguments: Sequence[str]) -> str:
    """Return the names of those arguments that look like flags."""
    return " ".join(found[1] for argument in arguments if (found := _FLAG.fullmatch(argument)))


def without_values(message: str) -> str:
    """Return argparse's message without the argument that it quotes."""
    return _QUOTED.sub(lambda found: found[1] or found[2], message)
