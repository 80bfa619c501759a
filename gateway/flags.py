"""Flags of `serve`, made of the settings: their groups, their names and the parser of the command line."""

import argparse
from collections.abc import Iterable
from functools import cache
from typing import Any, NoReturn, get_args

from pydantic.fields import FieldInfo

from gateway import __version__
from gateway.arguments import Help, Parser, closest, did_you_mean, without_values
from gateway.habits import ALIASES, LAYER_RANGE, SETTINGS, add_habits
from gateway.settings import Settings
from gateway.settings.adapters import AdapterSettings
from gateway.settings.cluster import ClusterSettings
from gateway.settings.embedding import EmbeddingSettings
from gateway.settings.engine import EngineSettings
from gateway.settings.hardware import HardwareSettings
from gateway.settings.kv_cache import ContextShiftSettings, KVCacheSettings, PrefixFileSettings
from gateway.settings.llama_server import LlamaServerSettings
from gateway.settings.model import ModelSettings
from gateway.settings.network import NetworkSettings
from gateway.settings.reasoning import ReasoningSettings
from gateway.settings.sampling import SamplingSettings

PREFIX = "LLAMA_GATEWAY_"
"""Prefix of environment variables."""
COMMANDS = {
    "doctor": "examine this machine and a model, and say how it would be served",
    "keys": "manage the API keys of a store",
    "pull": "download a model of the Hugging Face hub",
    "list": "list the models of the hub that are on this machine",
    "remove": "remove models of the hub from this machine",
    "bench": "measure an OpenAI-compatible server",
}
"""Commands with arguments of their own, and their help texts."""
TABLES = "models"
"""Setting that only the file has: a table for each model."""
_GROUPS = {
    "models, queue and log": EngineSettings,
    "each model": ModelSettings,
    "KV cache of each model": KVCacheSettings,
    "cached prompts on disk of each model": PrefixFileSettings,
    "full contexts of each model": ContextShiftSettings,
    "adapters of each model": AdapterSettings,
    "embeddings and re-ranking of each model": EmbeddingSettings,
    "reasoning of each model": ReasoningSettings,
    "sampling with each model": SamplingSettings,
    "hardware of each model": HardwareSettings,
    "network and keys": NetworkSettings,
    "llama-server's routes": LlamaServerSettings,
    "cluster": ClusterSettings,
    "requests, responses and program": Settings,
}
"""Groups of flags in the order of `--help`: their titles, and the classes that have their settings."""


def flag_fields() -> dict[str, FieldInfo]:
    """Return the settings that are flags, in the order of their groups."""
    return {name: field for fields in flag_groups().values() for name, field in fields.items()}


def flag_groups() -> dict[str, dict[str, FieldInfo]]:
    """Return the settings that are flags by the titles of their groups."""
    fields = {name: field for name, field in Settings.model_fields.items() if name != TABLES}
    return {
        title: {name: fields[name] for name in group.__annotations__ if name in fields}
        for title, group in _GROUPS.items()
    }


class _Parser(Parser):
    """Parser that raises `ValueError`, so that wrong flags are reported like other invalid settings."""

    stray = "a value stands without its flag; a model is --model FILE, and several names have commas between them"

    def error(self, message: str) -> NoReturn:
        raise ValueError(without_values(message))


@cache
def flag_parser() -> Parser:
    """Return the parser of the program's command line. It raises `ValueError` for a wrong one."""
    parser = _Parser(
        prog="llama-gateway",
        description="An OpenAI-compatible gateway on llama.cpp.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"llama-gateway {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command", title="commands")
    serve = commands.add_parser(
        "serve",
        usage="llama-gateway serve [--model [NAME=]MODEL ...] [flags]",
        help="serve models over HTTP",
        description="Serve GGUF models over HTTP. Ctrl-C or SIGTERM stops it.",
        epilog=f"Each flag is also an environment variable (--queue-limit: {PREFIX}QUEUE_LIMIT; several values are a "
        "JSON array) and a key of the TOML file (queue-limit). Flags take precedence over variables, and variables "
        "over the file. The flags of llama-server, vLLM and SGLang are understood, too, or answered by what to use "
        "instead. Exit codes: "
        "0 stopped by a signal, 1 unexpected failure, 2 invalid setting or model file, 3 the model cannot be loaded, "
        "4 cannot listen.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=Help,
    )
    serve.add_argument(
        "--like",
        metavar="PROGRAM",
        type=_misplaced,
        help="understand the flags that follow, the variables and the defaults as llama-server does: "
        "serve --like llama-server [flags], or llama-gateway-server [flags]",
    )
    serve.add_argument("--config", metavar="FILE", help="TOML file with settings")
    for title, fields in flag_groups().items():
        group = serve.add_argument_group(title)
        for name, field in fields.items():
            names = (*ALIASES.get(name, ()), flag(name))
            group.add_argument(*names, dest=name, help=_help(field), **_argument(name, field))
    add_habits(serve)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)  # it has its own arguments
    return parser


def _misplaced(_program: str) -> NoReturn:
    raise argparse.ArgumentTypeError(
        "llama-server is the only one, and it comes first: serve --like llama-server [flags]"
    )


def _argument(name: str, field: FieldInfo) -> dict[str, Any]:
    """Return the argparse options of a flag: a switch for booleans, a repeatable value for tuples, else one value."""
    if field.annotation is bool:
        return {"action": "store_const", "const": "true"}
    metavar = field.title or "|".join(get_args(field.annotation))
    if name == LAYER_RANGE:
        return {"nargs": "+", "metavar": metavar}
    return {"action": "append" if repeats(name, field) else "store", "metavar": metavar}


def repeats(name: str, field: FieldInfo) -> bool:
    """Return True if a flag may be given several times."""
    return field.annotation == tuple[str, ...] or name == "model"


def _help(field: FieldInfo) -> str:
    if isinstance(field.default, bool) or not isinstance(field.default, int | float | str):
        return str(field.description)
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{field.description} (default: {default})"


def flag(name: str) -> str:
    """Return the flag of a setting."""
    return f"--{file_key(name)}"


def meant_key(unknown: str, settings: Iterable[str]) -> str:
    """Return the end of a message with the setting that is meant by an unknown key; empty without one.

    Keys have one name. The other names of flags are recognised, too; a name that is only alike is meant if no key is.
    """
    own = {flag(name): name for name in settings}
    others = {other: name for other, name in SETTINGS.items() if name in own.values() and other.startswith("--")}
    if flag(unknown) in others:
        return did_you_mean([file_key(others[flag(unknown)])])
    meant = [names[match] for names in (own, others) for match in closest(flag(unknown), list(names))]
    return did_you_mean([file_key(name) for name in meant[:1]])


def file_key(name: str) -> str:
    """Return the key of the file for a setting, as the pages write it. The file may also have `_` for `-`."""
    return name.replace("_", "-")


def keys_by_name(table: Iterable[str]) -> dict[str, str]:
    """Return the keys of a table of the file by the names that settings have.

    Raises:
        ValueError: two keys are one setting.
    """
    keys: dict[str, str] = {}
    for key in table:
        if (other := keys.setdefault(key.replace("-", "_"), key)) != key:
            raise ValueError(f"{other} and {key} are the same setting")
    return keys
