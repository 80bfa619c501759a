"""Prompts of requests, read as a replica reads them: by the APIs of a gateway whose engines run elsewhere."""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NoReturn

import anyio
from starlette.types import Message, Scope

from engine import DescribedEngine, EngineError, GenerationRequest, ModelInfo, RunsElsewhereError
from gateway import __version__
from gateway.apis.endpoint import AnyEndpoint
from gateway.apis.llama_server.health import HealthEndpoints
from gateway.apis.llama_server.metrics import MetricsEndpoints
from gateway.apis.openai.stores import Bounds, Stores, stores_in_memory
from gateway.apis.routing import Router
from gateway.app import create_apis
from gateway.limits.limiter import NO_LIMITS
from gateway.limits.memory_limiter import MemoryLimiter
from gateway.metrics.exposition import Exposition
from gateway.middleware.caller import Caller, caller_of, with_caller
from gateway.middleware.errors import RefusedError
from gateway.middleware.streams.resumable import ResumableStreams, StreamLimits
from gateway.preparation.preparer import InlinePreparer, Preparer
from gateway.preparation.workers.pool import LARGE
from gateway.registry import Serving, create_models
from gateway.routing.blocks import Blocks
from gateway.serving.prefixes import blocks_of
from gateway.serving.sources import OpenEngine
from gateway.settings import Settings

logger = logging.getLogger(__name__)

GENERATING = frozenset(
    {
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/responses",
        "/v1/messages",
        "/api/chat",
        "/api/generate",
        "/generate",
    }
)
"""Paths of requests whose prompts are read. Those of `/completion` are token ids, which only an engine can make. One is
also needed to cut a conversation (`truncation`), and to return token ids."""
TIMEOUT = 1.0
"""Seconds after which a request goes on without its prompt having been read. One that waits for a database of stored
conversations may wait for half as long again."""
MOST_LARGE = 2
"""Large bodies that are read at the same time. A worker takes one after another, and one that it cannot finish in time
would only keep it busy."""


class PromptReader:
    """Reads the prompts of requests, also of those that continue a stored response or conversation."""

    def __init__(
        self,
        settings: Settings,
        secret: bytes,
        preparer: Preparer | None = None,
        stores: Stores | None = None,
    ) -> None:
        """Create the APIs. Prompts can be read while `open`.

        Args:
            settings: those of the replicas.
            secret: that of the hashes of prompts.
            preparer: reads bodies and renders conversations; unset to do it in this process.
            stores: stored responses and conversations that the replicas share; unset if they share none.
        """
        self._secret = secret
        preparer = preparer or InlinePreparer()
        self._large = 0
        self._engines = {one.name: DescribedEngine() for one in settings.served}
        sources = {name: OpenEngine(engine) for name, engine in self._engines.items()}
        models = create_models(sources, settings, Serving(preparer, (), MemoryLimiter()))
        streams = ResumableStreams(StreamLimits(timeout=settings.request_timeout, most=1, running=1))
        self._stores = stores or stores_in_memory(Bounds(0, 0, 0))
        health, metrics = HealthEndpoints(models, __version__), MetricsEndpoints(Exposition(()))
        self._background, self.apis = create_apis(models, settings, self._stores, health, metrics, streams, None, None)
        """APIs of the replicas."""
        self._router = Router(self.apis, preparer)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Use the stores inside the context, and let background responses come as far as the engine."""
        async with self._stores.open(), self._background.open():
            yield

    @property
    def endpoints(self) -> Iterable[AnyEndpoint]:
        """All endpoints of the APIs."""
        return (endpoint for api in self.apis for endpoint in api.endpoints)

    def describe(self, model: str, description: ModelInfo) -> None:
        """Take over the description of a model, without which no prompt of it is known."""
        self._engines[model].describe(description)

    async def blocks(self, model: str, scope: Scope, body: bytes) -> Blocks:
        """Return the blocks of the prompt of a request to a model; the longest, if it has several. Never raises.

        They are empty if there is no prompt, or if it cannot be read. The replica then says what is wrong.
        """
        if scope["method"] != "POST" or scope["path"] not in GENERATING or self._engines[model].model is None:
            return ()
        large = len(body) >= LARGE
        if large and self._large >= MOST_LARGE:
            return ()
        self._large += large
        try:
            with anyio.move_on_after(TIMEOUT):
                await self._run(scope, body)
        except RunsElsewhereError as found:
            return self._longest(model, found.request)
        except (EngineError, RefusedError):
            pass
        except Exception:
            logger.exception("the prompt of a request cannot be read")
        finally:
            self._large -= large
        return ()

    def _longest(self, model: str, request: GenerationRequest) -> Blocks:
        blocks = blocks_of(request, model, self._secret) if request.cache_prompt else ()
        return max(blocks, key=len, default=())

    async def _run(self, scope: Scope, body: bytes) -> None:
        """Run a request up to the engine."""
        caller = _as_the_replica_sees(caller_of(scope))
        caller.body.store(body)
        with caller.held:
            await self._router(with_caller(scope, caller), _never_read, _ignore)


def _as_the_replica_sees(asked: Caller) -> Caller:
    """Return a caller with the same rights and the same partition of the cache, whose limits the replica counts."""
    key = None if asked.key is None else replace(asked.key, limits=NO_LIMITS)
    return Caller(
        request_id=asked.request_id,
        credentials=asked.credentials,
        key=key,
        client=asked.client,
        cache_partition=asked.cache_partition,
    )


async def _never_read() -> NoReturn:
    raise RuntimeError("the body is already read")


async def _ignore(_message: Message) -> None:
    """Drop a message of a response that has not reached the engine."""
