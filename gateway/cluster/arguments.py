"""Arguments of the application, from the command line of `serve run` or a YAML file, as flags of `serve`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.settings import Settings

_SWITCHES = frozenset(name for name, field in Settings.model_fields.items() if field.annotation is bool)
"""Settings whose flags have no value."""


def flags_of(args: Mapping[str, Any]) -> Iterator[str]:
    """Yield the flags of arguments, whose names may have underscores or hyphens.

    `serve run` makes all values texts, also `true`. YAML makes `on` and `off` booleans.
    """
    for name, value in args.items():
        flag = f"--{name.replace('_', '-')}"
        several = isinstance(value, Sequence) and not isinstance(value, str)
        for one in value if several else [value]:
            if name.replace("-", "_") not in _SWITCHES:
                yield f"{flag}={('off', 'on')[one] if isinstance(one, bool) else one}"
            elif (text := str(one).lower()) != "false":
                yield flag if text == "true" else f"{flag}={one}"  # the latter is refused
