"""`POST /apply-template`: the prompt that a conversation becomes, and nothing generated."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Call
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.others import Prompt
from gateway.serving.models import Models


class ApplyTemplate:
    """Renders prompts. Takes the body of a chat request; fields that concern generation are checked and unused."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def apply(self, call: Call[ChatBody]) -> JsonReply[Prompt]:
        """Answer `{"prompt": …}`."""
        served = await self._models.resolve(call.body.model)
        prompt = await served.prompts.prompt(call.body.conversation(), call.body.engine_names)
        return JsonReply({"prompt": prompt.text})
