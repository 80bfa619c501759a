"""Endpoint `/apply-template`: render the prompt of a conversation without generating."""

from engine import text_of
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import JsonObject
from gateway.apis.endpoint import NOT_FOUND, AnyEndpoint, Call, Endpoint
from gateway.apis.llama_server.openai.chat import LlamaChatBody, prepare_llama_chat
from gateway.apis.openai.chat.call import ChatCall
from gateway.serving.models import Models


class Prompt(JsonObject):
    """The prompt that the chat template renders for a conversation."""

    prompt: str


class ApplyTemplateEndpoints:
    """Handlers for rendered prompts: those of `/chat/completions`, whose generation fields are checked and not used."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def apply(self, call: Call[ChatCall]) -> JsonReply[Prompt]:
        """Return `{"prompt": …}`."""
        chat = call.prepared
        served = await self._models.resolve(call.caller, chat.model)
        prompt = await served.prompts.prompt(call.caller, chat.conversation, chat.names)
        return JsonReply({"prompt": text_of(prompt.text)})


def apply_template_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/apply-template`."""
    apply = Endpoint(
        method="POST",
        path="/apply-template",
        id="applyTemplate",
        summary="Render the prompt of a conversation without generating.",
        body=LlamaChatBody,
        prepare=prepare_llama_chat,
        handler=ApplyTemplateEndpoints(models).apply,
        answer=Prompt,
        refusals=NOT_FOUND,
    )
    return (apply,)
