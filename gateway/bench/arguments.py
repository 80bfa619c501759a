"""Command-line arguments of `llama-gateway bench`."""

import argparse
import math
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISDIR

from gateway.arguments import Parser
from gateway.bench.requests import ROUTES, Workload
from gateway.bench.target import Target, parse_target, with_scheme

URL = "http://127.0.0.1:8000/v1"
CLIENTS = "1,8,16,24,32"
TERMINAL = Path("-")
"""Value of `--plot` without a file: plot in the terminal."""
_DEFAULT = "(default: %(default)s)"


@dataclass(frozen=True)
class Arguments:
    """Server, load and report of one benchmark."""

    url: str
    """URL of the API."""
    target: Target
    """The server under test, parsed from the URL."""
    model: str | None
    """Name of the model; None asks the server."""
    workload: Workload
    """Shape of the requests."""
    clients: tuple[int, ...]
    """Number of concurrent clients of each stage."""
    requests: int
    """Requests of each stage."""
    timeout: float
    """Maximum time of an answer, in seconds."""
    json: Path | None
    """File for all metrics; None writes no file."""
    plot: Path | None
    """PNG file for the plots, or `TERMINAL`; None draws no plot."""


def read_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> Arguments:
    """Return the arguments of a command line.

    Args:
        arguments: the command line without the command's name.
        environment: has the default of the API key.

    Raises:
        SystemExit: the help, or an error in the arguments, has been printed.
    """
    parser = _parser()
    given = parser.read(arguments)
    given.url = with_scheme(given.url if given.place is None else given.place)
    if given.place is not None and "://" not in given.url:  # it is not shown: it may be a key
        parser.error(f"the URL should be one such as {URL}")
    key = given.api_key or environment.get("OPENAI_API_KEY") or None
    try:
        target = parse_target(given.url, key)
        _check_library(given.plot)
    except ValueError as error:
        parser.error(str(error))
    workload = Workload(
        endpoint=given.endpoint,
        prompt_tokens=given.prompt_tokens,
        shared_prefix=given.shared_prefix,
        max_tokens=given.max_tokens,
        stream=given.stream,
        ignore_eos=given.ignore_eos,
        seed=random.getrandbits(32) if given.seed is None else given.seed,
    )
    names = ("url", "model", "clients", "requests", "timeout", "json", "plot")
    return Arguments(target=target, workload=workload, **{name: getattr(given, name) for name in names})


def _parser() -> Parser:
    parser = Parser(
        prog="llama-gateway bench",
        description="Measure an OpenAI-compatible server over HTTP. Ctrl-C stops early and still reports the results.",
        epilog="Exit codes: 0 measured, 1 unexpected failure, 2 invalid arguments or no model found, "
        "5 a request failed, 130 stopped by Ctrl-C.",
        allow_abbrev=False,
    )
    _add_server(parser.add_argument_group("server"))
    _add_load(parser.add_argument_group("load"))
    _add_report(parser.add_argument_group("report"))
    return parser


def _add_server(group: argparse._ArgumentGroup) -> None:
    group.add_argument("place", metavar="URL", nargs="?", help="base URL of the API, as --url has it")
    group.add_argument(
        "--url", default=URL, help=f"URL of the API, or HOST:PORT; without a path, /v1 is added {_DEFAULT}"
    )
    group.add_argument(
        "--endpoint", choices=list(ROUTES), default="completions", help=f"endpoint of the requests {_DEFAULT}"
    )
    group.add_argument("--model", metavar="NAME", help="name of the model (default: the only model of the server)")
    group.add_argument("--api-key", metavar="KEY", help="API key (default: the variable OPENAI_API_KEY, or no key)")
    timeout_help = f"maximum time of an answer {_DEFAULT}"
    group.add_argument("--timeout", metavar="SECONDS", type=_seconds, default="600", help=timeout_help)


def _add_load(group: argparse._ArgumentGroup) -> None:
    clients_help = f"concurrent clients; one stage for each number {_DEFAULT}"
    group.add_argument("--clients", metavar="N,N", type=_counts, default=CLIENTS, help=clients_help)
    for flag, least, default, text in (
        ("--requests", 1, 72, "requests per stage"),
        ("--max-tokens", 1, 50, "maximum tokens of an answer"),
        ("--prompt-tokens", 1, 16, "approximate tokens of a prompt"),
        ("--shared-prefix", 0, 0, "tokens of an additional common prefix before every prompt"),
    ):
        group.add_argument(flag, metavar="N", type=_from(least), default=default, help=f"{text} {_DEFAULT}")
    group.add_argument("--stream", action=argparse.BooleanOptionalAction, default=True, help="stream the answers")
    group.add_argument("--ignore-eos", action="store_true", help="generate --max-tokens in every answer")
    group.add_argument(
        "--seed", metavar="N", type=_from(0), help="seed of the prompts (default: random, so that no cache has them)"
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", metavar="FILE", type=_writable, help="write all metrics, with times in seconds")
    plot_help = "plot the metrics; in the terminal if FILE.png is omitted"
    group.add_argument("--plot", metavar="FILE.png", type=_picture, nargs="?", const=TERMINAL, help=plot_help)


def _from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to 999999999")
        return int(text)

    return number


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_from(1)(part.strip()) for part in text.split(","))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf or "_" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _writable(text: str) -> Path:
    """Return the path of a writable file. Checked before the measurement, so that no result is lost."""
    path = Path(text)
    try:
        writable = not S_ISDIR(path.stat().st_mode) and os.access(path, os.W_OK)
    except FileNotFoundError:
        writable = os.access(path.parent, os.W_OK)
    except OSError:  # its folder cannot be read
        writable = False
    if not writable:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


def _picture(text: str) -> Path:
    if not text.endswith(".png"):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .png")
    return _writable(text)


def _check_library(plot: Path | None) -> None:
    library = "plotille" if plot == TERMINAL else "matplotlib"
    if plot is not None and find_spec(library) is None:
        raise ValueError(f"--plot needs {library}: pip install 'llama-gateway[bench]'")
