"""Interface of the preparation of requests, and its implementation inside the gateway's process."""

from collections.abc import Mapping
from typing import Any, Protocol

import anyio.to_thread
from typing_extensions import override

from gateway.apis.endpoint import AnyEndpoint
from gateway.chat.conversation import ChatPrompt
from gateway.chat.rendering import compiled, render
from gateway.chat.template_key import TemplateKey
from gateway.middleware.caller import Caller
from gateway.preparation.stages import prepare
from gateway.preparation.unknown_fields import UnknownFields


class Preparer(Protocol):
    """Does the work on requests that depends only on their bytes. Its results are as small as their types."""

    async def read(self, caller: Caller, endpoint: AnyEndpoint, headers: Mapping[str, str], raw: bytes) -> Any:  # noqa: ANN401
        """Return what `endpoint.prepare` makes of a body. Unknown fields are reported to the caller.

        Raises:
            RequestError: the body is invalid, or its unknown fields are refused.
        """

    async def render(self, caller: Caller, template: TemplateKey, conversation: bytes) -> ChatPrompt:
        """Return the prompt of a conversation that `encode_conversation` has encoded.

        Raises:
            RequestError: the template cannot be compiled, or refuses the conversation.
        """

    async def check(self, template: TemplateKey) -> None:
        """Compile a template, so that the first conversation need not wait for it.

        Raises:
            RequestError: the template cannot be compiled.
        """


class InlinePreparer(Preparer):
    """Prepares requests in this process: bodies at once, and prompts in a thread.

    A template that never ends does not delay other requests, but cannot be ended.
    """

    def __init__(self, *, strict: bool = False) -> None:
        """Create a preparer.

        Args:
            strict: refuse unknown fields.
        """
        self._unknown_fields = UnknownFields(strict=strict)

    @override
    async def read(self, caller: Caller, endpoint: AnyEndpoint, headers: Mapping[str, str], raw: bytes) -> Any:
        prepared = prepare(endpoint.body, endpoint.prepare, raw)
        self._unknown_fields.report(caller, endpoint, headers, prepared.unknown)
        return prepared.value

    @override
    async def render(self, caller: Caller, template: TemplateKey, conversation: bytes) -> ChatPrompt:
        return await anyio.to_thread.run_sync(render, template, conversation, abandon_on_cancel=True)

    @override
    async def check(self, template: TemplateKey) -> None:
        await anyio.to_thread.run_sync(compiled, template, abandon_on_cancel=True)
