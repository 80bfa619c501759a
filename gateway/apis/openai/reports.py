"""What answers of OpenAI's completions and chat have besides texts: token ids, times, progress and usage."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from pydantic import ValidationInfo, field_validator

from engine import Finished, GenerationRequest
from gateway.apis.answers.shapes import PromptProgress
from gateway.apis.answers.timings import RunningTimings, timings
from gateway.apis.fields.sampling import ReportFields, StreamReportFields
from gateway.apis.fields.stream import ChunkOptions
from gateway.apis.openai.usage import usage, usage_until_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an answer has besides its texts."""

    token_ids: bool = False
    """True to add the token ids."""
    timings: bool = False
    """True to add the timings."""
    include_usage: bool = False
    """True to end a stream with its usage."""
    continuous_usage: bool = False
    """True to add the usage until now of its choice to each chunk."""
    timings_per_token: bool = False
    """True to add timings to each chunk."""
    return_progress: bool = False
    """True to send the progress of the prompts in a stream."""
    like_llama_server: bool = False
    """True for llama-server's details, such as a fingerprint that begins with `b`, and no `usage` that is null."""

    def fingerprint(self, of_model: str) -> str:
        """Return the `system_fingerprint` for that of the model and the program."""
        return f"b-{of_model}" if self.like_llama_server else of_model


class ReportingFields(ReportFields, StreamReportFields):
    """Fields that request a stream, and what answers have besides their texts."""

    stream: bool = False
    stream_options: ChunkOptions | None = None

    @field_validator("stream_options")
    @classmethod
    def _streamed(cls, options: ChunkOptions, info: ValidationInfo) -> ChunkOptions:
        if not info.data.get("stream"):
            raise ValueError("is allowed only where stream is true")
        return options

    def report(self) -> Report:
        """Return what the answer has besides its texts."""
        options = self.stream_options
        return Report(
            token_ids=self.return_token_ids,
            timings=self.timings,
            include_usage=options is not None and options.include_usage,
            continuous_usage=options is not None and options.continuous_usage_stats,
            timings_per_token=self.timings_per_token,
            return_progress=self.return_progress,
        )

    def reporting(self, request: GenerationRequest) -> GenerationRequest:
        """Return the engine's request with what the report needs of the engine."""
        report = self.report()
        return request.replaced(
            stream=self.stream,
            token_ids=report.token_ids or report.timings_per_token or report.continuous_usage,
            progress=self.stream and (report.return_progress or report.timings_per_token),
        )


class ChunkFrame:
    """Beginnings and ends of the chunks of a stream. Fields that are the same in every chunk are encoded only once."""

    def __init__(self, head: Mapping[str, object], report: Report) -> None:
        """Begin a stream. `head` has the fields that are the same in every chunk."""
        self.head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":'
        """Beginning of each chunk. The array of its choices follows."""
        self._report = report
        # llama-server has `usage` in the last chunk only, and some of its clients drop other chunks that have it
        has_null = report.include_usage and not report.like_llama_server
        self._plain_end = b',"usage":null}\n\n' if has_null else b"}\n\n"

    def extras(self, running: RunningTimings, decode_seconds: float, progress: PromptProgress | None = None) -> bytes:
        """Return the progress of a choice's prompt, and its times until now if they are requested."""
        extras = b"" if progress is None else b',"prompt_progress":' + orjson.dumps(progress)
        if self._report.timings_per_token:
            extras += b',"timings":' + orjson.dumps(running.timings(decode_seconds))
        return extras

    def end(self, prompt_tokens: int, running: RunningTimings) -> bytes:
        """Return the end of a chunk, with the usage of its choice until now if it is requested."""
        if not self._report.continuous_usage:
            return self._plain_end
        return b',"usage":' + orjson.dumps(usage_until_now(prompt_tokens, running.predicted)) + b"}\n\n"

    def last(self, end: bytes, prompt_tokens: Sequence[int], outcomes: Sequence[Finished]) -> Iterable[bytes]:
        """Return the rest of the last choice's chunk, which has this end, and a chunk of the usage if requested."""
        timed = b',"timings":' + orjson.dumps(timings(prompt_tokens, outcomes)) if self._report.timings else b""
        if not self._report.include_usage:
            return timed, end
        return end, self.head, b'[],"usage":', orjson.dumps(usage(prompt_tokens, outcomes)), timed, b"}\n\n"
