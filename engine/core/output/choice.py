"""The output of one choice: what is sent of it, what ends it, and what it has cost."""

from typing import NamedTuple

from engine.core.output.echo import Echo
from engine.core.output.line_limits import line_limits_of
from engine.core.output.reasoning_span import ReasoningSpan
from engine.core.output.transcript import Transcript
from engine.core.token import Token
from engine.events import FinishReason, Text, TokenDetail
from engine.request import GenerationRequest


class End(NamedTuple):
    """The end of a choice."""

    reason: FinishReason
    """Finish reason."""
    stop: str | int | None = None
    """Stop string or stop token that ended the choice, if any."""
    last: TokenDetail | None = None
    """Details of the end token or stop token that ended it, if requested."""


class ChoiceOutput:
    """Follows the drawn tokens of one choice."""

    limit: int
    """Maximum number of generated tokens; 0 draws none."""
    prompt_seconds: float
    """Duration of the steps that computed its prompt."""
    decode_seconds: float
    """Duration of its other steps."""
    drafted: int
    """Number of draft tokens that steps computed."""
    accepted: int
    """Number of these that were accepted."""

    def __init__(
        self, request: GenerationRequest, choice: int, limit: int, echo: Echo | None, *, constrained: bool
    ) -> None:
        """Start without tokens.

        Args:
            request: the request.
            choice: index of the choice in the request.
            limit: the maximum number of generated tokens.
            echo: the prompt as part of the output.
            constrained: whether a grammar decides where the text may end.
        """
        self._request, self._choice, self._echo = request, choice, echo
        self.limit = limit
        self._constrained = constrained
        self._stop_tokens = frozenset(request.stop_tokens)
        self._lines = line_limits_of(request)
        self._transcript = Transcript(request.stop, with_tokens=request.token_ids or request.logprobs is not None)
        self._reasoning = ReasoningSpan(request.reasoning) if request.reasoning else None
        self.prompt_seconds = self.decode_seconds = 0.0
        self.drafted = self.accepted = 0

    @property
    def ends_by_text(self) -> bool:
        """True if its text or the time may end it, not only a token or its limit."""
        return bool(self._request.stop) or self._lines is not None

    @property
    def reasoning_tokens(self) -> int:
        """Number of tokens of reasoning, if the request has its place."""
        return self._reasoning.tokens if self._reasoning else 0

    def accept(self, token: Token, generated: int) -> Text | End | None:
        """Add a drawn token, which is the last of so many. Return what comes of it, if anything does.

        The first `min_tokens` tokens end the choice neither by themselves nor by completing a stop string (as in vLLM),
        unless it is an end token because the grammar allows no other token.
        """
        sampling = self._request.sampling
        may_end = generated > sampling.min_tokens
        if generated == 1:
            self._add_echo()
        if self._reasoning:
            self._reasoning.accept(token.piece)
        if may_end and token.id in self._stop_tokens:
            return End(FinishReason.STOP, token.id, self._transcript.detail(token))
        if token.ends and (self._constrained or (may_end and not sampling.ignore_eos)):
            return End(FinishReason.STOP, last=self._transcript.detail(token))
        text = self._transcript.add(token, may_stop=may_end)
        if self._transcript.stopped is not None:
            return End(FinishReason.STOP, self._transcript.stopped)
        if self._lines and (kept := self._lines.kept(text, self.decode_seconds)) is not None:
            self._transcript.cut(len(text) - kept)
            return End(FinishReason.LENGTH)
        if generated == self.limit:
            return End(FinishReason.LENGTH)
        return self._take_text() if self._request.stream or self._transcript.is_long else None

    def complete(self) -> End:
        """End a choice that draws no tokens, after its prompt is computed."""
        self._add_echo()
        return End(FinishReason.LENGTH)

    def close(self) -> tuple[str, tuple[TokenDetail, ...]]:
        """Return the remaining text and token details, after the end."""
        return self._transcript.close()

    def _add_echo(self) -> None:
        if self._echo:
            self._transcript.open(self._echo.text, self._echo.details)

    def _take_text(self) -> Text | None:
        text, details = self._transcript.take()
        seconds = self.decode_seconds if self._request.progress else 0.0
        return Text(self._choice, text, details, seconds) if text else None
