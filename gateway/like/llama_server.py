"""Command line of llama-server as a command line of `serve`: with its variables, defaults and meanings.

Most of its flags are flags of `serve` too, some by another name (`gateway.habits`). This module converts those that
mean something else here. Flags that mean nothing here are left out, each with one line for the operator. Flags that
cannot be left out, because something else would be served, stay, so that `serve` refuses them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from gateway.arguments import hyphenated
from gateway.like.llama_server_flags import ANSWERS, OFF, PRESETS
from gateway.like.spellings import VALUELESS, from_variables

DEFAULTS: Mapping[str, str] = {
    "port": "8080",
    "request_timeout": "3600",
    "default_chat_template": "chatml",
    "temperature": "0.8",
    "top_k": "40",
    "top_p": "0.95",
    "min_p": "0.05",
    "dry_penalty_last_n": "64",
    "chat_template_kwargs": '{"enable_thinking":true}',
    "answers_like": "llama-server",
    "allow_origin": "*",
    "lora_apply": "true",
    "no_metrics": "true",
}
"""Defaults of llama-server that differ from those of `serve`, by the names of the settings."""

_Convert: TypeAlias = Callable[[str], list[str]]

_ESSENTIAL = """-mu --model-url -dr --docker-repo --rpc --api-prefix --override-kv --grammar --grammar-file -j
--json-schema -jf --json-schema-file -cl --cache-list --completion-bash --list-devices --models-preset"""
"""Flags without which, as without `PRESETS`, another model, other answers or other paths would be served."""
_SWITCHES = """--embedding --embeddings --models-autoload
--no-mmproj --no-mmproj-auto --no-ui --no-webui -no-ag --no-agent --no-ui-mcp-proxy --no-webui-mcp-proxy --perf
--escape -e --cache-idle-slots --swa-full"""
_ALREADY_SO: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_SWITCHES.split(), ()),
    **dict.fromkeys(("-no-kvu", "--no-kv-unified"), ("-kvu", "--kv-unified")),
    "--slots": ("--no-slots",),
}
"""Flags for what this server does anyway, and their opposites, which they take back: the last one counts."""
_LOCAL_FILE = ("-m", "--model")
_REPOSITORY = ("-hf", "-hfr", "--hf-repo")
_REPOSITORY_FILE = ("-hff", "--hf-file")
_HOST = ("--host",)
_PORT = ("--port",)
_PLACES = (_LOCAL_FILE, _REPOSITORY, _REPOSITORY_FILE, _HOST, _PORT)
"""Flags that are converted together, by what they name. The last value of each counts."""
_LAYER_RANGE = "--control-vector-layer-range"
_REASONING = ("-rea", "--reasoning")
_EFFORT = "--reasoning-effort"
_TEMPLATE_VARIABLES = "--chat-template-kwargs"


class LineError(Exception):
    """Command line that cannot be translated. The text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Translated:
    """Command line of `serve` that does what one of llama-server does."""

    arguments: Sequence[str]
    """The command line without the program's name."""
    environment: Mapping[str, str]
    """The variables."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Values of settings that neither the command line nor a variable nor the TOML file has."""
    notes: Sequence[str] = ()
    """One line for each flag that has no effect."""


def command_line(arguments: Sequence[str], environment: Mapping[str, str]) -> Translated:
    """Return a command line and its variables, translated if it begins with `serve --like llama-server`.

    Raises:
        LineError: A file of API keys cannot be used.
    """
    match arguments:
        case ["serve", "--like", "llama-server", *rest] | ["serve", "--like=llama-server", *rest]:
            return translate(rest, environment)
        case _:
            return Translated(arguments, environment)


def translate(arguments: Sequence[str], environment: Mapping[str, str]) -> Translated:
    """Return the command line of `serve` that does what llama-server does with these arguments and variables.

    Raises:
        LineError: A file of API keys cannot be used.
    """
    if set(arguments) & {"-h", "--help", "--usage"}:
        return Translated(["serve", "--help"], environment)
    if "--version" in arguments:
        return Translated(["--version"], environment)
    translation = _Translation()
    left = iter([*from_variables(environment), *arguments])
    for argument in left:
        translation.add(hyphenated(argument), left)
    given = [
        "serve",
        *translation.model(),
        *translation.address(),
        *translation.variables(),
        *translation.arguments,
    ]
    return Translated(given, environment, DEFAULTS, translation.notes)


