"""Tokens of the prompts and of the biased texts of a `/completion` request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine import GenerationRequest, TokenRun, all_plain
from gateway.apis.llama_server.completion.call import NativeCompletionCall
from gateway.apis.llama_server.completion.prompts import MixedPrompt
from gateway.middleware.caller import Caller
from gateway.serving.served import Served


@dataclass(slots=True)
class _Texts:
    """Tokens and bytes of several texts."""

    ids: list[list[int]]
    pieces: list[list[bytes]]

    def take(self, tokens: TokenRun) -> None:
        """Add the next tokens."""
        self.ids[tokens.text] += tokens.ids
        self.pieces[tokens.text] += tokens.pieces


async def tokenised(
    served: Served, caller: Caller, call: NativeCompletionCall
) -> tuple[GenerationRequest, tuple[str, ...]]:
    """Return the engine's request with the tokens of its prompts and biases, and the text of each prompt.

    Waits for the engine, where clients take turns. Raises the errors of `Engine.tokenize`.
    """
    read = _Reader(served, caller)
    prompts = [await read.prompt(prompt) for prompt in call.prompts]
    biases = call.request.sampling.logit_bias
    if call.biased_texts:
        texts = await read.texts([text for text, _ in call.biased_texts], begin=False, plain=True)
        pairs = zip(texts.ids, call.biased_texts, strict=True)
        biases += tuple((token, bias) for ids, (_, bias) in pairs for token in ids)
    request = replace(
        call.request,
        id=caller.request_id,
        prompts=tuple(tuple(ids) for ids, _ in prompts),
        sampling=replace(call.request.sampling, logit_bias=biases),
    )
    return request, tuple(text for _, text in prompts)


class _Reader:
    """Tokenises with the engine of a model."""

    def __init__(self, served: Served, caller: Caller) -> None:
        self._engine = served.engine
        self._client = caller.client

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
                pieces.append(await self._engine.detokenize(part, special=True, client=self._client))
        return ids, b"".join(pieces).decode(errors="replace")

    async def texts(self, texts: Sequence[str], *, begin: bool, plain: bool = False) -> _Texts:
        """Return the tokens of texts. Names of control tokens are parsed unless they are `plain`."""
        found = _Texts([[] for _ in texts], [[] for _ in texts])
        asked = [all_plain(text) if plain else text for text in texts]
        await self._engine.tokenize(asked, special=True, begin=begin, take=found.take, pieces=True, client=self._client)
        return found
