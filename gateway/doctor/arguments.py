"""Command-line arguments of `llama-gateway doctor`."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.arguments import Parser
from gateway.flags import flag_parser


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """One call of the command."""

    flags: Sequence[str]
    """Flags of `serve`, with the model."""
    json: bool
    """True to print JSON."""


def read_arguments(arguments: Sequence[str]) -> Arguments:
    """Return the arguments of a command line.

    Raises:
        SystemExit: the help, or an error in the arguments, has been printed.
    """
    parser = Parser(
        prog="llama-gateway doctor",
        usage="llama-gateway doctor [MODEL] [--json] [flags of serve]",
        description="Examine this machine, the installed llama.cpp and models, without loading their weights, and say "
        "how they would be served. A crash of llama.cpp is a finding.",
        epilog="Flags of `serve`, its variables and its configuration file count, too: `doctor FILE --slots 4`. All "
        "models that they name are examined; MODEL stands for --model MODEL. Exit codes: 0 all models can be served "
        "(or llama.cpp works, without a model), 1 unexpected failure, 2 invalid arguments or settings, 3 a model "
        "cannot be served, or llama.cpp does not work, 130 after Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="GGUF file, or a model of the hub that was pulled")
    parser.add_argument("--json", action="store_true", help="print JSON")
    own, flags = _split(arguments)
    given = parser.read(own)
    model = [] if given.model is None else ["--model", given.model]
    return Arguments(flags=[*model, *flags], json=given.json)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of this command, and the flags of `serve` with their values.

    The model is the first word, or else the last one if it is not the value of a flag.
    """
    own = [argument for argument in arguments if argument in {"--json", "-h", "--help"}]
    rest = [argument for argument in arguments if argument not in own]
    if rest and not rest[0].startswith("-"):
        return [*own, rest[0]], rest[1:]
    if rest and not rest[-1].startswith("-") and not _are_flags(rest) and _are_flags(rest[:-1]):
        return [*own, rest[-1]], rest[:-1]
    return own, rest


def _are_flags(arguments: Sequence[str]) -> bool:
    """Return whether arguments are flags of `serve` with their values."""
    try:
        flag_parser().read(["serve", *arguments])
    except ValueError:
        return False
    return True
