"""Conversion of conversations to prompts, for the routes that take conversations."""

from collections.abc import Mapping
from types import MappingProxyType

import anyio.to_thread

from engine import Engine, ModelInfo, RequestError, Unavailable
from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class ChatPrompts:
    """Makes prompts with the template of the served model, or with the operator's template."""

    def __init__(self, engine: Engine, template: str | None, *, parse_special: bool = False) -> None:
        """Take an engine and an optional template.

        Args:
            engine: its model has the default template.
            template: replaces the model's template; None keeps it.
            parse_special: the default of `Conversation.parse_special`.
        """
        self._engine = engine
        self._template = template
        self._parse_special = parse_special
        self._known: tuple[ModelInfo, ChatModel] | None = None

    async def prompt(self, conversation: Conversation, names: Mapping[str, str] = _NO_NAMES) -> ChatPrompt:
        """Return the prompt of a conversation.

        Waits for the template, which runs in a thread: a template that never ends does not delay other requests.

        Args:
            conversation: the input of the template.
            names: map the conversation's field names to those of the route, for errors that name a field.

        Raises:
            RequestError: the template refuses the messages, or the model has no template.
            Unavailable: no model is loaded yet.
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
            known = self._known = (model, ChatModel(model, self._template, parse_special=self._parse_special))
        return known[1].prompt(conversation)
