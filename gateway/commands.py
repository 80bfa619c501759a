"""The commands besides `serve`. Each has its own arguments, and is imported only when it runs."""

from collections.abc import Mapping, Sequence


def run_command(arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Run the command that a command line begins with, and return its exit code; None if it is none of these.

    Args:
        arguments: the command line without the program's name.
        environment: has defaults of some arguments.
    """
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
