"""An engine without a model: a test scripts its answers, and sees its requests and cancellations."""

import math
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import anyio
import anyio.lowlevel

from engine import (
    AdapterSet,
    EmbeddingRequest,
    EmbeddingResult,
    Engine,
    EngineError,
    EngineMetrics,
    EngineState,
    EngineStatus,
    Finished,
    FinishReason,
    GenerationRequest,
    HeldPrefix,
    Infill,
    ModelInfo,
    PromptText,
    QueuedRequest,
    RequestError,
    RequestSummary,
    SlotAction,
    SlotInfo,
    Telemetry,
    Text,
    TextPrompt,
    TokenRun,
    text_of,
)

BOS, CONTROL = 256, 257
"""The fake's control tokens, written `<s>` and `<c>`. Ids below them are bytes."""
_CONTROLS = {BOS: b"<s>", CONTROL: b"<c>"}
MODEL = ModelInfo(
    description="fake 1B F32",
    vocabulary=512,
    context=2048,
    trained_context=4096,
    cells=4096,
    cell_bytes=1024,
    slots=2,
    parameters=10,
    size=40,
    embedding_size=4,
    file_type="F32",
    bos="<s>",
)
METRICS = EngineMetrics(2, 1, 1, 0, 7, 0, 3, 0.1, 5, 6, 0)
SLOTS = (SlotInfo(0, "decode", "req_a", 7, 0), SlotInfo(1, "idle", None, 0, 3))


@dataclass
class FakeGeneration:
    """The answer of one request. `put` and `fail` may be called at any moment, before or after it is awaited."""

    request: GenerationRequest
    prompt_tokens: tuple[int, ...]
    left: str | None = None
    has_started: bool = True
    outcomes_put: list[Finished] = field(default_factory=list)
    place: int | None = None
    reasoning_ended: bool = False
    _events: list[Text | Finished] = field(default_factory=list)
    _error: EngineError | None = None
    _news: anyio.Event = field(default_factory=anyio.Event)
    _open: int = 0
    _to: Callable[[Text], bool] | None = None
    _taking: bool = False

    def __post_init__(self) -> None:
        self._open = len(self.request.prompts) * self.request.n

    def put(self, *events: Text | Finished) -> None:
        self._events += (event for event in events if not self._passes(event))
        self.outcomes_put += (event for event in events if isinstance(event, Finished))
        self._open -= sum(isinstance(event, Finished) for event in events)
        self._notify()

    def fail(self, error: EngineError) -> None:
        self._error = error
        self._notify()

    def start(self) -> None:
        self.has_started = True
        self._notify()

    @property
    def ended(self) -> bool:
        return self._open == 0 or self._error is not None

    def summary(self) -> RequestSummary:
        """Return what the real engine would summarise, at times that mean nothing."""
        now = anyio.current_time()
        ends = sorted(self.outcomes_put, key=lambda end: end.choice)
        finished = self._open == 0
        return RequestSummary(
            finished=finished,
            phase="done" if finished else "decode",
            replayed=False,
            accepted_at=now,
            started_at=now if self.has_started else None,
            first_token_at=now if ends else None,
            ended_at=now,
            release_seconds=None if self.left is None else 0.0,
            prompt_tokens=sum(self.prompt_tokens),
            cached_tokens=sum(end.cached for end in ends[:: self.request.n]),
            completion_tokens=sum(end.tokens for end in ends),
            longest_choice=max((end.tokens for end in ends), default=0),
            wasted_tokens=0,
            drafted_tokens=0,
            accepted_draft_tokens=0,
            prefill_seconds=0.0,
            decode_seconds=0.0,
            finish_reasons=tuple(end.reason for end in ends),
        )

    def end_reasoning(self) -> bool:
        self.reasoning_ended = self.has_started and not self.ended
        return self.reasoning_ended

    async def started(self) -> None:
        while not (self.has_started or self.ended):
            await self._news.wait()
        if self._error is not None:
            raise self._error

    async def position(self) -> int | None:
        return None if self.has_started else self.place

    def pass_on(self, to: Callable[[Text], bool]) -> None:
        self._to = to

    def _passes(self, event: Text | Finished) -> bool:
        to = self._to if self._taking and not self._events else None
        return to is not None and isinstance(event, Text) and to(event)

    async def take(self) -> list[Text | Finished]:
        self._taking = True
        try:
            while not self._events and not self.ended:
                await self._news.wait()
        finally:
            self._taking = False
        if not self._events and self._error is not None:
            raise self._error
        events, self._events = self._events, []
        return events

    async def outcomes(self) -> tuple[Finished, ...]:
        while not self.ended:
            await self._news.wait()
        if self._error is not None:
            raise self._error
        ends = [event for event in self._events if isinstance(event, Finished)]
        return tuple(sorted(ends, key=lambda end: end.choice))

    def _notify(self) -> None:
        self._news.set()
        self._news = anyio.Event()


