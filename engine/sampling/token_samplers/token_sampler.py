"""The interface of the last stage of a draw: from adjusted logits to one token."""

from typing import Protocol

from engine.sampling.candidates import Logits


class TokenSampler(Protocol):
    """Draws the tokens of one sequence. Owns its samplers in llama.cpp and frees them once, in `close`."""

    def sample(self, logits: Logits, best: int) -> int:
        """Return a token.

        Args:
            logits: one for each token of the vocabulary; they may be changed.
            best: the token with the highest logit.

        Raises:
            DrawError: no token can be drawn.
        """

    def accept(self, token: int) -> None:
        """Add a drawn token to the text that penalties look at."""

    def close(self) -> None:
        """Free the samplers. Repeatable."""
