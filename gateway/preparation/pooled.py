"""Preparation of requests in worker processes, because large bodies take long and templates are hostile input."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anyio
from typing_extensions import override

from engine import Busy, RequestError
from gateway.apis.endpoint import AnyEndpoint, prepared_type
from gateway.chat.conversation import ChatPrompt
from gateway.chat.template_key import TemplateKey
from gateway.middleware.caller import Caller
from gateway.middleware.patience import Clock
from gateway.preparation.codec import decode, encode
from gateway.preparation.jobs import compile_job, read_job, render_job
from gateway.preparation.preparer import Preparer
from gateway.preparation.stages import Prepared, prepare
from gateway.preparation.unknown_fields import UnknownFields
from gateway.preparation.workers.pool import WorkerPool

INLINE_BODY = 8 * 1024
"""Bytes. A body up to this size is read at once: that takes less than a message to another process."""
MOST_KEYS = 256
"""Keys of templates that are known by identity, of which each load of a model makes one, and known templates."""
FIRST_WAIT, MOST_WAIT = 10.0, 600.0
"""Seconds until a template that took too long to compile may be tried again, at first and at most."""
_CHECKS = "checks of templates"
"""Client of the pool for jobs that serve all clients."""


@dataclass(slots=True)
class _Template:
    """A template as workers get it."""

    encoded: bytes
    """Encoded `TemplateKey`."""
    due: float = -math.inf
    """Time from which a request may let a worker compile it. Infinite once the result is final."""
    wait: float = FIRST_WAIT
    """Seconds until the next try, should one take too long."""
    error: str = ""
    """Why it cannot be used. Empty if it can."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by the task that checks it."""


class PooledPreparer(Preparer):
    """Prepares requests in the workers of a pool, except for small bodies."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        strict: bool = False,
        inline_body: int = INLINE_BODY,
        clock: Clock = anyio.current_time,
    ) -> None:
        """Create a preparer.

        Args:
            pool: runs the jobs; it imports `modules_of` the endpoints.
            strict: refuse unknown fields.
            inline_body: size of the largest body that is read in this process.
            clock: measures the time between the tries of a template.
        """
        self._inline_body = inline_body
        self._pool = pool
        self._clock = clock
        self._unknown_fields = UnknownFields(strict=strict)
        self._templates: dict[TemplateKey, _Template] = {}
        self._by_identity: dict[int, tuple[TemplateKey, _Template]] = {}

    @override
    async def read(self, caller: Caller, endpoint: AnyEndpoint, headers: Mapping[str, str], raw: bytes) -> Any:
        if len(raw) <= self._inline_body:
            prepared = prepare(endpoint.body, endpoint.prepare, raw)
        else:
            prepared = await self._read(caller, endpoint, raw)
        self._unknown_fields.report(caller, endpoint, headers, prepared.unknown)
        return prepared.value

    @override
    async def render(self, caller: Caller, template: TemplateKey, conversation: bytes) -> ChatPrompt:
        checked = await self._checked(template)
        job = render_job(checked.encoded, len(conversation))
        try:
            encoded = await self._pool.run(caller.client, job, conversation)
        except TimeoutError as error:
            message = f"The chat template took longer than {job.limits.seconds:.2g} s for these messages."
            raise RequestError(message, code="chat_template_refused", param="messages") from error
        prompt: ChatPrompt = decode(encoded, ChatPrompt)
        return prompt

    @override
    async def check(self, template: TemplateKey) -> None:
        await self._checked(template)

    async def _read(self, caller: Caller, endpoint: AnyEndpoint, raw: bytes) -> Prepared:
        try:
            encoded = await self._pool.run(caller.client, read_job(endpoint, len(raw)), raw)
        except TimeoutError as error:  # bodies within the bounds take less, unless others slow the processor down
            raise Busy("The body could not be read in time.", code="preparation_timeout") from error
        return Prepared(*decode(encoded, _prepared(endpoint)))

    async def _checked(self, key: TemplateKey) -> _Template:
        """Return a template that can be compiled.

        One that took too long is tried again, since the machine may have been busy, but ever more rarely: a hostile one
        takes all its time again.
        """
        template = self._known(key)
        if template.due <= self._clock():
            async with template.lock:
                if template.due <= self._clock():
                    await self._check(template)
        if template.error:
            raise RequestError(template.error, code="chat_template_invalid", param="messages")
        return template

    async def _check(self, template: _Template) -> None:
        job = compile_job(template.encoded)
        try:
            await self._pool.run(_CHECKS, job, b"")
        except TimeoutError:
            reason = f"it took longer than {job.limits.seconds:g} s to compile"
            template.error = (
                f"The model's chat template cannot be used: {reason}. "
                "Try again later, or give another with --chat-template FILE."
            )
            template.due = self._clock() + template.wait
            template.wait = min(2 * template.wait, MOST_WAIT)
            return
        except RequestError as error:
            template.error = error.message
        else:
            template.error = ""
            self._pool.warm_up(job)
        template.due = math.inf

    def _known(self, key: TemplateKey) -> _Template:
        """Return the template of a key, mostly by identity: the hash of a key takes as long as a short prompt."""
        if (known := self._by_identity.get(id(key))) is None:
            if len(self._by_identity) >= MOST_KEYS:
                self._by_identity.clear()
            known = self._by_identity[id(key)] = (key, self._equal(key))
        return known[1]

    def _equal(self, key: TemplateKey) -> _Template:
        """Return the template of the equal keys before, or a new one. A model that is loaded again is tried again."""
        if (template := self._templates.get(key)) is None or template.error:
            if len(self._templates) >= MOST_KEYS:
                self._templates.clear()
            template = self._templates[key] = _Template(encode(key))
        return template


@cache
def _prepared(endpoint: AnyEndpoint) -> Any:  # noqa: ANN401 (a type may be any object)
    return tuple[prepared_type(endpoint), tuple[str, ...]]  # type: ignore[misc]  # a type that is known when it runs