Script = Callable[[FakeGeneration], None]


def echo(generation: FakeGeneration) -> None:
    """Answer each choice with two pieces, `a` and its own number, and stop: three tokens, one of them cached."""
    for choice in range(len(generation.request.prompts) * generation.request.n):
        if generation.request.stream:
            generation.put(Text(choice, "a"), Finished(choice, str(choice), FinishReason.STOP, 3, 1))
        else:
            generation.put(Finished(choice, f"a{choice}", FinishReason.STOP, 3, 1))


def say_nothing(_generation: FakeGeneration) -> None:
    """Leave the queue and generate no token."""


def say_a(generation: FakeGeneration) -> None:
    """Generate one text, and go on."""
    generation.put(Text(0, "a"))


def wait_in_queue(generation: FakeGeneration) -> None:
    """Begin when the test says so."""
    generation.has_started = False


@dataclass
class FakeEmbedding:
    """One embedding request. `left` is the reason of a caller that left before the answer."""

    request: EmbeddingRequest
    left: str | None = None

    def summary(self) -> RequestSummary:
        """Return what the real engine would summarise of a success."""
        done = FakeGeneration(GenerationRequest(id="", prompts=()), tuple(len(part) for part in self.request.inputs))
        return done.summary()


def vector_of(index: int) -> tuple[float, ...]:
    """Return the fake's vector for the input of this index: of length 1, of four numbers."""
    return (0.6, 0.0, 0.0, -0.8) if index % 2 else (0.5, 0.5, 0.5, 0.5)


def score_of(index: int) -> float:
    """Return the fake's score of the document of this index."""
    return (-1.0, 2.0, 0.5)[index % 3]


