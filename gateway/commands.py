"""The commands besides `serve`. Each has its own arguments, and is imported only when it runs."""

import os
import sys
from collections.abc import Mapping, Sequence

from gateway.arguments import ExitCode


def run_command(arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Run the command that a command line begins with, and return its exit code; None if it is none of these.

    Args:
        arguments: the command line without the program's name.
        environment: has defaults of some arguments.
    """
    try:
        code = _run(arguments, environment)
        sys.stdout.flush()
    except (KeyboardInterrupt, BrokenPipeError, BaseExceptionGroup) as error:
        if (code := _code_of(error)) is None:
            raise
    return code


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
    match arguments:
        case ["bench", *rest]:
            from gateway.bench.command import bench  # noqa: PLC0415

            return bench(rest, environment)
        case ["keys", *rest]:
            from gateway.keys.command import keys  # noqa: PLC0415

            return keys(rest, environment)
        case ["doctor", *rest]:
            from gateway.doctor.command import doctor  # noqa: PLC0415

            return doctor(rest, environment)
        case ["pull" | "list" | "remove", *_]:
            from gateway.hub.command import hub  # noqa: PLC0415

            return hub(arguments)
        case _:
            return None


def _code_of(error: BaseException) -> int | None:
    """Return the exit code of a command that its user ended; None if it ended otherwise."""
    causes = BaseExceptionGroup("", [error])
    if causes.subgroup(KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if causes.subgroup(BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at its end
        return ExitCode.OUTPUT_CLOSED
    return None
