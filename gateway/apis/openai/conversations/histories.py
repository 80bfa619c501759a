"""The place of a response in a stored conversation."""

from collections.abc import Sequence

from gateway.apis.openai.conversations.store import ConversationStore, NoTurn, Turn
from gateway.apis.openai.responses.call import ResponseCall
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.store import ResponseStore
from gateway.middleware.caller import Caller


class Histories:
    """Finds the items before those of a request: of a previous response, or of a conversation."""

    def __init__(self, responses: ResponseStore, conversations: ConversationStore) -> None:
        self._responses = responses
        self._conversations = conversations

    async def begin(self, caller: Caller, asked: ResponseCall) -> tuple[Turn, Sequence[EncodedItem]]:
        """Return the turn of a new response and the items before it. Raises the errors of the stores.

        The turn is abandoned at the end of the request, unless it has ended before. A response that is not stored only
        reads its conversation.
        """
        if asked.conversation_id is None or not asked.store:
            return NoTurn(), await self.read(caller, asked)
        turn, history = await self._conversations.begin(caller.credentials, asked.conversation_id, caller.unique_id)
        caller.held.callback(turn.abandon)
        return turn, history

    async def read(self, caller: Caller, asked: ResponseCall) -> Sequence[EncodedItem]:
        """Return the items before those of a request. Raises the errors of the stores."""
        if asked.conversation_id is not None:
            return await self._conversations.read(caller.credentials, asked.conversation_id)
        previous = asked.options.previous_id
        return [] if previous is None else await self._responses.history(caller.credentials, previous)
