"""Stream options of OpenAI's completions and chat."""

from pydantic import Field, ValidationInfo, field_validator

from gateway.apis.fields.base import Fields


class StreamOptions(Fields):
    """Options of a stream. `include_obfuscation` has no effect: it pads encrypted streams, and this server has none."""

    include_usage: bool = False
    include_obfuscation: bool = False


class ChunkOptions(StreamOptions):
    """Options of a stream of chunks. `continuous_usage_stats` is vLLM's."""

    continuous_usage_stats: bool = Field(
        False, description="Each chunk has the usage until now of its choice, with its prompt."
    )


class StreamFields(Fields):
    """Fields that request a stream, and its options."""

    stream: bool = False
    stream_options: ChunkOptions | None = None

    @field_validator("stream_options")
    @classmethod
    def _streamed(cls, options: ChunkOptions, info: ValidationInfo) -> ChunkOptions:
        if not info.data.get("stream"):
            raise ValueError("is allowed only where stream is true")
        return options

    @property
    def include_usage(self) -> bool:
        """True if a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        """True if each chunk of a stream has the usage until now."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats
