"""Request bodies of a load: random prompts of common words, after an optional common prefix."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Endpoint: TypeAlias = Literal["completions", "chat"]

ROUTES: dict[Endpoint, str] = {"completions": "completions", "chat": "chat/completions"}

# With the space before it, each word is one token in most vocabularies.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city name team minute idea body back parent face others level"
)
WORDS = _TEXT.split()


@dataclass(frozen=True)
class Workload:
    """Shape of all requests of a load."""

    endpoint: Endpoint
    """Endpoint of the requests."""
    prompt_tokens: int
    """Approximate tokens of a prompt, without the common prefix."""
    shared_prefix: int
    """Approximate tokens of the common prefix."""
    max_tokens: int
    """Maximum tokens of an answer."""
    stream: bool
    """True to stream the answers."""
    ignore_eos: bool
    """True to generate `max_tokens` in every answer."""
    seed: int
    """Seed of the random prompts."""

    @property
    def route(self) -> str:
        """Route of the endpoint, relative to the API's path."""
        return ROUTES[self.endpoint]

    def bodies(self, model: str) -> Iterator[dict[str, Any]]:
        """Yield request bodies without end. The same seed yields the same bodies."""
        rng = random.Random(self.seed)  # noqa: S311 - not for cryptography
        prefix = rng.choices(WORDS, k=self.shared_prefix)
        while True:
            prompt = " ".join([*prefix, *rng.choices(WORDS, k=self.prompt_tokens)])
            yield {"model": model, **self._prompt(prompt), **self._options()}

    def _prompt(self, prompt: str) -> dict[str, Any]:
        if self.endpoint == "completions":
            return {"prompt": prompt}
        return {"messages": [{"role": "user", "content": prompt}]}

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"max_tokens": self.max_tokens, "temperature": 0, "stream": self.stream}
        if self.stream:
            options["stream_options"] = {"include_usage": True}
        if self.ignore_eos:
            options["ignore_eos"] = True
        return options
