"""The state of one generation: its known tokens, and the number of computed ones."""

from bisect import bisect_right
from enum import Enum

from engine.core.drafts.drafter import NgramDrafter, drafter_of
from engine.core.output.choice import ChoiceOutput, End
from engine.core.output.echo import Echo
from engine.core.partition import partition_hash
from engine.core.reasoning_budget import ReasoningBudget
from engine.core.token import Token
from engine.core.window import ContextWindow
from engine.events import Finished, PromptProgress, Text
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
    """Number of prompt tokens with reused cells, not counting its own ones after a preemption."""
    work: int
    """Number of tokens that were computed for it, with those that were computed again after a preemption, and those of
    a step that was not over when it ended."""
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
    output: ChoiceOutput
    """The output of the choice, which takes each token after `append`."""
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
        self.tokens, self.prompt = prompt, len(prompt)
        self.discarded = self.computed = self.cached = self.work = self.charged = 0
        self._read = 0  # prompt tokens that were computed, also before a preemption
        self.seq_id, self.overtaken = -1, False
        self.state = State.WAITING
        self.seed = _seed_of(request, choice)
        self.grammar = grammar
        self.reasoning = reasoning
        self.stop_tokens = frozenset(request.stop_tokens)
        self.echo = echo
        self.output = ChoiceOutput(request, choice, limit, echo, constrained=grammar is not None)
        self.checkpoints = checkpoints
        self.drafter = drafter_of(request, self.seed, prediction or [])
        self._window = window
        self._first_generated = len(prompt)  # its index in `tokens`

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
        return self.output.limit - self.generated

    @property
    def cost(self) -> int:
        """Estimated number of tokens that are still to be computed."""
        return self.pending + min(self.left, FORESEEN)

    @property
    def shares(self) -> bool:
        """True if its cells may be reused by others."""
        return self.partition is not None

    @property
    def draws(self) -> bool:
        """True if any tokens are drawn."""
        return self.output.limit > 0

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

    def begin_at(self, tokens: int) -> int:
        """Count the first tokens as computed, because their cells were reused. Return how many more prompt tokens are.

        A sequence that returns after a preemption reuses its own cells, also those of generated tokens.
        """
        before, self.computed = self.unread, tokens
        if not self.work:
            self.cached = tokens
        return before - self.unread

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
            self.output.decode_seconds += seconds
            return 0
        self.output.prompt_seconds += seconds
        self._read = max(self._read, self.prompt - self.unread)
        return min(tokens, unread)

    def progress(self) -> Text:
        """Return the event with the progress of the prompt. It stands still while tokens are computed again."""
        progress = PromptProgress(self.prompt, self.cached, max(self.cached, self._read), self.output.prompt_seconds)
        return Text(self.choice, "", progress=progress)

    def append(self, token: Token) -> bool:
        """Append a drawn token; `output` takes it next. Return whether the token or the limit may end the choice."""
        left = self.left
        if left == self.output.limit:
            self.tokens = self.tokens.copy()  # until now the choices share the prompt's list
        self.tokens.append(token.id)
        return token.ends or left == 1 or token.id in self.stop_tokens

    def finished(self, end: End) -> Finished:
        """Return the event of its end."""
        output = self.output
        text, details = output.close()
        return Finished(
            self.choice,
            text,
            end.reason,
            self.generated,
            self.cached,
            details,
            end.stop,
            output.prompt_seconds,
            output.decode_seconds,
            output.drafted,
            output.accepted,
            self.discarded,
            self.seq_id,
            output.reasoning_tokens,
            end.last,
        )


def _seed_of(request: GenerationRequest, choice: int) -> int | None:
    """Return the seed of a choice; None for a random one."""
    seed = request.sampling.seed
    return None if seed is None else (seed + choice) % _SEED_RANGE
