"""Flags that people type from habit: those of llama-server, vLLM and SGLang, with the meaning that they have there.

A flag that means the same as one of ours is another name of it. One of llama-server's whose value has another form is
converted. All others of llama-server's flags, and the usual ones of the others, are refused in one line that names what
to use.
"""

import argparse
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from typing_extensions import override

from gateway.like import llama_server_flags, vllm_flags
from gateway.like.llama_server_flags import OFF, ON
from gateway.like.spellings import SAMPLER_LETTERS

ALIASES: Mapping[str, tuple[str, ...]] = {
    "model": ("-m", "--model-path"),
    "alias": ("-a", "--served-model-name"),
    "context": ("--context-length",),
    "chat_template_kwargs": ("--default-chat-template-kwargs",),
    "chat_template": ("--chat-template-file",),
    "lora": ("--lora-scaled",),
    "control_vector": ("--control-vector-scaled",),
    "threads": ("-t",),
    "threads_batch": ("-tb",),
    "device": ("-dev",),
    "split_mode": ("-sm",),
    "tensor_split": ("-ts",),
    "main_gpu": ("-mg",),
    "override_tensor": ("-ot",),
    "cpu_moe": ("-cmoe",),
    "n_cpu_moe": ("-ncmoe",),
    "cpus": ("-Cr", "--cpu-range"),
    "kv_type_k": ("-ctk", "--cache-type-k"),
    "kv_type_v": ("-ctv", "--cache-type-v"),
    "kv_unified": ("-kvu",),
    "allow_origin": ("--cors-origins",),
    "temperature": ("--temp",),
    "typical_p": ("--typical",),
    "top_n_sigma": ("--top-nsigma",),
    "dynatemp_exponent": ("--dynatemp-exp",),
    "mirostat_tau": ("--mirostat-ent",),
    "mirostat_eta": ("--mirostat-lr",),
    "dry_sequence_breakers": ("--dry-sequence-breaker",),
    "logit_bias": ("-l",),
    "stop": ("-r", "--reverse-prompt"),
    "n_keep": ("--keep",),
    "tls_certificate": ("--ssl-cert-file", "--ssl-certfile"),
    "tls_key": ("--ssl-key-file", "--ssl-keyfile"),
}
"""Other names of our flags, by the name of the setting."""

_Convert: TypeAlias = Callable[[str], str | None]

_MOST_LAYERS = "1000"
_COUNT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([kKmM])", re.ASCII)
_UNITS = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}
"""Units of vLLM's counts of tokens."""


def _renamed(words: Mapping[str, str]) -> Callable[[str], str]:
    """Return the conversion of words that have other names here. Others stay."""
    return lambda value: words.get(value, value)


_SWITCH = _renamed({**dict.fromkeys(ON, "on"), **dict.fromkeys(OFF, "off")})


def _cpus(mask: str) -> str:
    """Convert a mask of CPUs, in hexadecimal digits, to a list."""
    try:
        bits = int(mask, 16)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{mask!r} is not a hexadecimal mask; --cpus takes a list") from error
    return ",".join(str(cpu) for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def _bytes(mebibytes: str) -> str:
    """Convert MiB to bytes."""
    if not mebibytes.isdecimal():
        raise argparse.ArgumentTypeError(f"{mebibytes!r} is not a size in MiB; --prefix-store takes bytes")
    return str(int(mebibytes) * 2**20)


def _number(number: str) -> str | None:
    """Convert -1, which stands for the default."""
    return None if number == "-1" else number


def _context(length: str) -> str | None:
    """Convert a count with a unit, and `auto` and -1, which stand for the default."""
    if (match := _COUNT.fullmatch(length)) and (count := Decimal(match[1]) * _UNITS[match[2]]) == int(count):
        return str(int(count))
    if length in {"auto", "-1"}:
        return None
    if not length.isdecimal():
        raise argparse.ArgumentTypeError(f"{length!r} is not a number of tokens, such as 4096, 4k (4000) or 4K (4096)")
    return length


def _scale(factor: str) -> str:
    """Convert the factor of the context to that of the frequencies."""
    try:
        return str(1 / float(factor))
    except (ValueError, ZeroDivisionError) as error:
        raise argparse.ArgumentTypeError(f"{factor!r} is not a factor; --rope-freq-scale takes 1 by it") from error


def _level(verbosity: str) -> str:
    """Convert a number: errors are 1, and each next level one more."""
    levels = ("error", "error", "warning", "info")
    return (*levels, "debug")[min(int(verbosity), len(levels))] if verbosity.isdecimal() else verbosity


def _seed(seed: str) -> str:
    """Return the seed. What is none is not shown: `-sk-…` may be a key that was typed without its flag."""
    if not seed.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError("should be an integer")
    return seed


def _letters(letters: str) -> str:
    """Convert one letter for each sampler. Others are refused as names."""
    return ";".join(SAMPLER_LETTERS.get(letter, letter) for letter in letters)


CONVERTED: Mapping[tuple[str, ...], tuple[str, _Convert]] = {
    ("-hf", "-hfr", "--hf-repo"): ("model", lambda repository: f"hf:{repository}"),
    ("-np", "--parallel"): ("slots", _number),
    ("-ngl", "--n-gpu-layers"): ("gpu_layers", _renamed({"auto": "-1", "all": _MOST_LAYERS, "-2": _MOST_LAYERS})),
    ("-fit",): ("fit", _SWITCH),
    ("-lm",): ("load_mode", _renamed({"dio": "direct-io"})),
    ("-C", "--cpu-mask"): ("cpus", _cpus),
    ("--prio",): (
        "engine_priority",
        _renamed({"-1": "low", "0": "normal", "1": "medium", "2": "high", "3": "realtime"}),
    ),
    ("-cram", "--cache-ram"): ("prefix_store", _bytes),
    ("--max-model-len",): ("context", _context),
    ("-n", "--predict", "--n-predict"): ("max_tokens", _number),
    ("--rope-scale",): ("rope_freq_scale", _scale),
    ("-s",): ("seed", _seed),
    ("--sampler-seq", "--sampling-seq"): ("samplers", _letters),
    ("-lv", "--verbosity", "--log-verbosity"): ("log_level", _level),
}
"""Flags whose value has another form: the setting, and the conversion."""

SWITCHES: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("-v", "--verbose", "--log-verbose"): ("log_level", "debug"),
    ("--log-jsonl",): ("log_format", "json"),
    ("--no-log-jsonl",): ("log_format", "text"),
    ("-nr", "--no-repack"): ("repack", "off"),
    ("-bs",): ("backend_sampling", "on"),
    ("-dio", "--direct-io"): ("load_mode", "direct-io"),
    ("--mmap",): ("load_mode", "mmap"),
    ("--metrics",): ("no_metrics", "false"),
    ("--no-context-shift",): ("context_shift", "false"),
    ("--lora-init-without-apply",): ("lora_apply", "false"),
}
"""Flags without a value: the setting, and its value."""

