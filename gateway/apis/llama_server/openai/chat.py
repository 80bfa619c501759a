"""Chat completions as llama-server has them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NotRequired

from pydantic import Field
from typing_extensions import TypedDict, override

from engine import GenerationRequest, PromptText
from gateway.apis.fields.nested import refusal
from gateway.apis.fields.sampling import cut_at_the_end
from gateway.apis.llama_server.completion.answer import NativeCompletion
from gateway.apis.llama_server.completion.call import NativeOptions
from gateway.apis.llama_server.completion.completion import completion, native_head
from gateway.apis.llama_server.completion.samplers import SamplersField
from gateway.apis.llama_server.openai.completions import LimitFields
from gateway.apis.llama_server.tokens import PromptReader
from gateway.apis.openai.chat.answer import ChatCompletion
from gateway.apis.openai.chat.call import ChatCall, prepare_chat
from gateway.apis.openai.chat.endpoint import ChatEndpoints
from gateway.apis.openai.chat.request import ChatBody
from gateway.chat.conversation import Conversation
from gateway.middleware.caller import Caller
from gateway.serving.generations import GenerationResult
from gateway.serving.served import Served

_PLAIN = NativeOptions(return_tokens=False, return_progress=False, timings_per_token=False, response_fields=())


Verbose = TypedDict("Verbose", {"__verbose": NotRequired[NativeCompletion]})


class LlamaChatCompletion(ChatCompletion, Verbose):
    """A whole chat completion. `__verbose` is the same answer as that of `/completion`."""


_BETWEEN_PARTS = "\n\n"
"""llama-server's text between the parts of a message that is continued."""


class LlamaChatBody(ChatBody, LimitFields):
    """The body of a chat request to llama-server.

    An answer that does not fit is cut. A last message of the assistant is continued, unless `add_generation_prompt` is
    given.
    """

    samplers: SamplersField = None
    verbose: bool = Field(False, description="Adds `__verbose`: the answer as that of `/completion`.")

    @override
    def conversation(self) -> Conversation:
        """Return the conversation. Raises `RequestError` if its fields contradict each other."""
        conversation = super().conversation()
        *before, last = self.messages
        if last.role != "assistant" or last.tool_calls or last.function_call:
            return conversation
        if before and before[-1].role == "assistant":
            raise refusal("messages", "should not end in several messages of the assistant")
        if self.add_generation_prompt is not None and not self.continue_final_message:
            return conversation
        continued = {
            **conversation.messages[-1],
            "content": _BETWEEN_PARTS.join(part.words for part in last.content or ()),
        }
        return replace(conversation, continue_final=True, messages=(*conversation.messages[:-1], continued))

    @override
    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id and a prompt."""
        given = (self.n_predict, self.max_completion_tokens, self.max_tokens)
        return cut_at_the_end(super().request(), next((limit for limit in given if limit is not None), None))


def prepare_llama_chat(body: LlamaChatBody) -> ChatCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    call = prepare_chat(body)
    report = replace(call.options.report, timings=True, like_llama_server=True)
    return replace(call, options=replace(call.options, report=report, verbose=body.verbose))


class LlamaChatEndpoints(ChatEndpoints):
    """Handlers for chat completions. Verbose answers have `__verbose`."""

    @override
    async def _more(
        self, served: Served, caller: Caller, request: GenerationRequest, answer: GenerationResult
    ) -> Mapping[str, object]:
        texts = [prompt for prompt in request.prompts if isinstance(prompt, str | PromptText)]
        (pieces,) = (await PromptReader(served, caller, "messages").texts(texts, begin=True)).pieces
        text = b"".join(pieces).decode(errors="replace")
        head = native_head(served, served.generations.with_defaults(request), _PLAIN, (text,))
        first = answer.outcomes[0]
        return {"__verbose": completion(head, answer.prompt_tokens[0], first, first.text)}
