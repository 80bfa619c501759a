"""Tokens of prompts in the formats of llama-server."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine import TextPrompt, TokenRun
from gateway.apis.llama_server.prompts import MixedPrompt
from gateway.middleware.caller import Caller
from gateway.serving.field_names import naming_text
from gateway.serving.served import Served


@dataclass(slots=True)
class TextTokens:
    """Tokens and bytes of several texts."""

    ids: list[list[int]]
    """Ids of each text."""
    pieces: list[list[bytes]]
    """Bytes of each token of each text."""

    def take(self, tokens: TokenRun) -> None:
        """Add the next tokens."""
        self.ids[tokens.text] += tokens.ids
        self.pieces[tokens.text] += tokens.pieces


class PromptReader:
    """Tokenises with the engine of a model, where clients take turns. Raises the errors of `Engine.tokenize`."""

    def __init__(self, served: Served, caller: Caller, field: str | None = "prompt") -> None:
        """Create a reader. `field` is the client's name of the field with the texts, for errors."""
        self._engine = served.engine
        self._client = caller.client
        self._field = field

    async def prompt(self, prompt: MixedPrompt) -> tuple[list[int], str]:
        """Return the tokens and the text of a prompt. A text at its beginning gets the tokens that begin a prompt."""
        ids: list[int] = []
        pieces: list[bytes] = []
        for at, part in enumerate(prompt):
            if isinstance(part, str):
                texts = await self.texts([part], begin=at == 0)
                ids += texts.ids[0]
                pieces += texts.pieces[0]
            else:
                ids += part
                with naming_text(self._field):
                    pieces.append(await self._engine.detokenize(part, special=True, client=self._client))
        return ids, b"".join(pieces).decode(errors="replace")

    async def texts(self, texts: Sequence[TextPrompt], *, begin: bool) -> TextTokens:
        """Return the tokens of texts. Names of control tokens are parsed where they are not plain."""
        found = TextTokens([[] for _ in texts], [[] for _ in texts])
        with naming_text(self._field):
            await self._engine.tokenize(
                texts, special=True, begin=begin, take=found.take, pieces=True, client=self._client
            )
        return found
