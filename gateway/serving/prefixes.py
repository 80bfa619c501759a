"""Reports of the prefixes that the engines hold, for routers in front of several gateways."""

import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from weakref import WeakValueDictionary

import anyio

from engine import (
    Engine,
    GenerationRequest,
    HeldPrefix,
    Infill,
    Prompt,
    PromptText,
    Unavailable,
    adapter_set,
)
from gateway.routing.blocks import Blocks, PromptScope, text_blocks, token_blocks
from gateway.routing.report import HeldBlocks, Report

MOST_LABELS = 4096
"""Latest requests of one model whose prompts have names. What is held of older ones is not reported."""
MOST_BLOCKS = 2**16
"""Blocks in a report. Those of the prompts that were used last come first."""
ASK_SECONDS = 1.0
"""Seconds to wait for the answer of an engine, since the report of all others waits for it, too."""


@dataclass(slots=True)
class _Prompts:
    """The prompts of one request."""

    blocks: tuple[Blocks, ...]
    """Blocks of each prompt."""
    tokens: Sequence[int] = ()
    """Number of tokens of each prompt, once the engine has accepted the request."""


class PromptLabels:
    """Labels of the latest requests to one model, by which the engine names what it holds."""

    def __init__(self, model: str, secret: bytes, engine: Callable[[], Engine | None]) -> None:
        """Create the labels of a model.

        Args:
            model: name of the model.
            secret: secret of the hashes.
            engine: returns the engine of the model, or None without one.
        """
        self.engine = engine
        """Returns the engine of the model, or None without one."""
        self._model = model
        self._secret = secret
        self._labels = count(1)
        self._prompts: OrderedDict[int, _Prompts] = OrderedDict()

    def label(self, request: GenerationRequest) -> GenerationRequest:
        """Return the request with a label, unless none of its cells are shared."""
        if not request.cache_prompt:
            return request
        label = next(self._labels)
        blocks = blocks_of(request, self._model, self._secret)
        self._prompts[label] = _Prompts(tuple(array("Q", one) for one in blocks))  # takes a fifth of a tuple's memory
        if len(self._prompts) > MOST_LABELS:
            self._prompts.popitem(last=False)
        return request.replaced(label=label)

    def count(self, request: GenerationRequest, tokens: Sequence[int]) -> None:
        """Record the number of tokens of each prompt of a request."""
        if request.label is not None and (prompts := self._prompts.get(request.label)):
            prompts.tokens = tokens

    def blocks(self, held: HeldPrefix) -> Blocks:
        """Return the blocks of a held prefix: as large a part of the prompt's text as of its tokens."""
        prompts = self._prompts.get(held.label)
        if prompts is None or not prompts.tokens:
            return ()
        self._prompts.move_to_end(held.label)
        blocks, tokens = prompts.blocks[held.prompt], prompts.tokens[held.prompt]
        return blocks[: len(blocks) * held.tokens // max(tokens, 1)]


class HeldPrefixes:
    """The blocks of prompts that the engines of this process hold."""

    def __init__(self, secret: bytes) -> None:
        """Hash prompts with the secret of all routers and replicas."""
        self._secret = secret
        self._labels = WeakValueDictionary[str, PromptLabels]()
        self._log = HeldBlocks(time.time_ns() // 1_000_000)
        self._asking = anyio.Lock()

    def add(self, model: str, engine: Callable[[], Engine | None]) -> PromptLabels:
        """Return the labels of a model, which may replace an earlier one of its name.

        They are the model's: without it, as after its deletion, they are forgotten. `engine` is as in `PromptLabels`.
        """
        labels = self._labels[model] = PromptLabels(model, self._secret, engine)
        return labels

    async def report(self, since: int = 0) -> tuple[Report, list[str]]:
        """Ask the engines for what they hold, and return the changes since a state: see `HeldBlocks`.

        The names are those of models whose engines did not answer. The state has none of their blocks.
        """
        async with self._asking:
            held, unanswered = await self._held()
            self._log.update(held)
            return self._log.report(since), unanswered

    async def _held(self) -> tuple[set[int], list[str]]:
        asked = dict(self._labels)
        answers: dict[str, Iterable[HeldPrefix]] = {}

        async def ask(model: str, engine: Engine | None) -> None:
            with anyio.move_on_after(ASK_SECONDS):
                answers[model] = await _prefixes(engine)

        async with anyio.create_task_group() as tasks:
            for model, labels in asked.items():
                tasks.start_soon(ask, model, labels.engine())
        unanswered = [model for model in asked if model not in answers]
        blocks: set[int] = set()
        for held in (labels.blocks(prefix) for model, labels in asked.items() for prefix in answers.get(model, ())):
            blocks.update(held)
            if len(blocks) >= MOST_BLOCKS:
                break
        return blocks, unanswered


async def _prefixes(engine: Engine | None) -> Iterable[HeldPrefix]:
    """Return what an engine holds: nothing while it does not run."""
    try:
        return () if engine is None else await engine.held_prefixes(MOST_LABELS)
    except Unavailable:
        return ()


def blocks_of(request: GenerationRequest, model: str, secret: bytes) -> tuple[Blocks, ...]:
    """Return the blocks of each prompt of a request to a model, as the engine gets it."""
    scope = PromptScope(model, request.cache_partition, adapter_set(request.adapters or ()))
    return tuple(_blocks(prompt, scope, secret, len(request.prompts)) for prompt in request.prompts)


def _blocks(prompt: Prompt, scope: PromptScope, secret: bytes, prompts: int) -> Blocks:
    match prompt:
        case str():
            return text_blocks(prompt, scope, secret, prompts)
        case PromptText():
            return text_blocks(prompt.text, scope, secret, prompts)
        case Infill():
            return ()  # the model's tokens around its parts are not known here
        case _:
            return token_blocks(prompt, scope, secret, prompts)
