"""`POST /apply-template`, llama-server's route: the prompt that a conversation becomes, and nothing generated."""

from starlette.requests import Request
from starlette.responses import Response

from engine import Engine
from gateway.apis.answers.input_tokens import input_tokens
from gateway.apis.answers.reply import json_reply
from gateway.apis.answers.shapes import Answer
from gateway.apis.fields.read import BodyReader
from gateway.apis.openai.chat.request import ChatBody
from gateway.serving.models import Models
from gateway.serving.prompts import ChatPrompts


class Prompt(Answer):
    """The prompt that a conversation becomes."""

    prompt: str


class ApplyTemplate:
    """Takes the body of a chat request; what concerns generation is checked and then means nothing."""

    def __init__(self, engine: Engine, bodies: BodyReader, models: Models, prompts: ChatPrompts) -> None:
        self._engine = engine
        self._bodies = bodies
        self._models = models
        self._prompts = prompts

    async def apply(self, http: Request) -> Response:
        """`{"prompt": …}`."""
        answer: Prompt = {"prompt": await self._prompt(http)}
        return json_reply(answer)

    async def count(self, http: Request) -> Response:
        """`POST /v1/chat/completions/input_tokens`: the tokens of that prompt, as `usage.prompt_tokens` counts them."""
        prompt = await self._prompt(http)
        (tokens,) = await self._engine.tokenize([prompt], special=True, begin=True)
        return json_reply(input_tokens(len(tokens)))

    async def _prompt(self, http: Request) -> str:
        body = await self._bodies.read(http, ChatBody)
        self._models.check(body.model)
        return (await self._prompts.prompt(body.conversation(), body.engine_names)).text
