"""Conversion of conversations to prompts, for the routes that take conversations."""

import logging
from collections.abc import Mapping
from contextlib import suppress

from engine import Engine, EngineError, ModelInfo, RequestError
from gateway.chat.conversation import ChatPrompt
from gateway.chat.template_key import NO_DEFAULTS, TemplateDefaults, TemplateKey, template_key
from gateway.middleware.caller import Caller
from gateway.preparation.preparer import Preparer
from gateway.serving.field_names import naming
from gateway.serving.loaded import loaded_model

logger = logging.getLogger(__name__)


class ChatPrompts:
    """Makes prompts with the template of the served model, or with the operator's template."""

    def __init__(
        self,
        engine: Engine,
        template: str | None,
        preparer: Preparer,
        *,
        fallback: str | None = None,
        defaults: TemplateDefaults = NO_DEFAULTS,
        needed: bool = True,
    ) -> None:
        """Take an engine and optional templates.

        Args:
            engine: its model has the default template.
            template: replaces the model's template; None keeps it.
            preparer: renders the prompts.
            fallback: the template of a model without one.
            defaults: what requests may replace.
            needed: whether requests may be conversations. A model for embeddings alone needs no template.
        """
        self._engine = engine
        self._template = template
        self._fallback = fallback
        self._preparer = preparer
        self._defaults = defaults
        self._needed = needed
        self._known: tuple[ModelInfo, TemplateKey] | None = None

    async def prompt(self, caller: Caller, conversation: bytes, names: Mapping[str, str] | None = None) -> ChatPrompt:
        """Return the prompt of an encoded conversation.

        Args:
            caller: the sender of the request.
            conversation: the input of the template, from `encode_conversation`.
            names: map the conversation's field names to those of the route, for errors that name a field.

        Raises:
            RequestError: the template refuses the messages, or the model has no template.
            Unavailable: no model is loaded yet.
        """
        model = loaded_model(self._engine)
        with naming(names or {}):
            return await self._preparer.render(caller, self._key(model), conversation)

    async def check(self, name: str) -> None:
        """Wait for the model and compile its template. One line of the log says why that failed.

        Args:
            name: the model's name for the log.
        """
        with suppress(EngineError):
            model = await self._engine.ready()
            if not self.source(model):
                self.warn_without_template(name)
                return
            try:
                await self._preparer.check(self._key(model))
            except RequestError as error:
                logger.error("conversations are refused: %s", error.message)  # noqa: TRY400

    def warn_without_template(self, name: str) -> None:
        """Write a line to the log if chats with the loaded model are refused because it has no template."""
        model = self._engine.model
        if self._needed and model is not None and model.generates and not self.source(model):
            logger.warning("the model %s has no chat template, so that chats are refused: --chat-template FILE", name)

    def source(self, model: ModelInfo) -> str:
        """Return the source of the template that makes the prompts; empty without one."""
        return self._override(model) or model.chat_template or ""

    def _override(self, model: ModelInfo) -> str | None:
        return self._template or (None if model.chat_template else self._fallback)

    def _key(self, model: ModelInfo) -> TemplateKey:
        if self._known is None or self._known[0] is not model:
            self._known = model, template_key(model, self._override(model), self._defaults)
        return self._known[1]
