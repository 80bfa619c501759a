"""Tokens of a fill-in-the-middle prompt, in llama-server's order.

    [REP]myproject [SEP]file part … [SEP]filename [PRE]prefix prompt[SUF]suffix[MID]

The order is that of Qwen2.5-Coder (https://arxiv.org/pdf/2409.12186). A part that many requests repeat comes first, so
that its KV cells are found in the cache.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain

from engine import all_plain
from gateway.apis.llama_server.infill.request import InfillCall
from gateway.apis.llama_server.tokens import PromptReader
from gateway.middleware.errors import NO_RETRY, Problem, RefusedError

MOST_BEFORE, MOST_AFTER = 1536, 512
"""Tokens of the text before and after the gap that are used: those of llama-server with its default batch."""

_PROJECT, _FILE = "myproject\n", "filename\n"
_SNIPPET = "\n\n--- snippet ---\n\n"
"""Text between the parts of other files, for models without a token for it."""
_GAP = ("prefix", "suffix", "middle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Tokens of the texts of a request."""

    begin: Sequence[int]
    """Tokens that begin every prompt of the model."""
    project: Sequence[int]
    """Name of the project."""
    file: Sequence[int]
    """Name of the file with the gap."""
    prefix: Sequence[int]
    """Text before the gap."""
    prompt: Sequence[int]
    """Text directly before the gap."""
    suffix: Sequence[int]
    """Text after the gap."""
    extra: Sequence[tuple[Sequence[int], Sequence[int]]]
    """Heading and text of each part of another file."""


def check_infills(marks: Mapping[str, int]) -> None:
    """Check that a model has the tokens for a gap.

    Raises:
        RefusedError: It has not (501).
    """
    missing = "".join(f"{name} token is missing. " for name in _GAP if name not in marks)
    if missing:
        message = f"Infill is not supported by this model: {missing.rstrip()}"
        status = HTTPStatus.NOT_IMPLEMENTED
        raise RefusedError(Problem(status=status, message=message, code="unsupported", headers=NO_RETRY))


def infill_tokens(marks: Mapping[str, int], texts: Texts, room: int) -> list[int]:
    """Return the tokens of a prompt. The first tokens of other files are left out if all do not fit in `room`."""
    before = [marks["prefix"], *texts.prefix[-MOST_BEFORE:], *texts.prompt]
    after = [marks["suffix"], *texts.suffix[: max(0, MOST_AFTER - 2 - len(texts.prompt))], marks["middle"]]
    extra = list(_extra(marks, texts))
    left = max(0, room - len(texts.begin) - len(before) - len(after))
    return [*extra[max(0, len(extra) - left) :], *texts.begin, *before, *after]


def _extra(marks: Mapping[str, int], texts: Texts) -> Iterable[int]:
    file = [marks["file"]] if "file" in marks else []
    project = [marks["repository"], *texts.project] if "repository" in marks else []
    parts = chain.from_iterable((*file, *heading, *text) for heading, text in texts.extra)
    return chain(project, parts, (*file, *texts.file) if file else ())


async def infill_texts(reader: PromptReader, call: InfillCall, *, named: bool) -> Texts:
    """Return the tokens of the texts of a request. `named` if the model has a token before the name of a file."""
    headings = [f"{name}\n" if named else _SNIPPET for name, _ in call.extra]
    parts = [_PROJECT, _FILE, call.prefix, call.prompt, call.suffix, *headings, *(text for _, text in call.extra)]
    begin = (await reader.texts([""], begin=True)).ids[0]
    project, file, prefix, prompt, suffix, *extra = (await reader.texts(list(map(all_plain, parts)), begin=False)).ids
    pairs = list(zip(extra[: len(headings)], extra[len(headings) :], strict=True))
    return Texts(begin=begin, project=project, file=file, prefix=prefix, prompt=prompt, suffix=suffix, extra=pairs)
