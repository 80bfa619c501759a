"""OpenAI's completions as llama-server has them."""

from dataclasses import replace

from pydantic import Field
from typing_extensions import override

from engine import GenerationRequest
from gateway.apis.fields.base import Fields
from gateway.apis.fields.sampling import MAX_INT, cut_at_the_end
from gateway.apis.llama_server.completion.samplers import SamplersField
from gateway.apis.openai.completions.call import CompletionCall, prepare_completion
from gateway.apis.openai.completions.request import CompletionBody


class LimitFields(Fields):
    """llama-server's field for the length of an answer."""

    n_predict: int | None = Field(None, ge=-1, le=MAX_INT, description="The same as `max_tokens`. -1: no limit.")


class LlamaCompletionBody(CompletionBody, LimitFields):
    """The body of a request to llama-server's `/v1/completions`. A text that does not fit is cut."""

    max_tokens: int | None = Field(None, ge=-1, le=MAX_INT)  # type: ignore[assignment]
    samplers: SamplersField = None

    @override
    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id. Raises `RequestError`."""
        return cut_at_the_end(super().request(), self.max_tokens if self.n_predict is None else self.n_predict)


def prepare_llama_completion(body: LlamaCompletionBody) -> CompletionCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    call = prepare_completion(body)
    report = replace(call.options.report, timings=True, like_llama_server=True)
    return replace(call, options=replace(call.options, report=report))
