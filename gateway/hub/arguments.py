"""Command-line arguments of `llama-gateway pull`, `list` and `remove`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gateway.arguments import Parser
from gateway.hub.reference import HubReference

Action: TypeAlias = Literal["pull", "list", "remove"]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """One call of a command."""

    action: Action
    """The command."""
    model: HubReference | None
    """Model to pull or to remove; unset for `list`."""
    json: bool
    """True to print JSON."""


def read_arguments(arguments: Sequence[str]) -> Arguments:
    """Return the arguments of a command line, which begins with the command.

    Raises:
        SystemExit: the help, or an error in the arguments, has been printed.
    """
    parser = Parser(prog="llama-gateway")
    actions = parser.add_subparsers(dest="action", required=True)
    named = "hf:USER/REPO, hf:USER/REPO:QUANT or hf:USER/REPO/FILE.gguf"
    pull = _action(actions, "pull", "Download a model of the Hugging Face hub, and print the path of its file.")
    pull.add_argument("model", metavar="MODEL", type=_reference, help=named)
    list_ = _action(actions, "list", "List the models of the hub that are on this machine.")
    list_.add_argument("--json", action="store_true", help="print JSON")
    remove = _action(actions, "remove", "Remove models of the hub from this machine.")
    removed = f"{named}; the first removes all models of a repository, and downloads that are not complete"
    remove.add_argument("model", metavar="MODEL", type=_reference, help=removed)
    given = vars(parser.read(arguments))
    return Arguments(action=given["action"], model=given.get("model"), json=given.get("json", False))


def _action(actions: Any, name: Action, text: str) -> Parser:  # noqa: ANN401 - private
    parser: Parser = actions.add_parser(
        name,
        description=text,
        epilog="The variables HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_CACHE are those of huggingface_hub. Exit "
        "codes: 0 done, 1 unexpected failure, 2 invalid arguments or a missing package, 3 there is no such model or it "
        "cannot be had or removed, 130 after Ctrl-C.",
        allow_abbrev=False,
    )
    return parser


def _reference(text: str) -> HubReference:
    try:
        return HubReference.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error
