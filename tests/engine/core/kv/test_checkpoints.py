"""Conversations with models that cannot trim, counted in prompt tokens computed. The fake runner checks each cell."""

import random
from dataclasses import dataclass, field

import pytest

from engine.core.budget import SMALLEST
from engine.core.kv.prefix_store import MOST_CHECKPOINTS
from engine.core.step import StepPlan
from engine.prompt import PromptText
from engine.testing.fake_model import FakeModel
from tests.engine.driver import Driver, bytes_of, partial_bytes_of

ROOM = 10**6
REASONING = 30
"""Characters at the beginning of an answer that the next prompt leaves out."""
ANSWER = 70
"""Tokens."""
CHANCE = 3
"""Letters that two random texts may have in common at their beginning. Cells that can be cut are reused for them."""

KINDS = {
    "windows in full": {"windowed": True},
    "windows only": {"windowed": True, "can_trim": False},
    "hybrid": {"can_trim": False},
    "recurrent": {"can_trim": False, "rewinds": False},
}


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> dict[str, bool]:
    return dict(request.param)


def driven(kind: dict[str, bool], *, slots: int = 2, store: int = ROOM) -> Driver:
    traits = {"can_trim": True, "windowed": False, "rewinds": True, **kind}
    rewinds = traits.pop("rewinds")
    return Driver(FakeModel(slots=slots, context=4096, **traits), store_budget=store, rewinds=rewinds)


def words(seed: int, length: int = 100) -> str:
    return "".join(random.Random(seed).choices("abcdefgh", k=length))


@dataclass
class Chat:
    """A conversation, and its prompt as a chat template writes it."""

    system: str = words(0, 200)
    messages: list[str] = field(default_factory=list)
    """Messages of the user and of the model, in turns."""

    def prompt(self) -> PromptText:
        text = self.system
        first = last = end = len(text)
        for message in self.messages:
            text, last = text + message, end
            end = len(text)
        return PromptText(f"{text}>", (), (first, last, end))


def ask(driver: Driver, chat: Chat) -> tuple[str, int]:
    """Return the answer, and the number of prompt tokens computed for it."""
    before = driver.scheduler.metrics().computed_prompt_tokens
    key = driver.serve(chat.prompt(), max_tokens=ANSWER)
    return driver.text(key), driver.scheduler.metrics().computed_prompt_tokens - before


def crowd_out(driver: Driver) -> None:
    """Overwrite every slot."""
    for slot in driver.ledger.slots:
        driver.add(words(1000 + slot.seq_id, 300)[::-1], max_tokens=1)
    driver.drain()


@pytest.mark.parametrize("reasoning", [0, REASONING])
@pytest.mark.parametrize("crowded", [False, True])
def test_each_turn_computes_only_what_is_new(kind: dict[str, bool], reasoning: int, crowded: bool) -> None:
    driver = driven(kind)
    chat = Chat()
    for turn in range(4):
        chat.messages.append(words(turn + 1))
        answer, computed = ask(driver, chat)
        new = ANSWER - reasoning + 100 if turn else 300
        assert new - ANSWER < computed <= new + 1
        chat.messages.append(answer[reasoning:])
        if crowded:
            crowd_out(driver)


def test_an_edit_of_the_last_message_computes_only_that_message(kind: dict[str, bool]) -> None:
    driver = driven(kind)
    chat = Chat(messages=[words(1)])
    chat.messages += [ask(driver, chat)[0], words(2)]
    ask(driver, chat)
    for edit in range(3, 6):
        chat.messages[-1] = words(edit, 80)
        assert 80 - CHANCE <= ask(driver, chat)[1] <= 80 + 1


def test_the_same_prompt_again_computes_its_last_message_at_most(kind: dict[str, bool]) -> None:
    driver = driven(kind)
    chat = Chat(messages=[words(1)])
    first, _ = ask(driver, chat)
    again, computed = ask(driver, chat)
    assert again == first
    assert computed == 1


@pytest.mark.parametrize("at_once", [False, True])
def test_clients_compute_their_common_system_prompt_once(kind: dict[str, bool], at_once: bool) -> None:
    driver = driven(kind, slots=4)
    for client in range(4):
        driver.add(Chat(messages=[words(1 + client)]).prompt(), max_tokens=ANSWER)
        if not at_once:
            driver.drain()
    driver.drain()
    most = 200 + 4 * (100 + 1)
    assert most - 4 * CHANCE <= driver.scheduler.metrics().computed_prompt_tokens <= most


