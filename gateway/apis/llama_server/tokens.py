"""Tokens of prompts in the formats of llama-server."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine import RequestError, TokenRun, all_plain
from gateway.apis.llama_server.prompts import MixedPrompt
from gateway.middleware.caller import Caller
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

    def __init__(self, served: Served, caller: Caller, field: str = "prompt") -> None:
        """Create a reader. `field` is the client's name of the field with the prompts, for errors."""
        self._engine = served.engine
        self._client = caller.client
        self._field = field

    async def prompt(self, prompt: MixedPrompt) -> tuple[list[int], str]:
        """Return the tokens and the text of a prompt. A text at its beginning gets the tokens that begin a prompt."""
        try:
            return await self._read(prompt)
        except RequestError as error:  # it names a field of `/tokenize` or `/detokenize`
            raise RequestError(error.message, code=error.code, param=self._field, figures=error.figures) from error

    async def _read(self, prompt: MixedPrompt) -> tuple[list[int], str]:
        ids: list[int] = []
        pieces: list[bytes] = []
        for at, part in enumerate(prompt):
            if isinstance(part, str):
                texts = await self.texts([part], begin=at == 0)
                ids += texts.ids[0]
                pieces += texts.pieces[0]
            else:
                ids += part
                pieces.append(await self._engine.detokenize(part, special=True, client=self._client))
        return ids, b"".join(pieces).decode(errors="replace")

    async def texts(self, texts: Sequence[str], *, begin: bool, plain: bool = False) -> TextTokens:
        """Return the tokens of texts. Names of control tokens are parsed unless they are `plain`."""
        found = TextTokens([[] for _ in texts], [[] for _ in texts])
        asked = [all_plain(text) if plain else text for text in texts]
        await self._engine.tokenize(asked, special=True, begin=begin, take=found.take, pieces=True, client=self._client)
        return found
