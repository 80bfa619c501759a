"""Command-line arguments of `llama-gateway keys`."""

import argparse
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from gateway.arguments import Parser
from gateway.keys.key import LIMITS, Key
from gateway.storage.place import check_place

VARIABLE = "LLAMA_GATEWAY_KEYS"
"""Variable with the store, for the server and for this command."""
USAGE_VARIABLE = "LLAMA_GATEWAY_USAGE"
"""Variable with the store of usage, if it is another one."""
MAX_NAME = 100
"""Maximum length of a key's name."""
MAX_WEIGHT = 100.0
"""Largest weight of a key. The smallest is its reciprocal."""
_DURATION = re.compile(r"([1-9][0-9]{0,5})([dhm])")
_SECONDS = {"d": 86_400, "h": 3600, "m": 60}

Action = Literal["add", "list", "limits", "rotate", "revoke", "usage"]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """One call of the command."""

    store: str
    """Place of the key store."""
    usage_store: str
    """Place of the store of usage."""
    action: Action
    """Action of the command."""
    key: str | None
    """Id or name of a key. `usage` of all keys has None, as have `add` and `list`."""
    changes: Mapping[str, Any]
    """Properties to set, by their names in `Key` and `KeyLimits`."""
    since: float
    """Beginning of the usage to show, in seconds since 1970."""
    until: float
    """End of the usage to show, in seconds since 1970."""
    json: bool
    """True to print JSON."""

    def edit(self, key: Key) -> Key:
        """Return a key with the properties to set."""
        limits = {name: value for name, value in self.changes.items() if name in LIMITS}
        own = {name: value for name, value in self.changes.items() if name not in LIMITS}
        return replace(key, limits=replace(key.limits, **limits), **own)


def read_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> Arguments:
    """Return the arguments of a command line.

    Args:
        arguments: the command line without the command's name.
        environment: has the default of the store.

    Raises:
        SystemExit: the help, or an error in the arguments, has been printed.
    """
    parser = _parser()
    given = vars(parser.read(arguments))
    if given["action"] is None:
        parser.error(f"name an action: {', '.join(get_args(Action))}; --help describes them")
    store = given.pop("keys", None) or environment.get(VARIABLE)
    if not store:
        parser.error(f"name the store by --keys STORE, or by the variable {VARIABLE}")
    usage_store = given.pop("usage", None) or environment.get(USAGE_VARIABLE) or store
    for flag, place in (("--keys", store), ("--usage", usage_store)):
        try:
            check_place(place)
        except ValueError as error:
            parser.error(f"{flag}: {error}")  # without the value, because a URL may have a password
    since, until = given.pop("since", _month()), given.pop("until", math.inf)
    if until < since:
        parser.error("--until is before --since, whose default is the first of this month")
    return Arguments(
        store=store,
        usage_store=usage_store,
        action=given.pop("action"),
        key=given.pop("key", None),
        since=since,
        until=until,
        json=given.pop("json", False),
        changes=given,
    )


def _parser() -> Parser:
    parser = Parser(
        prog="llama-gateway keys",
        description="Manage the API keys of a store. A running server sees changes within a second.",
        epilog="Exit codes: 0 done, 1 unexpected failure, 2 invalid arguments, no such key, or a store that cannot be "
        "used, 130 after Ctrl-C.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", metavar="action")
    add = _action(actions, "add", "add a key, and print its secret: it cannot be shown again", takes_key=False)
    add.add_argument("--name", type=_name, required=True, help="name of the key")
    _add_properties(add)
    _action(actions, "list", "list all keys", takes_key=False)
    limits = _action(actions, "limits", "show the limits of a key, or change those that are given")
    limits.add_argument("--name", type=_name, help="new name of the key")
    _add_properties(limits)
    _action(actions, "rotate", "give a key a new secret, and print it: the old one is refused from now on")
    _action(actions, "revoke", "refuse a key from now on, for ever")
    usage = _action(actions, "usage", "show the tokens that a key has used, or all keys", takes_key=False)
    usage.add_argument("key", metavar="KEY", nargs="?", help="id or name of a key; default: all keys")
    usage_help = f"the store of usage (default: the variable {USAGE_VARIABLE}, or --keys)"
    usage.add_argument("--usage", metavar="STORE", help=usage_help)
    usage.add_argument("--since", metavar="TIME", type=_moment, help="first day or time; default: this month's first")
    usage.add_argument("--until", metavar="TIME", type=_moment, help="first day or time after it; default: now")
    return parser


def _action(actions: Any, name: Action, text: str, *, takes_key: bool = True) -> Parser:  # noqa: ANN401 - private
    parser: Parser = actions.add_parser(
        name, help=text, description=text, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    if takes_key:
        parser.add_argument("key", metavar="KEY", help="id or name of a key")
    parser.add_argument(
        "--keys", metavar="STORE", help=f"SQLite file or postgresql:// URL (default: the variable {VARIABLE})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_properties(parser: Parser) -> None:
    parser.add_argument("--models", metavar="NAMES|all", type=_models, help="models it may use, separated by commas")
    for name in LIMITS:
        text = f"limit of {name.replace('_', ' ')}"
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N|none", type=_limit, help=text)
    parser.add_argument("--weight", metavar="X", type=_weight, help="share of the engine, relative to other keys' (1)")
    parser.add_argument("--priority", metavar="N", type=_priority, help="priority; lower is served earlier (0)")
    expires_help = "time from which it is refused: 30d, 12h, 2027-01-31, 2027-01-31T12:00Z"
    parser.add_argument("--expires", dest="expires_at", metavar="TIME|never", type=_expiry, help=expires_help)


def _name(text: str) -> str:
    name = text.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name.startswith("key_"):
        message = f"a name has 1 to {MAX_NAME} printable characters, and does not begin with key_ as ids do"
        raise argparse.ArgumentTypeError(message)
    return name


def _models(text: str) -> frozenset[str] | None:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} names no model")
    return None if names == {"all"} else names


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not re.fullmatch("[0-9]{1,15}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 1 nor none")
    return int(text)


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 1 / MAX_WEIGHT <= weight <= MAX_WEIGHT or "_" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {1 / MAX_WEIGHT:g} to {MAX_WEIGHT:g}")
    return weight


def _priority(text: str) -> int:
    if not re.fullmatch("-?[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at most 9 digits")
    return int(text)


def _expiry(text: str) -> float | None:
    if text == "never":
        return None
    now = time.time()
    duration = _DURATION.fullmatch(text)
    moment = now + int(duration[1]) * _SECONDS[duration[2]] if duration else _moment(text)
    if moment <= now:
        raise argparse.ArgumentTypeError(f"{text!r} is in the past; `revoke` ends a key now")
    return moment


def _moment(text: str) -> float:
    """Return a day or a time in seconds since 1970. Without an offset it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:  # the latter for a time that is none in UTC
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2027-01-31 or 2027-01-31T12:00Z") from error


def _month() -> float:
    return datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
