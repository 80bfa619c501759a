"""Command lines of all commands: their parser, help and exit codes. Errors are one line, without what may be a key."""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from enum import IntEnum
from typing import NoReturn

from typing_extensions import override

_FLAG = re.compile(r"(--?[a-z][a-z_.-]{0,39})(=.*)?", re.DOTALL)
_WORD = r"'[a-z]{1,12}'"
"""Quoted argument that is no key, such as a wrong command, or `yes` for a flag without a value."""
_MEANT = r"(?:, maybe you meant '[a-z]+'\?)?"
"""What argparse adds from Python 3.15 on."""
_QUOTED = re.compile(
    rf"(invalid choice): (?!{_WORD}{_MEANT} \(choose).+(?= \(choose from)|(ignored explicit argument) (?!{_WORD}$).+",
    re.DOTALL,
)
"""Part of a command line that argparse quotes and that may be a key."""
_ALIKE = 0.8
"""Least likeness of a flag to an unknown one that is meant by it."""


class ExitCode(IntEnum):
    """Exit codes of all commands. Python itself exits with 1 on an unexpected exception."""

    DONE = 0
    """Done; of `serve`: stopped by a signal."""
    SETTINGS = 2
    """Invalid arguments or settings, an extra that is not installed, or a store that cannot be used."""
    LOAD = 3
    """A model cannot be loaded, or cannot be had or removed."""
    LISTEN = 4
    """The address cannot be bound."""
    FAILURES = 5
    """At least one request of `bench` failed."""
    INTERRUPTED = 130
    """Ended by Ctrl-C, as shells have it."""
    OUTPUT_CLOSED = 141
    """The reader of the output has left, as `head` does."""


def exit_with(code: ExitCode, message: str, command: str = "") -> ExitCode:
    """Write one line to standard error, at every log level, and return the code. `serve` has no name there."""
    sys.stderr.write(f"{f'llama-gateway {command}'.rstrip()}: {message}\n")
    return code


class Help(argparse.HelpFormatter):
    """Help that names the value of a flag once, after all names of the flag."""

    @override
    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


class Parser(argparse.ArgumentParser):
    """Parser that prints an error in one line, without the usage."""

    stray = "a value stands without its flag"
    """Error for a value that no flag takes."""

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {without_values(message)}\n")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the arguments of a command line. Unknown flags are an error that names them without their values."""
        arguments = [hyphenated(argument) for argument in arguments]
        if lost := flags_in([argument for argument in arguments if argument.endswith("=--")]):
            self.error(f"argument {lost[0]}: -- cannot be its value")  # before Python 3.13, argparse takes it away
        given, unknown = self.parse_known_args(arguments)
        if unknown:
            flags = flags_in(unknown)
            self.error(f"unrecognized arguments: {' '.join(flags) or self.stray}{self._meant(flags)}")
        return given

    def _meant(self, unknown: Sequence[str]) -> str:
        """Return the end of a message with the known flags that are meant by unknown ones; empty without any.

        A flag of another command, or one that stands before the command, is unknown and known at the same time.
        """
        known = [flag for flag in self.flags() if flag.startswith("--") and flag not in unknown]
        meant = [match for flag in unknown for match in closest(flag, known)]
        return did_you_mean(meant)

    def flags(self) -> Iterator[str]:
        """Yield all flags in the help, also those of commands."""
        for action in self._actions:
            if action.help is not argparse.SUPPRESS:
                yield from action.option_strings
            if isinstance(action.choices, dict):
                for parser in action.choices.values():
                    yield from parser.flags()


def hyphenated(word: str) -> str:
    """Return a word of a command line with hyphens for underscores in its name, if it is a flag with a long name."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") and " " not in name else word


def did_you_mean(names: Sequence[str]) -> str:
    """Return the end of a message with the names that are meant; empty without any."""
    return f"; did you mean {' and '.join(names)}?" if names else ""


def closest(unknown: str, known: Sequence[str]) -> list[str]:
    """Return the longest flag that an unknown one begins with, as `--model-path` does, or else the one most like it."""
    begun = [flag for flag in known if unknown.startswith(f"{flag}-")]
    return sorted(begun, key=len)[-1:] or get_close_matches(unknown, known, n=1, cutoff=_ALIKE)


def flags_in(arguments: Sequence[str]) -> list[str]:
    """Return the names of those arguments that look like flags."""
    return [found[1] for argument in arguments if (found := _FLAG.fullmatch(argument))]


def without_values(message: str) -> str:
    """Return argparse's message without the argument that it quotes, unless this is a plain word."""
    return _QUOTED.sub(lambda found: found[1] or found[2], message)
