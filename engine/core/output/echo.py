"""A prompt as part of its choices' output: its text, its tokens and their log-probabilities."""

from functools import cached_property

from engine.core.model import Model
from engine.core.token import Score
from engine.errors import RequestError
from engine.events import TokenDetail
from engine.prompt import Infill, Prompt, PromptText, text_of
from engine.request import GenerationRequest


class Echo:
    """One prompt, shared by its choices. Each score is computed once, by whichever choice comes first."""

    text: bytes
    """The prompt's bytes."""

    def __init__(self, tokens: list[int], text: bytes, pieces: list[bytes], *, scored: bool) -> None:
        """Start without scores.

        Args:
            tokens: the prompt.
            text: the prompt's bytes.
            pieces: the bytes of each token; empty if the output has no token details.
            scored: whether log-probabilities are requested.
        """
        self.text = text
        self._tokens = tokens
        self._pieces = pieces
        self._scored = scored
        self._scores: list[Score] = []

    @property
    def unscored(self) -> int:
        """Number of tokens without a score yet, which are the prompt's last ones. Its first token never has a score."""
        return len(self._tokens) - 1 - len(self._scores) if self._scored else 0

    def record(self, start: int, scores: tuple[Score, ...]) -> None:
        """Add the scores of the rows from position `start` on. Known scores stay.

        Raises:
            ValueError: rows before `start` have no scores.
        """
        if start > len(self._scores):
            raise ValueError(f"scores from row {start} on, behind {len(self._scores)} known ones")
        self._scores += scores[len(self._scores) - start :]

    @cached_property
    def details(self) -> list[TokenDetail]:
        """Details of the prompt's tokens, empty if not requested. Read it only after all scores are known."""
        if not self._scored:
            return [TokenDetail(token, piece) for token, piece in zip(self._tokens, self._pieces, strict=False)]
        scores = [(None, ()), *self._scores]
        return [
            TokenDetail(token, piece, *score)
            for token, piece, score in zip(self._tokens, self._pieces, scores, strict=True)
        ]


def make_echo(request: GenerationRequest, prompt: Prompt, tokens: list[int], model: Model) -> Echo | None:
    """Return the echo of a prompt; None if the request does not ask for one.

    Raises:
        RequestError: the prompt is an infill, which has no prompt text to repeat.
    """
    if not request.echo:
        return None
    if isinstance(prompt, Infill):
        raise RequestError("echo cannot be combined with suffix", param="echo", code="unsupported")
    detailed = request.logprobs is not None or request.token_ids
    if isinstance(prompt, str | PromptText):
        text = text_of(prompt).encode()
        pieces = _pieces_in(text, tokens, model) if detailed else []
    else:
        pieces = [model.piece(token, special=request.show_special) for token in tokens]
        text = b"".join(pieces)
    return Echo(tokens, text, pieces if detailed else [], scored=request.logprobs is not None)


def _pieces_in(text: bytes, tokens: list[int], model: Model) -> list[bytes]:
    """Return the part of a text for each of its tokens.

    A tokenizer may add a beginning-of-sequence token and a space before the first word; these are not part of the text.
    If it changed the text otherwise, the pieces are those of the tokens.
    """
    pieces = []
    at = 0
    for token in tokens:
        piece = model.piece(token, special=True)
        pieces.append(next(part for part in (piece, piece.removeprefix(b" "), b"") if text.startswith(part, at)))
        at += len(pieces[-1])
    return pieces if at == len(text) else [model.piece(token, special=True) for token in tokens]
