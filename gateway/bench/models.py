"""Choice of the model if the command line has no name."""

import orjson

from gateway.bench.answers import WholeAnswer, error_message
from gateway.bench.client import Client
from gateway.bench.connection import open_receiver
from gateway.bench.exchange import Exchange
from gateway.bench.target import Target

_HINTS = {
    "status 401": "send its key by --api-key, or by the variable OPENAI_API_KEY",
    "status 404": "name one with --model, or the API by a URL with its version, such as /v1",
}
_NAME_ONE = "name one with --model"


class NoModel(Exception):
    """The server does not list exactly one model. The text gives a remedy and the reason."""


class Unreachable(Exception):
    """There is no connection to the server. The text gives the reason."""


async def only_model(target: Target, answer_timeout: float) -> str:
    """Return the name of the server's only model, as listed by `/models`.

    Args:
        target: the server under test.
        answer_timeout: maximum time of the answer, in seconds.

    Raises:
        Unreachable: the connection failed.
        NoModel: the request failed otherwise, or the server lists no model or several.
    """
    exchange = Exchange(streamed=False)
    async with open_receiver() as receiver:
        with Client(target, receiver, answer_timeout) as client:
            await client.send(target.get("models"), exchange)
    if exchange.problem:
        if exchange.problem.kind == "connection":
            raise Unreachable(exchange.problem.words)
        hint = _HINTS.get(exchange.problem.kind, _NAME_ONE)
        raise NoModel(f"{hint}: {exchange.problem.kind}: {exchange.problem.words}")
    body = exchange.answer.body if isinstance(exchange.answer, WholeAnswer) else b""
    names = _names(body)
    if len(names) != 1:
        found = f"it has {len(names)}: {', '.join(names)}" if names else f"not a list of models: {error_message(body)}"
        raise NoModel(f"{_NAME_ONE}: {found}")
    return names[0]


def _names(body: bytes) -> list[str]:
    try:
        listed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    match listed:
        case {"data": list(models)}:
            return [model["id"] for model in models if isinstance(model, dict) and isinstance(model.get("id"), str)]
    return []
