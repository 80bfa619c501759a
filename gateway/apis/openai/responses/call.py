"""A response request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

import orjson

from engine import GenerationRequest
from gateway.apis.openai.responses.references import EncodedInput, encode_input
from gateway.apis.openai.responses.request import ENCRYPTED_REASONING, ResponseBody
from gateway.chat.rendering import encode_conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """Options for the shape of the answer."""

    echo: bytes
    """Fields that every answer repeats, as a JSON object: a `RequestEcho`."""
    background: bool
    """True if the response runs in the background."""
    logprobs: bool
    """True to add the log-probabilities."""
    encodes_reasoning: bool
    """True to add the reasoning as `encrypted_content`."""
    namespaces: dict[str, str]
    """Namespaces of the tools that are in one, by the tools' names for the model."""
    previous_id: str | None
    """Id of the previous response in the conversation."""
    timings_per_token: bool
    """True to add timings to each event of a stream."""
    return_progress: bool
    """True to send the progress of the prompt in a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseCall:
    """A response request. Its items are encoded and go to the template and to the store as they are."""

    model: str | None
    """Name of the model."""
    inputs: EncodedInput
    """Items of the input, and references to stored ones."""
    conversation: bytes
    """Encoded conversation before all items."""
    request: GenerationRequest
    """The engine's request, without an id and a prompt."""
    options: ResponseOptions
    """Options for the shape of the answer."""
    conversation_id: str | None
    """Id of the stored conversation that the response continues."""
    store: bool
    """True to store the response."""
    truncates: bool
    """True to drop the first items of an input that does not fit."""
    names: dict[str, str]
    """The client's names of fields that the engine may refuse, by the engine's names."""


def prepare_response(body: ResponseBody) -> ResponseCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    return ResponseCall(
        model=body.model,
        inputs=encode_input(body.input),
        conversation=encode_conversation(body.conversation()),
        request=body.request(),
        options=_options(body),
        conversation_id=body.conversation_id,
        store=body.store,
        truncates=body.truncation == "auto",
        names=body.engine_names,
    )


def _options(body: ResponseBody) -> ResponseOptions:
    return ResponseOptions(
        echo=orjson.dumps(body.echo()),
        background=body.background,
        logprobs=body.logprobs,
        encodes_reasoning=ENCRYPTED_REASONING in body.include,
        namespaces=body.namespaces(),
        previous_id=body.previous_response_id,
        timings_per_token=body.timings_per_token,
        return_progress=body.return_progress,
    )