class FakeEngine:
    """A ready engine. `script` answers each request; `refusal`, if set, refuses each.

    Its tokens are bytes; `<s>` begins a text.
    """

    def __init__(self, script: Script = echo, chat_template: str | None = None) -> None:
        self.status = EngineStatus(EngineState.READY, "The model is loaded.", 1.0, 0)
        self.model: ModelInfo | None = replace(MODEL, chat_template=chat_template)
        self.file: str | None = None
        """Path of the model's file; unset while it is downloaded."""
        self.metrics: EngineMetrics | None = METRICS
        self.script = script
        self.refusal: EngineError | None = None
        self.generations: list[FakeGeneration] = []
        """Every accepted request in order."""
        self.held_share = 1.0
        """Part of each labelled prompt that is held."""
        self.hangs = False
        """True if it does not say what it holds."""
        self.kept: list[tuple[SlotAction, int, str, str, AdapterSet]] = []
        """Slots that were saved, restored or erased, with the file, the partition and the adapters."""
        self.patience: float | None = None
        """The patience of the latest request."""
        self.deadline = math.inf
        """The deadline of the latest request."""
        self.seconds_to_ready: float | None = None
        self.wait: float | None = None
        """The estimate of `queue_seconds`."""
        self.embeddings: list[FakeEmbedding] = []
        """Every embedding request in order."""
        self.tokenized: list[tuple[tuple[TextPrompt, ...], bool, bool]] = []
        """Every query of `tokenize` in order: the texts, `special`, `begin`."""
        self.clients: list[str] = []
        """The client of every query in order."""
        self.answers = anyio.Event()
        """Until it is set, `tokenize`, `detokenize` and `embed` block their callers."""
        self.answers.set()
        self.asked = anyio.Event()
        """Set once one of these queries waits or was answered."""
        self.left = 0
        """The number of these queries that were cancelled before their answer."""

    @property
    def telemetry(self) -> Telemetry:
        metrics, restarts = self.metrics or EngineMetrics(), self.status.restarts
        return replace(Telemetry.none(), metrics=metrics, restarts=restarts)

    def as_engine(self) -> Engine:
        """Return itself with the type of the real engine."""
        return cast("Engine", self)

    async def first(self) -> FakeGeneration:
        """Wait for the first request."""
        with anyio.fail_after(20):
            while not self.generations:
                await anyio.lowlevel.checkpoint()
        return self.generations[0]

    @property
    def prompt(self) -> str:
        """The text of the latest request's only prompt."""
        (prompt,) = self.generations[-1].request.prompts
        assert isinstance(prompt, str | PromptText)
        return text_of(prompt)

    async def ready(self) -> ModelInfo:
        assert self.model is not None
        return self.model

    def queue_seconds(self, _request: GenerationRequest) -> float | None:
        return self.wait

    async def queue(self) -> tuple[QueuedRequest, ...]:
        if self.refusal is not None:
            raise self.refusal
        waiting = (generation for generation in self.generations if not generation.has_started)
        return tuple(
            QueuedRequest(at, one.request.id, sum(one.prompt_tokens), one.request.priority or 0, 1.5)
            for at, one in enumerate(waiting, start=1)
        )

    async def inspect(self) -> tuple[tuple[SlotInfo, ...], EngineMetrics]:
        if self.refusal is not None:
            raise self.refusal
        return SLOTS, METRICS

    async def held_prefixes(self, most: int) -> tuple[HeldPrefix, ...]:
        """Return the prompts of all labelled requests so far, each as held as `held_share` says."""
        if self.hangs:
            await anyio.sleep_forever()
        if self.refusal is not None:
            raise self.refusal
        return tuple(
            HeldPrefix(one.request.label, prompt, int(tokens * self.held_share))
            for one in reversed(self.generations)
            if one.request.label is not None
            for prompt, tokens in enumerate(one.prompt_tokens)
        )[:most]

    async def keep_slot(
        self, action: SlotAction, slot: int, *, file: str = "", partition: str = "", adapters: AdapterSet = ()
    ) -> tuple[int, int]:
        if self.refusal is not None:
            raise self.refusal
        self.kept.append((action, slot, file, partition, adapters))
        return 84, 1000

    async def accept(self, why: Callable[[], str]) -> None:  # noqa: ARG002 - for a caller that leaves meanwhile
        """Accept or refuse a generation."""
        await anyio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal

    @asynccontextmanager
    async def generate(
        self,
        request: GenerationRequest,
        *,
        why: Callable[[], str] = lambda: "left",
        patience: float | None = None,
        deadline: float = math.inf,
        on_end: Callable[[RequestSummary], None] = lambda _summary: None,
    ) -> AsyncIterator[FakeGeneration]:
        self.patience, self.deadline = patience, deadline
        await self.accept(why)
        generation = FakeGeneration(
            request, tuple(10 if isinstance(prompt, Infill | PromptText) else len(prompt) for prompt in request.prompts)
        )
        self.generations.append(generation)
        self.script(generation)
        try:
            yield generation
        finally:
            if not generation.ended:
                generation.left = why()
            on_end(generation.summary())

    async def tokenize(
        self,
        texts: Sequence[TextPrompt],
        *,
        special: bool,
        begin: bool,
        take: Callable[[TokenRun], None],
        pieces: bool = False,
        client: str = "",
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        """Give each token alone, as the parts of a long answer come."""
        self.tokenized.append((tuple(texts), special, begin))
        self.clients.append(client)
        sent()
        await self._answer()
        for at, text in enumerate(texts):
            for token, piece in _tokens(text, special=special, begin=begin):
                take(TokenRun(at, (token,), (piece,) if pieces else ()))
                await anyio.lowlevel.checkpoint()

    async def detokenize(
        self, tokens: Sequence[int], *, special: bool, client: str = "", sent: Callable[[], None] = lambda: None
    ) -> bytes:
        self.clients.append(client)
        sent()
        await self._answer()
        if any(not 0 <= token < MODEL.vocabulary for token in tokens):
            raise RequestError("token id out of range", code="token_out_of_range", param="tokens")
        return b"".join(bytes([token]) if token < BOS else _CONTROLS.get(token, b"") * special for token in tokens)

    async def embed(
        self,
        request: EmbeddingRequest,
        *,
        why: Callable[[], str] = lambda: "left",
        accepted: Callable[[], None] = lambda: None,
        on_end: Callable[[RequestSummary], None] = lambda _summary: None,
    ) -> EmbeddingResult:
        embedding = FakeEmbedding(request)
        self.embeddings.append(embedding)
        accepted()
        try:
            await self._answer()
        except BaseException as error:
            embedding.left = None if error is self.refusal else why()
            raise
        on_end(embedding.summary())
        numbers = vector_of if request.ranking is None else lambda index: (score_of(index), 0.0)
        rows = (numbers(index) for index in range(len(request.inputs)))
        vectors = tuple(struct.pack(f"<{len(row)}f", *row) for row in rows)
        return EmbeddingResult(vectors, tuple(len(part) for part in request.inputs))

    async def _answer(self) -> None:
        self.asked.set()
        try:
            await self.answers.wait()
        except BaseException:
            self.left += 1
            raise
        if self.refusal is not None:
            raise self.refusal


def _tokens(text: TextPrompt, *, special: bool, begin: bool) -> Iterator[tuple[int, bytes]]:
    if begin:
        yield BOS, _CONTROLS[BOS]
    if isinstance(text, PromptText):
        for part, plain in text.parts():
            yield from _tokens(part, special=not plain, begin=False)
        return
    for at, part in enumerate(text.split("<c>") if special else [text]):
        if at:
            yield CONTROL, _CONTROLS[CONTROL]
        yield from ((byte, bytes([byte])) for byte in part.encode())