SETTINGS: Mapping[str, str] = {
    **{flag: setting for setting, flags in ALIASES.items() for flag in flags},
    **{flag: setting for flags, (setting, _) in (*CONVERTED.items(), *SWITCHES.items()) for flag in flags},
    **dict.fromkeys(("-fa", "--flash-attn"), "flash_attention"),
    **dict.fromkeys(("-c", "--ctx-size"), "context"),
    "--mlock": "load_mode",
    "--no-mmap": "load_mode",
}
"""Settings of all flags that stand for one."""

LAYER_RANGE = "control_vector_layer_range"
"""Setting that takes two values on a command line, as in llama-server."""
_CONTEXT, _LOCK, _COPY = "ctx_size", "mlock", "no_mmap"
"""Names of what only together with other flags makes a setting."""


class _Answer(argparse.Action):
    """Refuses a flag with what to use instead, which is the constant of the flag."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Refuse the flag, whatever its value is, if it has one."""
        parser.error(f"{self.option_strings[0]} is a flag of {self.const}")


def add_habits(parser: argparse.ArgumentParser) -> None:
    """Add other programs' flags to a parser, which `--help` does not list."""
    hidden: dict[str, Any] = {"help": argparse.SUPPRESS}
    for names, (setting, convert) in CONVERTED.items():
        action = "append" if setting == "model" else "store"
        parser.add_argument(*names, dest=setting, type=convert, action=action, **hidden)
    for names, (setting, value) in SWITCHES.items():
        parser.add_argument(*names, dest=setting, action="store_const", const=value, **hidden)
    parser.add_argument("-fa", "--flash-attn", dest="flash_attention", nargs="?", const="on", type=_SWITCH, **hidden)
    parser.add_argument("-c", "--ctx-size", dest=_CONTEXT, **hidden)
    parser.add_argument("--mlock", dest=_LOCK, action="store_true", **hidden)
    parser.add_argument("--no-mmap", dest=_COPY, action="store_true", **hidden)
    for flag in (*llama_server_flags.ALWAYS, *vllm_flags.ALWAYS):
        parser.add_argument(flag, dest="always", action="store_true", **hidden)
    for program, answers in (("llama-server", llama_server_flags.ANSWERS), ("vLLM or SGLang", vllm_flags.ANSWERS)):
        for flag, answer in answers.items():
            text = f"{program}: {answer}"
            parser.add_argument(flag, dest="answer", action=_Answer, nargs="?", const=text, **hidden)


def settings_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the flags of a command line mean. None stands for the default of a setting.

    llama-server's context is that of all slots, if their number is given; otherwise each may use all of it.

    Args:
        flags: values of flags, by the names that `add_habits` and the settings give them.

    Raises:
        ValueError: flags of both programs set the same.
    """
    values = dict(flags)
    values.pop("always", None)
    if LAYER_RANGE in values:
        values[LAYER_RANGE] = " ".join(values[LAYER_RANGE])
    context = values.pop(_CONTEXT, "0")
    mode = _load_mode(locks=values.pop(_LOCK, False), copies=values.pop(_COPY, False))
    if context != "0":
        _add(values, "context", _slot_context(context, values.get("slots")))
    if mode is not None:
        _add(values, "load_mode", mode)
    return values


def _add(values: dict[str, Any], name: str, value: str) -> None:
    if name in values:
        raise ValueError(f"--{name.replace('_', '-')} is given twice, once as a flag of llama-server")
    values[name] = value


def _slot_context(total: str, slots: str | None) -> str:
    """Return the tokens of a slot. What is no number is left to the check of the setting."""
    if slots is None or not (total.isdecimal() and slots.isdecimal()) or int(slots) == 0:
        return total
    return str(int(total) // int(slots))


def _load_mode(*, locks: bool, copies: bool) -> str | None:
    if locks:
        return "mlock" if copies else "mmap+mlock"
    return "none" if copies else None
