"""Values of the hardware's settings that have a form of their own: lists of CPUs and devices, shares, overrides."""

import re

from gateway.settings.values import split_items

_CPUS = re.compile(r"(\d+)(?:-(\d+))?")
_OVERRIDE = re.compile(r"([^=]+)=([^=,\s]+)(?:,|$)")
_FOREIGN = re.compile(r"\(\?(?![:=!])|\[\[[:.=]")
"""Syntax that only one of llama.cpp (ECMAScript) and Python has: groups of other kinds, and classes of POSIX."""
_MOST_CPUS = 4096


def cpu_list(value: object) -> object:
    """Return the numbers in a list of CPUs such as `0-3,8`, in ascending order."""
    numbers: set[int] = set()
    for item in split_items(value):
        match = _CPUS.fullmatch(item)
        if match is None:
            raise ValueError("should be a list of CPUs such as 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < _MOST_CPUS:
            raise ValueError(f"{item} is not a range of CPUs below {_MOST_CPUS}")
        numbers.update(range(first, last + 1))
    if not numbers:
        raise ValueError("there is no CPU")
    return tuple(sorted(numbers))


def device_list(value: object) -> object:
    """Return the names of devices; none for `none`."""
    names = split_items(value)
    if names == ["none"]:
        return ()
    if not names or "none" in names:
        raise ValueError("should be names of devices, separated by commas, or none")
    if len(set(names)) < len(names):
        raise ValueError("a device is named twice")
    return tuple(names)


def share_list(value: object) -> object:
    """Return the shares of the devices, separated by commas or, as llama-server allows, by slashes."""
    shares = [share for item in split_items(value) for share in item.split("/")]
    if any("_" in share for share in shares):  # pydantic reads 1_0 as 10
        raise ValueError("should be numbers without underscores")
    return shares


def some_share(shares: tuple[float, ...]) -> tuple[float, ...]:
    """Check that shares divide something: llama.cpp would divide by their sum."""
    if not any(shares) or min(shares) < 0:
        raise ValueError("should be shares of at least 0, of which one is larger")
    return shares


def override_list(value: object) -> object:
    """Split overrides at the commas between them. A pattern may have commas, too."""
    overrides: list[str] = []
    for part in value if isinstance(value, list) else [value]:
        overrides += split_overrides(str(part))
    return overrides


def split_overrides(text: str) -> list[str]:
    """Return the overrides in a text. Each is a pattern of tensor names, `=`, and the name of a buffer type."""
    overrides, end = [], 0
    for match in _OVERRIDE.finditer(text):
        if match.start() != end:
            break
        check_pattern(match[1])
        overrides.append(f"{match[1]}={match[2]}")
        end = match.end()
    if not overrides or end != len(text):
        raise ValueError(r"should be PATTERN=BUFFER such as \.ffn_.*_exps\.=CPU")
    return overrides


def check_pattern(pattern: str) -> None:
    """Check that a pattern is a regular expression, for llama.cpp and for the engine's own checks."""
    if foreign := _FOREIGN.search(pattern):
        raise ValueError(f"the pattern {pattern!r} has {foreign[0]}, which is not possible here")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is no regular expression: {error}") from error


def pattern_and_buffer(override: str) -> tuple[str, str]:
    """Return the two parts of an override."""
    pattern, _, buffer = override.rpartition("=")
    return pattern, buffer
