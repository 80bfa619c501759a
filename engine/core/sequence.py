"""One generation's life: the tokens it knows, how many of them are computed, and what each new one means."""

from enum import Enum

from engine.core.text import TextAssembler
from engine.core.token import Token
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
        shares: whether it may take over cells, and others may take over its own.
        seq_id: the slot it holds or held last, -1 before the first.
        state: waiting, running or ended.
        sampling: how its tokens are drawn.
        seed: its own seed; None draws one.
    """

    def __init__(self, request: GenerationRequest, choice: int, prompt: list[int], limit: int) -> None:
        """`limit` is the number of tokens to generate at most; with 0 the prompt is computed and nothing is drawn."""
        self.request_id = request.id
        self.choice = choice
        self.tokens = prompt
        self.prompt = len(prompt)
        self.computed = 0
        self.cached = 0
        self.shares = request.cache_prompt
        self.seq_id = -1
        self.state = State.WAITING
        self.sampling = request.sampling
        seed = request.sampling.seed
        self.seed = None if seed is None else (seed + choice) % _SEED_RANGE
        self._limit = limit
        self._stream = request.stream
        self._text = TextAssembler(request.stop)
        self._unsent: list[str] = []

    @property
    def pending(self) -> int:
        """Tokens known and not computed. 1 means that the next pass draws a token."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn for it at all."""
        return self._limit > 0

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

    def accept(self, token: Token) -> Text | Finished | None:
        """Take the token drawn after all computed ones; gives the choice's news, if any."""
        if not self.generated:
            self.tokens = self.tokens.copy()  # until now the prompt was shared by its choices
        self.tokens.append(token.id)
        if token.ends and not self.sampling.ignore_eos:
            return self._finish(FinishReason.STOP)
        self._unsent.append(self._text.push(token.piece))
        if self._text.stopped:
            return self._finish(FinishReason.STOP)
        if self.generated == self._limit:
            return self._finish(FinishReason.LENGTH)
        if self._stream and (text := self._take_text()):
            return Text(self.choice, text)
        return None

    def complete(self) -> Finished:
        """End a sequence that draws nothing, once all it knows is computed."""
        return self._finish(FinishReason.LENGTH)

    def _finish(self, reason: FinishReason) -> Finished:
        self._unsent.append(self._text.flush())
        return Finished(self.choice, self._take_text(), reason, self.generated, self.cached)

    def _take_text(self) -> str:
        text = "".join(self._unsent)
        self._unsent.clear()
        return text
