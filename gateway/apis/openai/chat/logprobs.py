"""Log-probabilities of a chat completion."""

from collections.abc import Iterable, Iterator

from engine import TokenDetail
from gateway.apis.answers.pieces import HOLE, filled
from gateway.apis.answers.token_logprobs import token_logprobs_in_pieces
from gateway.apis.openai.chat.answer import ChatLogprobs

_LOGPROBS: ChatLogprobs = {"content": HOLE, "refusal": None}


def chat_logprobs(details: Iterable[TokenDetail]) -> Iterator[bytes]:
    """Yield the JSON of the `logprobs` of a choice, or of one chunk of it, in pieces."""
    return filled(_LOGPROBS, token_logprobs_in_pieces(details))
