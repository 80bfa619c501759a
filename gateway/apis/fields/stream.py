"""The fields by which OpenAI's clients ask for a stream. Shared by completions and chat."""

from pydantic import ValidationInfo, field_validator

from gateway.apis.fields.base import Fields


class StreamOptions(Fields):
    """What a stream carries besides text. `include_obfuscation` pads encrypted streams, which this server has not."""

    include_usage: bool = False
    include_obfuscation: bool = False


class StreamFields(Fields):
    """Whether the answer is a stream, and of what."""

    stream: bool = False
    stream_options: StreamOptions | None = None

    @field_validator("stream_options")
    @classmethod
    def _streamed(cls, options: StreamOptions, info: ValidationInfo) -> StreamOptions:
        if not info.data.get("stream"):
            raise ValueError("is allowed only where stream is true")
        return options

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage
