"""Endpoints of Anthropic's messages: `/v1/messages`, and the token count of its prompt."""

from collections.abc import Mapping, Sequence

from engine import FinishReason
from gateway.apis.answers.deltas import read_deltas
from gateway.apis.answers.input_tokens import count_tokens
from gateway.apis.answers.reply import JsonReply
from gateway.apis.anthropic.errors import OVERLOADED
from gateway.apis.anthropic.messages.answer import ContentBlock, Message, StreamEvent, TokenCount
from gateway.apis.anthropic.messages.call import MessageCall, PromptCall, prepare_count, prepare_message
from gateway.apis.anthropic.messages.content import content_of
from gateway.apis.anthropic.messages.message import message, stop_of, usage
from gateway.apis.anthropic.messages.request import CountBody, MessagesBody
from gateway.apis.anthropic.messages.stream import EVENTS, MessageEvents
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.fields.nested import refusal
from gateway.middleware.streams.sse import EventStream
from gateway.serving.models import Models
from gateway.serving.records import Operation

BETA = "anthropic-beta"
"""Header of clients that use new fields. This server ignores those that it does not know."""


class MessagesEndpoints:
    """Handlers for messages."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[MessageCall]) -> JsonReply[Message] | EventStream:
        """Return the whole message, or a stream of its events."""
        asked, caller, options = call.prepared.prompt, call.caller, call.prepared.options
        names = asked.names
        served = await self._models.resolve(caller, asked.model)
        prompt = await served.prompts.prompt(caller, asked.conversation, names)
        request = prompt.generation(call.prepared.request)
        del call, asked  # the conversation, which may be large, is not needed while the engine works
        if request.stream:
            encode = MessageEvents(served.name, options, prompt).encode
            source = served.generations.stream(caller, request, encode, names, operation=Operation.CHAT)
            return EventStream(source, end=b"", framing=EVENTS)
        answer = await served.generations.run(caller, request, names, operation=Operation.CHAT)
        (end,) = answer.outcomes
        parser = prompt.parsing.parser()
        content = content_of(
            await read_deltas(parser, end.text),
            parser.cut_calls,
            limited=end.reason is FinishReason.LENGTH,
            omits_thinking=options.omits_thinking,
        )
        stop = stop_of(end, options, called=any(map(_is_call, content)) and not parser.cut_calls)
        return JsonReply(message(served.name, content, stop, usage(answer.prompt_tokens, end)))

    async def count(self, call: Call[PromptCall]) -> JsonReply[TokenCount]:
        """Return the number of tokens in the prompt: those of `usage` without the output."""
        asked, caller = call.prepared, call.caller
        served = await self._models.resolve(caller, asked.model)
        prompt = await served.prompts.prompt(caller, asked.conversation, asked.names)
        count = await count_tokens(served.engine, prompt.text, caller.client, "messages", caller.release_body)
        return JsonReply({"input_tokens": count})


def check_unknown(headers: Mapping[str, str], names: Sequence[str]) -> None:
    """Refuse unknown fields, as Anthropic does, unless the client names a beta that may bring them."""
    if BETA not in headers:
        raise refusal(names[0], "Extra inputs are not permitted")


def _is_call(block: ContentBlock) -> bool:
    return block["type"] == "tool_use"


def messages_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of messages."""
    endpoints = MessagesEndpoints(models)
    create = Endpoint(
        method="POST",
        path="/v1/messages",
        id="createMessage",
        summary="Continue a conversation, in Anthropic's shape.",
        body=MessagesBody,
        prepare=prepare_message,
        handler=endpoints.create,
        answer=Message,
        check_unknown=check_unknown,
        events=StreamEvent,
        streams=lambda call: call.request.stream,
        ends_with_done=False,
        refusals=QUEUED | {OVERLOADED},
    )
    count = Endpoint(
        method="POST",
        path="/v1/messages/count_tokens",
        id="countMessageTokens",
        summary="Count the tokens of a conversation without generating, in Anthropic's shape.",
        body=CountBody,
        prepare=prepare_count,
        handler=endpoints.count,
        answer=TokenCount,
        check_unknown=check_unknown,
        refusals=QUEUED | {OVERLOADED},
    )
    return create, count
