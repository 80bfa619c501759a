"""How routes that take conversations get their prompts."""

from collections.abc import Mapping
from types import MappingProxyType

import anyio.to_thread

from engine import Engine, ModelInfo, RequestError, Unavailable
from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class ChatPrompts:
    """Makes prompts with the template of the model that is served, or with the operator's own."""

    def __init__(self, engine: Engine, template: str | None) -> None:
        """Args: `template`, to be used instead of the model's own."""
        self._engine = engine
        self._template = template
        self._known: tuple[ModelInfo, ChatModel] | None = None

    async def prompt(self, conversation: Conversation, names: Mapping[str, str] = _NO_NAMES) -> ChatPrompt:
        """The prompt. Waits for the template, in a thread of its own: one that never ends holds up nobody else.

        Args:
            conversation: what the template is given.
            names: what clients of a route call the fields of a conversation that may be refused.

        Raises `RequestError` where the template refuses the messages or there is none, and `Unavailable` before the
        model is loaded.
        """
        model = self._engine.model
        if model is None:
            raise Unavailable(self._engine.status.detail, code="engine_unavailable")
        try:
            return await anyio.to_thread.run_sync(self._prompt, model, conversation, abandon_on_cancel=True)
        except RequestError as error:
            param = names.get(error.param or "", error.param)
            raise RequestError(error.message, code=error.code, param=param) from error

    def _prompt(self, model: ModelInfo, conversation: Conversation) -> ChatPrompt:
        known = self._known
        if known is None or known[0] is not model:
            known = self._known = (model, ChatModel(model, self._template))
        return known[1].prompt(conversation)
