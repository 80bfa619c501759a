"""Summary of one request at its end."""

from dataclasses import dataclass

from engine.client.mailbox import Mailbox
from engine.events import FinishReason
from engine.request import EmbeddingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSummary:
    """Use of the engine by one request. Times are in seconds by the event loop's clock; unset if it did not get so far.

    If the engine failed or died, the numbers of tokens are those of the choices that had ended.
    """

    finished: bool
    """True if every part of it ended successfully and it was not cancelled before."""
    phase: str
    """Phase at its end: as in `Released`, or `done` after its last part."""
    replayed: bool
    """True if it was sent to another engine after one had died."""
    accepted_at: float | None
    """Time when the engine accepted it."""
    started_at: float | None
    """Time when it left the queue."""
    first_token_at: float | None
    """Time of its first token, of any choice."""
    ended_at: float
    """Time when the engine had released everything that it held."""
    release_seconds: float | None
    """Time from the cancel to the release; unset without a release after a cancel."""
    prompt_tokens: int
    """Number of prompt tokens that were read, computed or cached. Each prompt counts once."""
    cached_tokens: int
    """Number of these with reused KV cells, of each prompt those of its first choice."""
    completion_tokens: int
    """Number of generated tokens of all choices."""
    longest_choice: int
    """Number of generated tokens of the longest choice that ended."""
    wasted_tokens: int
    """Number of tokens that a running step computed after the cancel."""
    drafted_tokens: int
    """Number of computed draft tokens of the choices that ended."""
    accepted_draft_tokens: int
    """Number of accepted draft tokens of these."""
    prefill_seconds: float
    """Duration of the prefill steps of the choices that ended."""
    decode_seconds: float
    """Duration of the decode steps of these."""
    finish_reasons: tuple[FinishReason, ...]
    """Finish reasons of the choices that ended, in the order of the choices."""


def summarize(mailbox: Mailbox, now: float) -> RequestSummary:
    """Return the summary of a request that has ended, or has a cancel without an answer.

    Args:
        mailbox: the request.
        now: the time, which is the end of a request that the engine has not released.
    """
    tally, released = mailbox.tally, mailbox.released
    done = tally.ended == mailbox.request.parts
    prompt, cached = tally.read_tokens(mailbox.prompt_tokens or ()), tally.cached_tokens
    completion, wasted = tally.completion_tokens, 0
    if released is not None and released.phase != "gone":
        prompt, cached = released.prompt_tokens, released.cached
        completion, wasted = released.tokens, released.wasted
    return RequestSummary(
        finished=done and not mailbox.cancelled,
        phase=_phase(mailbox, done=done),
        replayed=mailbox.replayed,
        accepted_at=mailbox.accepted_at,
        started_at=mailbox.started_at,
        first_token_at=tally.first_token_at,
        ended_at=mailbox.ended_at if mailbox.ended else now,
        release_seconds=None if released is None else mailbox.release_seconds,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        longest_choice=tally.longest_choice,
        wasted_tokens=wasted,
        drafted_tokens=tally.drafted,
        accepted_draft_tokens=tally.accepted,
        prefill_seconds=tally.prompt_seconds,
        decode_seconds=tally.decode_seconds,
        finish_reasons=tuple(tally.reasons[choice] for choice in sorted(tally.reasons)),
    )


def _phase(mailbox: Mailbox, *, done: bool) -> str:
    """Return the phase that the engine reported, or that follows from the events if it reported none."""
    if mailbox.released is not None and mailbox.released.phase != "gone":
        return mailbox.released.phase
    if done:
        return "done"
    if mailbox.key is None:
        return "restarting"
    if mailbox.prompt_tokens is None:
        return "intake"
    return _phase_of_accepted(mailbox)


def _phase_of_accepted(mailbox: Mailbox) -> str:
    if isinstance(mailbox.request, EmbeddingRequest):
        return "embedding"
    if mailbox.started_at is None:
        return "queued"
    return "prefill" if mailbox.tally.first_token_at is None else "decode"
