"""One generation's life: the tokens it knows, how many of them are computed, and what each new one means."""

from enum import Enum

from engine.core.drafter import NgramDrafter
from engine.core.echo import Echo
from engine.core.token import Token
from engine.core.transcript import Transcript
from engine.events import Finished, FinishReason, Text
from engine.request import GenerationRequest

_SEED_RANGE = 2**32


class State(Enum):
    """Where a sequence is. Prefill and decode are no states: they are how much of what it knows is computed."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


_NEXT = {
    State.WAITING: {State.RUNNING, State.ENDED},
    State.RUNNING: {State.WAITING, State.ENDED},
    State.ENDED: set[State](),
}


class Sequence:
    """One choice of a request.

    Attributes:
        request_id: of its request, for the logs.
        choice: its index in the request.
        tokens: all tokens known: the prompt, then what was generated.
        prompt: how many of them are the prompt.
        computed: how many of them have cells in the KV cache.
        cached: how many of the prompt it took over from cells that were there.
        partition: whose cells it may take over, and who its own: those of the same partition. None shares with nobody.
        seq_id: the slot it holds or held last, -1 before the first.
        state: waiting, running or ended.
        sampling: how its tokens are drawn.
        seed: its own seed; None draws one.
        grammar: what `Model.compile` made of the grammar that its text must match; None leaves it free.
        stop_tokens: ids that end it, beside the model's own end tokens.
        logprobs: how many alternatives to tell of each token, beside its own log-probability; None tells neither.
        show_special: whether control tokens are part of its text, by their names.
        echo: what it tells of its prompt, shared by the choices of the prompt; None tells nothing.
        drafter: guesses its next tokens; None where nobody may.
        speculates: whether guesses are computed even where that promises no gain.
    """

    def __init__(
        self,
        request: GenerationRequest,
        choice: int,
        prompt: list[int],
        limit: int,
        *,
        grammar: object | None = None,
        echo: Echo | None = None,
        prediction: list[int] | None = None,
    ) -> None:
        """Make it wait for a slot.

        Args:
            request: what it answers.
            choice: its index in the request.
            prompt: its tokens, which choices share.
            limit: tokens to generate at most; with 0 the prompt is computed and nothing is drawn.
            grammar: what `Model.compile` made of the request's.
            echo: for the choices of one prompt.
            prediction: tokens of a text that the answer may repeat.
        """
        self.request_id = request.id
        self.choice = choice
        self.tokens = prompt
        self.prompt = len(prompt)
        self.computed = 0
        self.cached = 0
        self.partition = request.cache_partition if request.cache_prompt else None
        self.seq_id = -1
        self.state = State.WAITING
        self.sampling = request.sampling
        seed = request.sampling.seed
        self.seed = None if seed is None else (seed + choice) % _SEED_RANGE
        self.grammar = grammar
        self.stop_tokens = frozenset(request.stop_tokens)
        self.logprobs = request.logprobs
        self.show_special = request.show_special
        self.echo = echo
        self.speculates = bool(request.speculative)
        may_draft = request.speculative is None and seed is None
        self.drafter = NgramDrafter(prediction or []) if self.speculates or may_draft else None
        self._limit = limit
        self._stream = request.stream
        tells_tokens = request.token_ids or request.logprobs is not None
        self._transcript = Transcript(request.stop, tells_tokens=tells_tokens)
        self._prompt_seconds = 0.0
        self._decode_seconds = 0.0
        self._drafted = 0
        self._accepted = 0

    @property
    def pending(self) -> int:
        """Tokens known and not computed. 1 means that the next pass draws a token."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt

    @property
    def left(self) -> int:
        """Tokens that it may still generate."""
        return self._limit - self.generated

    @property
    def shares(self) -> bool:
        """Whether it shares cells with anybody."""
        return self.partition is not None

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn for it at all."""
        return self._limit > 0

    @property
    def unscored(self) -> int:
        """Tokens of its prompt that it tells with a score that nobody has computed yet."""
        return self.echo.unscored if self.echo else 0

    @property
    def reusable(self) -> int:
        """How many cells it may start from: its last token it computes itself, and the rows that score others."""
        return self.prompt - 1 - self.unscored if self.unscored else len(self.tokens) - 1

    def begin_at(self, tokens: int) -> None:
        """Count the first tokens as computed: their cells were taken over."""
        self.computed = tokens
        if not self.generated:
            self.cached = tokens

    def enter(self, state: State) -> None:
        """Change state. Raises `RuntimeError` for a change that the table does not have."""
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"a sequence cannot go from {self.state.value} to {state.value}")
        self.state = state

    def advance(self, tokens: int, seconds: float) -> None:
        """Count the next tokens as computed, by a pass that took so many seconds."""
        if self.computed < self.prompt:
            self._prompt_seconds += seconds
        else:
            self._decode_seconds += seconds
        self.computed += tokens

    def count_draft(self, drafted: int, accepted: int) -> None:
        """Add the draft tokens that a pass computed, and those of them that were accepted."""
        self._drafted += drafted
        self._accepted += accepted

    def accept(self, token: Token) -> Text | Finished | None:
        """Take the token drawn after all computed ones; gives the choice's news, if any.

        None of the first `min_tokens` tokens ends the choice, neither by itself nor by completing a stop string (after
        vLLM), unless it is an end token because a grammar allows nothing more.
        """
        may_end = self.generated >= self.sampling.min_tokens
        if not self.generated:
            self.tokens = self.tokens.copy()  # until now the prompt was shared by its choices
            self._tell_prompt()
        self.tokens.append(token.id)
        if may_end and token.id in self.stop_tokens:
            return self._finish(FinishReason.STOP, token.id)
        if token.ends and (self.grammar is not None or (may_end and not self.sampling.ignore_eos)):
            return self._finish(FinishReason.STOP)
        self._transcript.add(token, may_stop=may_end)
        if self._transcript.stopped is not None:
            return self._finish(FinishReason.STOP, self._transcript.stopped)
        if self.generated == self._limit:
            return self._finish(FinishReason.LENGTH)
        return self._take_text() if self._stream else None

    def complete(self) -> Finished:
        """End a sequence that draws nothing, once all it knows is computed."""
        self._tell_prompt()
        return self._finish(FinishReason.LENGTH)

    def _tell_prompt(self) -> None:
        if self.echo:
            self._transcript.open(self.echo.text, self.echo.details)

    def _take_text(self) -> Text | None:
        text, details = self._transcript.take()
        return Text(self.choice, text, details) if text else None

    def _finish(self, reason: FinishReason, stop: str | int | None = None) -> Finished:
        text, details = self._transcript.close()
        costs = self._prompt_seconds, self._decode_seconds, self._drafted, self._accepted
        return Finished(self.choice, text, reason, self.generated, self.cached, details, stop, *costs)