def test_clients_of_two_partitions_share_no_checkpoint(kind: dict[str, bool]) -> None:
    driver = driven(kind)
    for partition in "ab":
        driver.serve(Chat(messages=[words(1)]).prompt(), max_tokens=1, cache_partition=partition)
    assert driver.scheduler.metrics().computed_prompt_tokens == 2 * 301
    driver.serve(Chat(messages=[words(1)]).prompt(), max_tokens=1, cache_prompt=False)
    assert driver.scheduler.metrics().computed_prompt_tokens == 3 * 301


def test_a_chunk_ends_at_each_checkpoint(kind: dict[str, bool]) -> None:
    driver = driven(kind)
    chat = Chat(messages=[words(1)])
    ask(driver, chat)
    ends = [end for plan in driver.plans if not plan.decode for end in _ends(plan)]
    assert ends == [SMALLEST, 200, 300], "the last token is computed in a decode step"
    assert sorted(one.size for one in driver.store) == [200, 300]


def _ends(plan: StepPlan) -> list[int]:
    return [chunk.start + chunk.count for chunk in plan.chunks]


def test_a_checkpoint_outlives_a_cancelled_prompt_where_it_needs_no_cells() -> None:
    driver = driven(KINDS["recurrent"])
    key = driver.add(Chat(messages=[words(1, 500)]).prompt())
    while not list(driver.store):
        driver.step()
    driver.cancel(key)
    driver.drain()
    assert driver.scheduler.metrics().cached_tokens == 0
    assert ask(driver, Chat(messages=[words(2)]))[1] == 101


def test_a_conversation_keeps_a_bounded_number_of_checkpoints(kind: dict[str, bool]) -> None:
    driver = driven(kind, slots=1)
    chat = Chat()
    for turn in range(MOST_CHECKPOINTS):
        chat.messages.append(words(turn + 1))
        chat.messages.append(ask(driver, chat)[0][REASONING:])
    prompt = chat.prompt().text
    kept = [one for one in driver.store if prompt.startswith(bytes(one.prefix.tokens).decode())]
    assert len(kept) == MOST_CHECKPOINTS
    assert max(one.size for one in kept) == len(prompt) - 1 - len(chat.messages[-1]), "the last ones are kept"


@pytest.mark.parametrize("store", [0, partial_bytes_of(0) - 1])
def test_without_room_for_checkpoints_only_whole_prefixes_are_reused(store: int) -> None:
    driver = driven(KINDS["hybrid"], store=store)
    chat = Chat(messages=[words(1)])
    answer, _ = ask(driver, chat)
    chat.messages += [answer, words(2)]
    assert ask(driver, chat)[1] == len(chat.prompt().text)
    assert not list(driver.store)


def test_checkpoints_count_in_the_budget_and_the_oldest_goes_first() -> None:
    driver = driven(KINDS["hybrid"], store=3 * partial_bytes_of(0))
    for client in range(4):
        ask(driver, Chat(words(client, 200), [words(10 + client)]))
    assert [one.prefix.tokens[0] for one in driver.store] == [ord(words(client)[0]) for client in (2, 3, 3)]
    assert driver.store.bytes == 3 * partial_bytes_of(0)


def test_a_checkpoint_without_memory_to_save_it_is_done_without(kind: dict[str, bool]) -> None:
    driver = driven(kind)
    driver.run.cache.room = 0
    chat = Chat(messages=[words(1)])
    chat.messages += [ask(driver, chat)[0], words(2)]
    ask(driver, chat)
    chat.messages[-1] = words(3)
    ask(driver, chat)
    assert not list(driver.store)


def test_a_slot_is_not_rolled_back_to_a_checkpoint_that_its_own_save_evicted() -> None:
    driver = driven(KINDS["hybrid"], slots=1, store=bytes_of(440))
    chat = Chat(messages=[words(1)])
    ask(driver, chat)
    driver.serve(PromptText(chat.prompt().text + words(5), (), chat.prompt().turns), max_tokens=1)
    chat.messages[-1] = words(2)
    answer, _ = ask(driver, chat)
    alone = driven(KINDS["hybrid"])
    assert ask(alone, chat)[0] == answer
