"""`POST /apply-template`: the prompt that a conversation becomes, and nothing generated."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import JsonObject
from gateway.apis.endpoint import NO_SUCH_MODEL, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.chat.request import ChatBody
from gateway.serving.models import Models


class Prompt(JsonObject):
    """The prompt that a conversation becomes."""

    prompt: str


class ApplyTemplate:
    """Renders prompts. Takes the body of a chat request; fields that concern generation are checked and unused."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def apply(self, call: Call[ChatBody]) -> JsonReply[Prompt]:
        """Answer `{"prompt": …}`."""
        served = await self._models.resolve(call.body.model)
        prompt = await served.prompts.prompt(call.body.conversation(), call.body.engine_names)
        return JsonReply({"prompt": prompt.text})


def apply_template_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/apply-template`."""
    apply = Endpoint(
        method="POST",
        path="/apply-template",
        id="applyTemplate",
        summary="The prompt that a conversation becomes.",
        handler=ApplyTemplate(models).apply,
        body=ChatBody,
        answer=Prompt,
        refusals=NO_SUCH_MODEL,
    )
    return (apply,)