class _Translation:
    """Arguments that are translated so far."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.notes: list[str] = []
        self._places: dict[tuple[str, ...], str] = {}
        self._thinking = ""
        self._variables: dict[str, str] = {}
        self._converted: dict[_Convert, list[str]] = {}

    def add(self, flag: str, left: Iterator[str]) -> None:
        """Translate one flag with its value, if it has one, which is next of those left."""
        if flag in _ALREADY_SO:
            self.arguments = [argument for argument in self.arguments if argument not in _ALREADY_SO[flag]]
            return
        if place := next((names for names in _PLACES if flag in names), None):
            self._places[place] = next(left, "")
        elif flag in _REASONING:
            self._thinking = "false" if next(left, "") in OFF else "true"
        elif flag in {_EFFORT, _TEMPLATE_VARIABLES}:
            self._variables[flag] = next(left, "")
        elif flag == _LAYER_RANGE:
            self.arguments.append(f"{flag}={next(left, '')}-{next(left, '')}")
        elif flag in _CONVERTED:
            self._convert(_CONVERTED[flag], "" if flag in VALUELESS else next(left, ""))
        elif flag in _IGNORED:
            if flag not in VALUELESS:
                next(left, None)
            self.notes.append(f"{flag} of llama-server has no effect: {_IGNORED[flag]}")
        else:
            self.arguments.append(flag)

    def _convert(self, convert: _Convert, value: str) -> None:
        """Add what a value becomes. One that stands for the default takes back those before it, as of a variable."""
        converted = convert(value)
        before = self._converted.setdefault(convert, [])
        if not converted:
            self.arguments = [argument for argument in self.arguments if argument not in before]
        self.arguments += converted
        before += converted

    def variables(self) -> list[str]:
        """Return the argument with the variables of the chat template. Reasoning is on unless it is switched off."""
        variables = self._variables.get(_TEMPLATE_VARIABLES, "")
        level = self._variables.get(_EFFORT, "default")
        effort = "" if level == "default" else f',"reasoning_effort":{json.dumps(level)}'
        if not (self._thinking or effort or variables):
            return []
        given = (variables or "{}").strip().removeprefix("{")
        comma = "" if given.lstrip().startswith("}") else ","
        thinking = self._thinking or "true"
        return [f'--chat-template-kwargs={{"enable_thinking":{thinking}{effort}{comma}{given}']

    def model(self) -> list[str]:
        """Return the argument of the model. One on the hub comes before a file, as llama-server has it."""
        repository, file = self._places.get(_REPOSITORY), self._places.get(_REPOSITORY_FILE)
        if repository and file:
            return [f"--model=hf:{repository.partition(':')[0]}/{file}"]
        if repository:
            return [f"--model=hf:{repository}"]
        local = self._places.get(_LOCAL_FILE)
        return [f"--model={local}"] if local else []

    def address(self) -> list[str]:
        """Return the arguments of the address and the port, or that of a Unix socket, which has no port."""
        host, port = self._places.get(_HOST), self._places.get(_PORT)
        if host is not None and host.endswith(".sock"):
            return [f"--unix-socket={host}"]
        given = (("--host", host), ("--port", port))
        return [f"{flag}={value}" for flag, value in given if value is not None]


_IGNORED = {
    flag: answer for flag, answer in ANSWERS.items() if flag not in {*f"{_ESSENTIAL} {PRESETS}".split(), *_ALREADY_SO}
}
"""Advice for the flags that have no effect."""


def _number(flag: str) -> _Convert:
    """Return the conversion of a number. One below 1, with which llama-server chooses, is left out."""

    def convert(value: str) -> list[str]:
        return [] if value.removeprefix("-").isdecimal() and int(value) < 1 else [f"{flag}={value}"]

    return convert


def _sleep(seconds: str) -> list[str]:
    """Convert the time without a request after which the model, which is loaded at the start, is unloaded."""
    idle = _number("--idle-unload")(seconds)
    return [*idle, "--load-at-start"] if idle else []


def _memory(mebibytes: str) -> list[str]:
    """Convert the size of the cache. Without a limit, this server takes a part of the free memory."""
    return [] if mebibytes == "-1" else [f"--cache-ram={mebibytes}"]


def _template(text: str) -> list[str]:
    """Convert the name or the text of a chat template. A text without Jinja gets an empty comment, to look like one."""
    return [f"--chat-template={'{##}' if ' ' in text else ''}{text}"]


def _names(names: str) -> list[str]:
    """Convert the names of a model: the first in the alphabet is its name in answers."""
    return [f"--alias={','.join(sorted(name.strip() for name in names.split(',')))}"]


def _keys(path: str) -> list[str]:
    """Convert a file with one API key on each line."""
    try:
        keys = Path(path).expanduser().read_text(encoding="utf-8-sig").split()
    except (OSError, ValueError, RuntimeError) as error:
        raise LineError(f"--api-key-file {path!r}: the file cannot be read") from error
    if any("," in key for key in keys):  # its parts would be keys
        raise LineError(f"--api-key-file {path!r}: a key has a comma, which is not possible here")
    return [f"--api-key={','.join(keys)}"]


_CONVERTED: Mapping[str, _Convert] = {
    **dict.fromkeys(("-t", "--threads"), _number("--threads")),
    **dict.fromkeys(("-tb", "--threads-batch"), _number("--threads-batch")),
    **dict.fromkeys(("-np", "--parallel"), _number("--parallel")),
    **dict.fromkeys(("-to", "--timeout"), _number("--request-timeout")),
    **dict.fromkeys(("-cram", "--cache-ram"), _memory),
    **dict.fromkeys(("-a", "--alias"), _names),
    **dict.fromkeys(("--rerank", "--reranking"), lambda _: ["--pooling=rank"]),
    "--sleep-idle-seconds": _sleep,
    "--chat-template": _template,
    "--api-key-file": _keys,
    "--load-mode": lambda mode: [f"-lm={mode}"],
    "--fit": lambda choice: [f"-fit={choice}"],
    "--repack": lambda _: ["--repack=on"],
    "--backend-sampling": lambda _: ["--backend-sampling=on"],
    "--log-disable": lambda _: ["--log-level=error"],
}
"""Flags whose value means something else here, or whose meaning has another flag."""
