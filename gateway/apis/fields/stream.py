"""Options of streams."""

from pydantic import Field

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
