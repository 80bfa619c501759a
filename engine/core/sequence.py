"""The state of one generation: its known tokens, the number of computed ones, and the end conditions."""

from bisect import bisect_right
from enum import Enum

from engine.core.drafts.drafter import NgramDrafter, drafter_of
from engine.core.output.echo import Echo
from engine.core.output.line_limits import line_limits_of
from engine.core.output.reasoning_span import ReasoningSpan
from engine.core.output.transcript import Transcript
from engine.core.partition import partition_hash
from engine.core.reasoning_budget import ReasoningBudget
from engine.core.token import Token
from engine.core.window import ContextWindow
from engine.events import Finished, FinishReason, PromptProgress, Text
from engine.request import AdapterSet, GenerationRequest, adapter_set

_SEED_RANGE = 2**32
FORESEEN = 1024
"""Generated tokens in the estimated cost of a sequence. Most texts end long before their limit; what a longer one has
cost counts at its end."""


class State(Enum):
    """The state of a sequence. Prefill and decode are not states; they follow from the number of computed tokens."""

    WAITING = "waiting"
    """It has no slot yet, or no longer."""
    RUNNING = "running"
    """It holds a slot."""
    ENDED = "ended"
    """It has finished, failed or was cancelled."""


_NEXT = {
    State.WAITING: {State.RUNNING, State.ENDED},
    State.RUNNING: {State.WAITING, State.ENDED},
    State.ENDED: set[State](),
}


class Sequence:
    """One choice of a request."""

    request: GenerationRequest
    """The request that it belongs to."""
    choice: int
    """Index of the choice in the request."""
    adapters: AdapterSet
    """The LoRA adapters that compute it. All rows of one step have the same set."""
    tokens: list[int]
    """All known tokens: the prompt, then the generated ones. Discarded ones are left out."""
    prompt: int
    """Number of prompt tokens."""
    discarded: int
    """Number of tokens that are no longer in `tokens`, because the slot was full."""
    computed: int
    """Number of known tokens that have cells in the KV cache."""
    cached: int
    """Number of prompt tokens with reused cells."""
    work: int
    """Number of tokens that were computed for it, with those that were computed again after a preemption."""
    charged: int
    """Number of tokens that its client was charged for it."""
    seq_id: int
    """The slot that it holds or held last; -1 before the first."""
    overtaken: bool
    """True if a shorter prompt came first, the last time that this one was the oldest."""
    state: State
    """Waiting, running or ended."""
    seed: int | None
    """The seed of this choice; random if None."""
    grammar: object | None
    """The request's grammar, compiled by `Model.compile`."""
    reasoning: ReasoningBudget | None
    """The end of its reasoning, for which the runner asks before each draw."""
    stop_tokens: frozenset[int]
    """Ids that end the choice besides the model's end tokens."""
    echo: Echo | None
    """The prompt as part of the output, shared by its choices."""
    checkpoints: tuple[int, ...]
    """Numbers of prompt tokens after which its state is worth saving, ascending. Models that need none ignore them."""
    drafter: NgramDrafter | None
    """Source of draft tokens; unset if the request forbids speculation or needs repeatable results."""

    def __init__(  # noqa: PLR0913 - what admission has found out
        self,
        request: GenerationRequest,
        choice: int,
        prompt: list[int],
        limit: int,
        *,
        grammar: object | None = None,
        reasoning: ReasoningBudget | None = None,
        echo: Echo | None = None,
        prediction: list[int] | None = None,
        checkpoints: tuple[int, ...] = (),
        window: ContextWindow | None = None,
    ) -> None:
        """Create a sequence that waits for a slot.

        Args:
            request: the request that it belongs to.
            choice: its index in the request.
            prompt: the prompt's tokens, which choices share.
            limit: the maximum number of generated tokens; with 0 the prompt is computed and no token is drawn.
            grammar: the request's grammar, compiled by `Model.compile`.
            reasoning: the end of the reasoning of this choice.
            echo: shared by the choices of one prompt.
            prediction: tokens of a text that the answer may repeat.
            checkpoints: numbers of prompt tokens after which its state is worth saving, ascending.
            window: what is discarded when the slot is full; unset if `limit` makes sure that it never is.
        """
        self.request, self.choice = request, choice
        self.adapters = adapter_set(request.adapters or ())
        self._partition = partition_hash(request.cache_partition, self.adapters) if request.cache_prompt else None
        self.tokens = prompt
        self.prompt = len(prompt)
        self.discarded = self.computed = self.cached = self.work = self.charged = self._drafted = self._accepted = 0
        self.seq_id = -1
        self.overtaken = False
        self.state = State.WAITING
        self.seed = _seed_of(request, choice)
        self.grammar = grammar
        self.reasoning = reasoning
        self.stop_tokens = frozenset(request.stop_tokens)
        self.echo = echo
        self.checkpoints = checkpoints
        self.drafter = drafter_of(request, self.seed, prediction or [])
        self._limit = limit
        self._window = window
        self._first_generated = len(prompt)  # its index in `tokens`
        self._lines = line_limits_of(request)
        self._transcript = Transcript(request.stop, with_tokens=request.token_ids or request.logprobs is not None)
        self._prompt_seconds = self._decode_seconds = 0.0
        self._reasoning = ReasoningSpan(request.reasoning) if request.reasoning else None

    @property
    def partition(self) -> str | None:
        """The cache partition that may reuse its cells; unset if its cells are not shared.

        Cells behind discarded ones are not shared: they have attended to tokens that are gone.
        """
        return None if self.discarded else self._partition

    @property
    def origin(self) -> tuple[int, int] | None:
        """Label of its request and index of its prompt; unset without a label, or if its cells are not shared."""
        label = self.request.label
        return None if label is None or self.partition is None else (label, self.choice // self.request.n)

    @property
    def pending(self) -> int:
        """Known tokens that are not computed. With 1 the next step draws a token."""
        return len(self.tokens) - self.computed

    @property
    def at_checkpoint(self) -> bool:
        """True if its state is worth saving now."""
        return self.computed in self.checkpoints

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) + self.discarded - self.prompt

    @property
    def unread(self) -> int:
        """Prompt tokens that are not computed."""
        return max(0, self._first_generated - self.computed)

    @property
    def full(self) -> bool:
        """True if tokens must be discarded before the next step. A prompt that is only read needs no further cell."""
        return self._window is not None and self.pending == 1 and self.draws and self._window.is_full(self.computed)

    @property
    def room(self) -> int:
        """The maximum number of tokens, draft tokens included, that the next step may compute.

        They leave the last cell of a slot unused, so that it is full with the same tokens as without drafts.
        """
        return self.left if self._window is None else min(self.left, self._window.size - 1 - self.computed)

    @property
    def left(self) -> int:
        """Tokens that may still be generated."""
        return self._limit - self.generated

    @property
    def cost(self) -> int:
        """Estimated number of tokens that are still to be computed."""
        return self.pending + min(self.left, FORESEEN)

    @property
    def shares(self) -> bool:
        """True if its cells may be reused by others."""
        return self.partition is not None

    @property
    def ends_by_text(self) -> bool:
        """True if its text or the time may end it, not only a token or its limit."""
        return bool(self.request.stop) or self._lines is not None

    @property
    def draws(self) -> bool:
        """True if any tokens are drawn."""
        return self._limit > 0

    @property
    def unscored(self) -> int:
        """Number of prompt tokens with scores that are requested and not computed yet."""
        return self.echo.unscored if self.echo else 0

    @property
    def reusable(self) -> int:
        """The maximum number of cells to reuse. The last token and rows that score others are always computed."""
        return self.prompt - 1 - self.unscored if self.unscored else len(self.tokens) - 1

    def tokens_to_checkpoint(self) -> int:
        """Return the number of tokens up to the next checkpoint, or all pending ones. A chunk ends there."""
        at = bisect_right(self.checkpoints, self.computed)
        return self.checkpoints[at] - self.computed if at < len(self.checkpoints) else self.pending

    def begin_at(self, tokens: int) -> None:
        """Count the first tokens as computed, because their cells were reused."""
        self.computed = tokens
        if not self.generated:
            self.cached = tokens

    def discard(self) -> tuple[int, int]:
        """Discard tokens of a full slot. Return the position of the first one, and their number.

        Raises:
            RuntimeError: the slot cannot become full.
        """
        if self._window is None:
            raise RuntimeError("the sequence has no context window")
        start, count = self._window.gap(self.computed)
        if self.drafter:
            self.drafter.discard(self.tokens, count)
        self.tokens = [*self.tokens[:start], *self.tokens[start + count :]]
        self._first_generated -= max(0, min(self._first_generated - start, count))
        self.computed -= count
        self.discarded += count
        self.checkpoints = ()
        return start, count

    def enter(self, state: State) -> None:
        """Change the state.

        Raises:
            RuntimeError: there is no such transition.
        """
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"a sequence cannot go from {self.state.value} to {state.value}")
        self.state = state

    def advance(self, tokens: int, seconds: float) -> int:
        """Count the next tokens as computed by a step of that duration. Return how many of them are of the prompt."""
        unread = self._first_generated - self.computed
        self.computed += tokens
        self.work += tokens
        if unread <= 0:
            self._decode_seconds += seconds
            return 0
        self._prompt_seconds += seconds
        return min(tokens, unread)

    def progress(self) -> Text:
        """Return the event with the progress of the prompt."""
        read = min(self.computed, self.prompt)
        return Text(self.choice, "", progress=PromptProgress(self.prompt, self.cached, read, self._prompt_seconds))

    def count_draft(self, drafted: int, accepted: int) -> None:
        """Add the numbers of draft tokens that a step computed, and that were accepted."""
        self._drafted += drafted
        self._accepted += accepted

    def append(self, token: Token) -> bool:
        """Append a drawn token; `accept` comes next. Return whether the token or the limit may end the choice."""
        left = self.left
        if left == self._limit:
            self.tokens = self.tokens.copy()  # until now the choices share the prompt's list
        self.tokens.append(token.id)
        return token.ends or left == 1 or token.id in self.stop_tokens

    def accept(self, token: Token) -> Text | Finished | None:
        """Add the token that was appended last to the output. Return the choice's event, if there is one.

        The first `min_tokens` tokens end the choice neither by themselves nor by completing a stop string (as in vLLM),
        unless it is an end token because the grammar allows no other token.
        """
        generated = self.generated
        sampling = self.request.sampling
        may_end = generated > sampling.min_tokens
        if generated == 1:
            self._add_echo()
        if self._reasoning:
            self._reasoning.accept(token.piece)
        if may_end and token.id in self.stop_tokens:
            return self._finish(FinishReason.STOP, token.id)
        if token.ends and (self.grammar is not None or (may_end and not sampling.ignore_eos)):
            return self._finish(FinishReason.STOP)
        text = self._transcript.add(token, may_stop=may_end)
        if self._transcript.stopped is not None:
            return self._finish(FinishReason.STOP, self._transcript.stopped)
        if self._lines and (kept := self._lines.kept(text, self._decode_seconds)) is not None:
            self._transcript.cut(len(text) - kept)
            return self._finish(FinishReason.LENGTH)
        if generated == self._limit:
            return self._finish(FinishReason.LENGTH)
        return self._take_text() if self.request.stream or self._transcript.is_long else None

    def complete(self) -> Finished:
        """End a sequence that draws no tokens, after its prompt is computed."""
        self._add_echo()
        return self._finish(FinishReason.LENGTH)

    def _add_echo(self) -> None:
        if self.echo:
            self._transcript.open(self.echo.text, self.echo.details)

    def _take_text(self) -> Text | None:
        text, details = self._transcript.take()
        seconds = self._decode_seconds if self.request.progress else 0.0
        return Text(self.choice, text, details, seconds) if text else None

    def _finish(self, reason: FinishReason, stop: str | int | None = None) -> Finished:
        text, details = self._transcript.close()
        costs = self._prompt_seconds, self._decode_seconds, self._drafted, self._accepted
        return Finished(
            self.choice,
            text,
            reason,
            self.generated,
            self.cached,
            details,
            stop,
            *costs,
            self.discarded,
            self.seq_id,
            self._reasoning.tokens if self._reasoning else 0,
        )


def _seed_of(request: GenerationRequest, choice: int) -> int | None:
    """Return the seed of a choice; None for a random one."""
    seed = request.sampling.seed
    return None if seed is None else (seed + choice) % _SEED_RANGE
