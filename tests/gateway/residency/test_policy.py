"""The rules of residency, one by one. Every model needs 1 byte unless a test says otherwise."""

import math
from collections.abc import Callable, Iterable

import pytest

from engine import Busy
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.terms import Action, Grant, Load, ModelTerms, Phase, Refuse, ResidencyLimits, Ticket, Unload

LIMITS = ResidencyLimits(waiting=9, batch_requests=3, batch_seconds=10, backoff_first=1, backoff_longest=4)


def residency(room: int, *models: str | ModelTerms) -> Residency:
    """Return a residency of models with room for so many bytes of host memory."""
    terms = (model if isinstance(model, ModelTerms) else ModelTerms(model, Memory(1)) for model in models)
    return Residency(terms, Memory(room), LIMITS)


def load(policy: Residency, *models: str, now: float = 0) -> None:
    """Load models as the operator would, and leave them idle."""
    for model in models:
        policy.want(model)
        assert Load(model) in policy.decide(now)
        policy.loaded(model, policy[model].need, now)
        policy.decide(now)


def use(policy: Residency, model: str, now: float = 0) -> Ticket:
    """Return a request that uses a loaded model."""
    ticket = policy.arrive(model)
    assert policy.decide(now) == [Grant(ticket)]
    return ticket


def end(policy: Residency, *models: str, now: float = 0) -> Iterable[Action]:
    """Report the ends of processes, and return the last decision."""
    for model in models:
        policy.unloaded(model)
    return policy.decide(now)


def test_a_model_is_loaded_once_for_all_that_wait_and_they_are_served_in_order() -> None:
    policy = residency(1, "a")
    first = policy.arrive("a")
    assert policy.decide(0) == [Load("a")]
    second = policy.arrive("a")
    assert policy.decide(1) == []
    policy.loaded("a", Memory(1), 2)
    assert policy.decide(2) == [Grant(first), Grant(second)]


def test_a_loaded_model_serves_at_once() -> None:
    policy = residency(1, "a")
    load(policy, "a")
    use(policy, "a")


def test_models_that_fit_are_loaded_at_the_same_time_in_order() -> None:
    policy = residency(2, "a", "b", "c")
    for model in ("b", "c", "a"):
        policy.arrive(model)
    assert policy.decide(0) == [Load("b"), Load("c")]


def test_the_least_recently_used_idle_model_makes_room() -> None:
    policy = residency(2, "a", "b", "c")
    load(policy, "a", "b")
    policy.leave(use(policy, "a", 1), 2)
    waits = policy.arrive("c")
    assert policy.decide(3) == [Unload("b")]
    assert end(policy, "b", now=4) == [Load("c")]
    policy.loaded("c", Memory(1), 5)
    assert policy.decide(5) == [Grant(waits)]


def test_room_is_free_only_after_the_process_has_ended() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a")
    policy.arrive("b")
    assert policy.decide(1) == [Unload("a")]
    assert policy.decide(2) == []
    assert policy.used == Memory(1)


def test_a_model_in_use_is_never_unloaded() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a")
    ticket = use(policy, "a")
    policy.arrive("b")
    assert policy.decide(1000) == []
    policy.leave(ticket, 1001)
    assert policy.decide(1001) == [Unload("a")]


def test_as_few_models_as_possible_make_room() -> None:
    policy = residency(5, "a", ModelTerms("large", Memory(4)), ModelTerms("next", Memory(4)))
    load(policy, "a", "large")
    policy.arrive("next")
    assert policy.decide(1) == [Unload("large")]


def test_a_model_stays_only_if_the_others_make_room_without_it() -> None:
    models = [ModelTerms("a", Memory(2)), ModelTerms("b", Memory(2)), ModelTerms("c", Memory(3))]
    policy = residency(7, *models, ModelTerms("large", Memory(5)))
    load(policy, "a", "b", "c")
    policy.arrive("large")
    assert policy.decide(1) == [Unload("b"), Unload("c")], "either a or b may stay"


def test_several_models_make_room_for_a_large_one() -> None:
    policy = residency(3, "a", "b", "c", ModelTerms("large", Memory(2)))
    load(policy, "a", "b", "c")
    policy.arrive("large")
    assert policy.decide(1) == [Unload("a"), Unload("b")]
    assert end(policy, "a") == []
    assert end(policy, "b") == [Load("large")]


def test_none_is_unloaded_before_all_that_must_make_room_are_idle() -> None:
    policy = residency(2, "a", "b", ModelTerms("large", Memory(2)))
    load(policy, "a", "b")
    ticket = use(policy, "b", 1)
    policy.arrive("large")
    assert policy.decide(2) == []
    assert policy["a"].phase is Phase.LOADED
    policy.leave(ticket, 3)
    assert set(policy.decide(3)) == {Unload("a"), Unload("b")}


def test_an_idle_model_that_must_make_room_with_a_busy_one_serves_once_more() -> None:
    policy = residency(2, "a", "b", ModelTerms("large", Memory(2)))
    load(policy, "a", "b")
    busy = use(policy, "b", 1)
    policy.arrive("large")
    assert policy.decide(50) == []
    policy.leave(use(policy, "a", 51), 52)
    policy.decide(52)
    policy.arrive("a")
    assert policy.decide(53) == []
    policy.leave(busy, 54)
    assert set(policy.decide(54)) == {Unload("a"), Unload("b")}


def test_gpu_memory_is_a_budget_of_its_own() -> None:
    models = [ModelTerms("gpu", Memory(1, 8)), ModelTerms("cpu", Memory(1, 0)), ModelTerms("other", Memory(1, 4))]
    policy = Residency(models, Memory(9, 10), LIMITS)
    load(policy, "cpu", "gpu")
    policy.arrive("other")
    assert policy.decide(1) == [Unload("gpu")]


def test_a_model_that_can_never_fit_is_refused_and_disturbs_none() -> None:
    policy = residency(2, "a", ModelTerms("huge", Memory(3)))
    load(policy, "a")
    ticket = policy.arrive("huge")
    (refused,) = policy.decide(1)
    assert isinstance(refused, Refuse)
    assert (refused.ticket, refused.retry_after) == (ticket, None)
    assert "there is room for" in refused.reason
    assert policy["a"].phase is Phase.LOADED


def test_a_model_that_fits_only_without_one_that_is_kept_loaded_never_fits() -> None:
    policy = residency(2, ModelTerms("kept", Memory(1), keep_loaded=True), ModelTerms("b", Memory(2)))
    assert policy.decide(0) == [Load("kept")]
    ticket = policy.arrive("b")
    assert [type(action) for action in policy.decide(0)] == [Refuse]
    assert ticket not in policy["b"].waiting


def test_a_kept_model_is_loaded_at_the_start_and_makes_no_room() -> None:
    policy = residency(2, ModelTerms("kept", Memory(1), keep_loaded=True, idle_unload=1), "b", "c")
    assert policy.decide(0) == [Load("kept")]
    policy.loaded("kept", Memory(1), 0)
    load(policy, "b", now=1)
    policy.arrive("c")
    assert policy.decide(1000) == [Unload("b")]


def test_a_load_ends_when_its_last_waiter_leaves() -> None:
    policy = residency(1, "a", "b")
    first, second = policy.arrive("a"), policy.arrive("a")
    assert policy.decide(0) == [Load("a")]
    policy.leave(first, 1)
    assert policy.decide(1) == []
    policy.leave(second, 2)
    assert policy.decide(2) == [Unload("a")]
    late = policy.arrive("a")
    assert policy.decide(3) == []
    assert end(policy, "a") == [Load("a")]
    policy.loaded("a", Memory(1), 4)
    assert policy.decide(4) == [Grant(late)]


def test_a_load_that_the_operator_wants_needs_no_waiter() -> None:
    policy = residency(1, "a")
    policy.want("a")
    assert policy.decide(0) == [Load("a")]
    policy.leave(policy.arrive("a"), 1)
    assert policy.decide(1) == []
    policy.dismiss("a")
    assert policy.decide(2) == [Unload("a")]


def test_one_that_left_before_its_turn_is_not_served() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a")
    ticket = use(policy, "a")
    gone, stays = policy.arrive("b"), policy.arrive("b")
    policy.leave(gone, 1)
    policy.leave(ticket, 1)
    assert policy.decide(1) == [Unload("a")]
    assert end(policy, "a") == [Load("b")]
    policy.loaded("b", Memory(1), 2)
    assert policy.decide(2) == [Grant(stays)]


def test_a_model_that_fails_answers_its_waiters_and_heals_by_backoff() -> None:
    policy = residency(1, "a")
    now = 0.0
    for delay in (1, 2, 4, 4):
        ticket = policy.arrive("a")
        assert policy.decide(now) == [Load("a")]
        policy.failed("a", "It broke.", now)
        assert policy.decide(now) == [Refuse(ticket, "It broke.", delay)]
        at_once = policy.arrive("a")
        assert policy.decide(now + 0.5) == [Refuse(at_once, "It broke.", delay - 0.5)]
        now += delay
    policy.arrive("a")
    assert policy.decide(now) == [Load("a")]
    policy.loaded("a", Memory(1), now)
    assert policy["a"].failure == ""
    assert policy["a"].delay == 0


def test_an_order_to_load_that_fails_is_not_repeated() -> None:
    policy = residency(1, "a")
    policy.want("a")
    policy.decide(0)
    policy.failed("a", "It broke.", 5)
    assert (policy.decide(5), policy.wake_at(), policy.decide(100)) == ([], math.inf, [])


def test_a_kept_model_that_fails_is_tried_again_without_a_request() -> None:
    policy = residency(1, ModelTerms("kept", Memory(1), keep_loaded=True))
    assert policy.decide(0) == [Load("kept")]
    policy.failed("kept", "It broke.", 5)
    assert policy.decide(5) == []
    assert policy.wake_at() == 6
    assert policy.decide(6) == [Load("kept")]


def test_a_kept_model_that_is_lost_is_tried_again_without_a_request() -> None:
    policy = residency(1, ModelTerms("kept", Memory(1), keep_loaded=True))
    load(policy, "kept")
    policy.failed("kept", "It is gone.", 5)
    assert (policy.decide(5), policy.used) == ([], Memory())
    assert policy.decide(6) == [Load("kept")]


def test_a_model_that_is_lost_while_the_operator_unloads_it_is_unloaded() -> None:
    policy = residency(1, ModelTerms("kept", Memory(1), keep_loaded=True))
    load(policy, "kept")
    ticket = use(policy, "kept", 1)
    policy.dismiss("kept")
    policy.failed("kept", "It is gone.", 5)
    policy.leave(ticket, 6)
    assert policy.decide(100) == []
    policy.arrive("kept")
    assert policy.decide(100) == [Load("kept")]
    policy.loaded("kept", Memory(1), 101)
    assert policy["kept"].leaves is None


def test_a_kept_model_whose_load_fails_while_the_operator_unloads_it_stays_unloaded() -> None:
    policy = residency(1, ModelTerms("kept", Memory(1), keep_loaded=True))
    assert policy.decide(0) == [Load("kept")]
    policy.dismiss("kept")
    assert policy.decide(1) == [Unload("kept")]
    policy.failed("kept", "It broke.", 2)
    assert policy.decide(100) == []


def test_idle_models_make_room_for_an_excess_also_if_that_is_not_enough() -> None:
    policy = residency(3, "a", "b", "c")
    waiting = [policy.arrive("a"), policy.arrive("b")]
    policy.want("c")
    policy.decide(0)
    for model, measured in (("a", 3), ("b", 3), ("c", 1)):
        policy.loaded(model, Memory(measured), 1)
    assert policy.decide(1) == [*map(Grant, waiting), Unload("c")]


def test_a_failure_does_not_stop_the_models_behind_it() -> None:
    policy = residency(1, "a", "b")
    policy.arrive("a")
    policy.arrive("b")
    assert policy.decide(0) == [Load("a")]
    policy.failed("a", "It broke.", 1)
    assert policy.decide(1)[-1] == Load("b")


@pytest.mark.parametrize("first", [Residency.want, Residency.arrive])
def test_an_order_to_load_keeps_the_place_of_what_came_before_it(first: Callable[[Residency, str], object]) -> None:
    policy = residency(1, "a", "b", "c")
    load(policy, "a")
    ticket = use(policy, "a", 1)
    first(policy, "b")
    policy.want("c")
    policy.want("b")
    policy.leave(ticket, 2)
    assert policy.decide(2) == [Unload("a")]
    assert end(policy, "a", now=2) == [Load("b")]


def test_the_operator_may_load_a_failed_model_at_once() -> None:
    policy = residency(1, "a")
    policy.arrive("a")
    policy.decide(0)
    policy.failed("a", "It broke.", 0)
    policy.decide(0)
    policy.want("a")
    assert policy.decide(0.1) == [Load("a")]


def test_the_operator_may_load_a_failed_model_that_is_kept_loaded_at_once() -> None:
    policy = residency(1, ModelTerms("kept", Memory(1), keep_loaded=True))
    policy.decide(0)
    policy.failed("kept", "It broke.", 0)
    assert policy.decide(0) == []
    policy.want("kept")
    assert policy.decide(0.1) == [Load("kept")]


def test_an_idle_model_is_unloaded_after_its_time() -> None:
    policy = residency(1, ModelTerms("a", Memory(1), idle_unload=30))
    load(policy, "a", now=100)
    assert (policy.wake_at(), policy.decide(100)) == (130, [])
    ticket = use(policy, "a", 110)
    assert policy.wake_at() == math.inf
    assert policy.decide(1000) == []
    policy.leave(ticket, 1000)
    assert policy.wake_at() == 1030
    assert policy.decide(1029) == []
    assert policy.decide(1030) == [Unload("a")]


def test_the_wish_of_a_request_ends_with_the_next_request() -> None:
    policy = residency(1, ModelTerms("a", Memory(1), idle_unload=30))
    load(policy, "a")
    for seconds in (0.0, 5.0, None):
        ticket = use(policy, "a", 10)
        policy.keep("a", seconds)
        follows = use(policy, "a", 20)
        policy.leave(ticket, 100)
        policy.leave(follows, 100)
        assert policy.wake_at() == 130


def test_a_request_begins_the_time_of_idleness_again() -> None:
    policy = residency(1, ModelTerms("a", Memory(1), idle_unload=30))
    load(policy, "a")
    policy.leave(use(policy, "a", 29), 29)
    assert policy.decide(30) == []
    assert policy.wake_at() == 59


def test_a_request_chooses_how_long_a_model_stays() -> None:
    policy = residency(1, ModelTerms("a", Memory(1), idle_unload=30))
    load(policy, "a")
    ticket = use(policy, "a", 1)
    policy.keep("a", 5)
    policy.leave(ticket, 2)
    assert policy.wake_at() == 7
    policy.keep("a", None)
    assert policy.wake_at() == math.inf
    policy.keep("a", 0)
    assert policy.decide(2) == [Unload("a")]


def test_a_model_that_another_waits_for_serves_its_batch_first() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a")
    running = use(policy, "a", 1)
    policy.arrive("b")
    assert policy.decide(2) == []
    use(policy, "a", 3)
    use(policy, "a", 4)
    late = policy.arrive("a")
    assert policy.decide(5) == []
    policy.leave(running, 6)
    assert policy.decide(6) == []
    assert late in policy["a"].waiting


def test_the_batch_ends_by_time() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a", now=100)
    running = use(policy, "a", 101)
    policy.arrive("b")
    assert policy.decide(101) == []
    policy.leave(use(policy, "a", 109), 109)
    late = policy.arrive("a")
    assert policy.decide(110) == []
    policy.leave(running, 111)
    assert policy.decide(111) == [Unload("a")]
    assert end(policy, "a", now=111) == [Load("b")]
    policy.loaded("b", Memory(1), 112)
    policy.decide(112)
    assert late in policy["a"].waiting


def test_all_that_waited_for_a_load_are_served_even_beyond_the_batch() -> None:
    policy = residency(1, "a", "b")
    waiting = [policy.arrive("a") for _ in range(5)]
    policy.decide(0)
    policy.arrive("b")
    policy.loaded("a", Memory(1), 1)
    assert policy.decide(1) == [Grant(ticket) for ticket in waiting]


def test_a_model_serves_again_when_the_one_that_needed_its_room_no_longer_waits() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a")
    use(policy, "a", 1)
    other = policy.arrive("b")
    policy.decide(20)
    held_back = policy.arrive("a")
    assert policy.decide(21) == []
    policy.leave(other, 22)
    assert policy.decide(22) == [Grant(held_back)]


def test_the_model_that_must_yield_stays_the_same() -> None:
    policy = residency(2, "a", "b", "c")
    load(policy, "a", now=0)
    load(policy, "b", now=1)
    one, two, other = use(policy, "a", 2), use(policy, "a", 2), use(policy, "b", 2)
    policy.arrive("c")
    assert policy.decide(50) == []
    policy.leave(one, 51)
    policy.decide(51)
    assert (policy["a"].yields, policy["b"].yields) == (True, False)
    use(policy, "b", 52)
    policy.leave(two, 53)
    assert policy.decide(53) == [Unload("a")]
    policy.leave(other, 54)
    assert policy.decide(54) == []


def test_a_large_model_that_waits_for_room_is_not_passed_by_small_ones() -> None:
    policy = residency(2, "a", ModelTerms("large", Memory(2)), "small")
    load(policy, "a")
    ticket = use(policy, "a", 1)
    policy.arrive("large")
    policy.arrive("small")
    assert policy.decide(2) == []
    policy.leave(ticket, 3)
    assert policy.decide(3) == [Unload("a")]
    assert end(policy, "a") == [Load("large")]


def test_the_measured_bytes_replace_the_estimate() -> None:
    policy = residency(3, "a", "b", "c")
    load(policy, "a", "b")
    policy.leave(use(policy, "b", 1), 2)
    policy.want("c")
    policy.decide(3)
    policy.loaded("c", Memory(2), 4)
    assert policy.decide(4) == [Unload("a")]
    assert end(policy, "a") == []
    assert policy.used == Memory(3)


def test_no_more_models_are_unloaded_for_an_excess_whose_room_is_being_freed() -> None:
    policy = residency(3, "a", "b", "c")
    load(policy, "a", "b")
    policy.want("c")
    policy.decide(3)
    policy.loaded("c", Memory(2), 4)
    assert policy.decide(4) == [Unload("a")]
    policy.leave(use(policy, "b", 5), 6)
    assert policy.decide(6) == []


def test_models_in_use_stay_though_one_takes_more_than_was_estimated() -> None:
    policy = residency(3, "a", "b", "c")
    load(policy, "a", "b")
    first, _ = use(policy, "a", 1), use(policy, "b", 1)
    ticket = policy.arrive("c")
    policy.decide(3)
    policy.loaded("c", Memory(2), 4)
    assert policy.decide(4) == [Grant(ticket)]
    policy.leave(first, 5)
    assert policy.decide(5) == [Unload("a")]


def test_a_model_that_turns_out_larger_waits_for_its_room() -> None:
    policy = residency(3, "a", "b")
    load(policy, "a")
    ticket = policy.arrive("b")
    assert policy.decide(1) == [Load("b")]
    assert not policy.resize("b", Memory(3))
    assert policy.decide(2) == [Unload("b")]
    assert policy.used == Memory(2)
    assert end(policy, "b") == [Unload("a")]
    assert end(policy, "a") == [Load("b")]
    assert policy.resize("b", Memory(3))
    policy.loaded("b", Memory(3), 3)
    assert policy.decide(3) == [Grant(ticket)]


def test_a_model_that_turns_out_larger_goes_on_if_there_is_room() -> None:
    policy = residency(3, "a", "b")
    load(policy, "a")
    policy.arrive("b")
    policy.decide(1)
    assert policy.resize("b", Memory(2))
    assert (policy.decide(2), policy.used) == ([], Memory(3))


def test_for_a_model_that_turns_out_larger_than_the_budget_no_other_is_unloaded() -> None:
    policy = residency(3, "a", "b")
    load(policy, "a")
    ticket = policy.arrive("b")
    policy.decide(1)
    policy.resize("b", Memory(4))
    assert policy.decide(2) == [Unload("b")]
    (refused,) = end(policy, "b")
    assert isinstance(refused, Refuse)
    assert (refused.ticket, refused.retry_after) == (ticket, None)


def test_a_load_of_a_replaced_file_begins_again_with_the_bytes_of_the_new_one() -> None:
    policy = residency(3, "a", "b")
    load(policy, "b")
    ticket = policy.arrive("a")
    assert policy.decide(1) == [Load("a")]
    policy.replace("a", Memory(3))
    assert policy.decide(2) == [Unload("a")]
    assert end(policy, "a") == [Unload("b")]
    assert end(policy, "b") == [Load("a")]
    policy.loaded("a", Memory(3), 3)
    assert policy.decide(3) == [Grant(ticket)]


def test_a_loaded_file_that_is_replaced_serves_those_that_use_it_and_no_others() -> None:
    policy = residency(2, "a")
    load(policy, "a")
    ticket = use(policy, "a")
    policy.replace("a", Memory(2))
    late = policy.arrive("a")
    assert policy.decide(1) == []
    policy.leave(ticket, 2)
    assert policy.decide(2) == [Unload("a")]
    assert (end(policy, "a"), policy.used) == ([Load("a")], Memory(2))
    policy.loaded("a", Memory(2), 3)
    assert policy.decide(3) == [Grant(late)]


def test_an_order_to_load_a_replaced_file_loads_the_new_one() -> None:
    policy = residency(1, "a")
    load(policy, "a")
    policy.replace("a", Memory(1))
    policy.want("a")
    assert policy.decide(1) == [Unload("a")]
    assert end(policy, "a") == [Load("a")]


def test_a_new_file_is_tried_at_once_after_the_old_one_failed() -> None:
    policy = residency(1, "a")
    policy.arrive("a")
    policy.decide(0)
    policy.failed("a", "It broke.", 0)
    policy.decide(0)
    policy.replace("a", Memory(1))
    policy.arrive("a")
    assert policy.decide(0) == [Load("a")]


def test_a_model_that_was_loaded_fits_the_budget_alone() -> None:
    policy = residency(2, "a")
    policy.want("a")
    policy.decide(0)
    policy.loaded("a", Memory(5), 1)
    assert policy.decide(1) == []
    assert policy["a"].need == Memory(2)


def test_a_model_that_was_loaded_fits_beside_those_that_are_kept() -> None:
    policy = residency(4, ModelTerms("kept", Memory(3), keep_loaded=True), "a")
    load(policy, "kept")
    policy.want("a")
    assert policy.decide(0) == [Load("a")]
    policy.loaded("a", Memory(2), 1)
    assert policy.decide(1) == []
    policy.dismiss("a")
    assert policy.decide(2) == [Unload("a")]
    policy.arrive("a")
    assert end(policy, "a", now=3) == [Load("a")]


def test_a_kept_model_that_never_fits_takes_no_bytes_of_a_loaded_one() -> None:
    policy = residency(4, ModelTerms("kept", Memory(1, gpu=1), keep_loaded=True), "a")
    load(policy, "a")
    assert policy["a"].need == Memory(1)


def test_the_operator_unloads_a_model_once_it_is_idle() -> None:
    policy = residency(1, "a")
    load(policy, "a")
    ticket = use(policy, "a", 1)
    policy.dismiss("a")
    late = policy.arrive("a")
    assert policy.decide(2) == []
    policy.leave(ticket, 3)
    assert policy.decide(3) == [Unload("a")]
    assert end(policy, "a") == [Load("a")]
    policy.loaded("a", Memory(1), 4)
    assert policy.decide(4) == [Grant(late)]


def test_a_model_that_the_operator_unloads_while_it_loads_serves_those_that_wait_and_ends() -> None:
    policy = residency(1, "a")
    first = policy.arrive("a")
    assert policy.decide(0) == [Load("a")]
    policy.dismiss("a")
    second = policy.arrive("a")
    assert policy.decide(1) == []
    policy.loaded("a", Memory(1), 2)
    assert policy.decide(2) == [Grant(first), Grant(second)]
    late = policy.arrive("a")
    policy.leave(first, 3)
    assert policy.decide(3) == []
    policy.leave(second, 4)
    assert policy.decide(4) == [Unload("a")]
    assert end(policy, "a", now=5) == [Load("a")]
    policy.loaded("a", Memory(1), 6)
    assert policy.decide(6) == [Grant(late)]
    policy.leave(late, 7)
    assert policy.decide(7) == [], "the order was for the process before"


def test_an_order_to_unload_serves_none_from_an_old_file() -> None:
    policy = residency(1, "a")
    load(policy, "a")
    ticket = use(policy, "a")
    policy.replace("a", Memory(1))
    policy.arrive("a")
    policy.dismiss("a")
    assert policy.decide(1) == []
    policy.leave(ticket, 2)
    assert policy.decide(2) == [Unload("a")]


@pytest.mark.parametrize("loaded", [False, True])
def test_an_order_to_load_ends_an_order_to_unload_a_model_that_loads(loaded: bool) -> None:
    policy = residency(1, "a")
    ticket = policy.arrive("a")
    policy.decide(0)
    policy.dismiss("a")
    if loaded:
        policy.loaded("a", Memory(1), 1)
        policy.want("a")
    else:
        policy.want("a")
        policy.loaded("a", Memory(1), 1)
    assert policy.decide(1) == [Grant(ticket)]
    policy.leave(ticket, 2)
    assert policy.decide(2) == []


def test_an_order_to_load_ends_an_order_to_unload() -> None:
    policy = residency(1, "a")
    load(policy, "a")
    ticket = use(policy, "a", 1)
    policy.dismiss("a")
    policy.want("a")
    policy.leave(ticket, 3)
    assert policy.decide(3) == []


def test_an_order_to_load_a_loaded_model_does_not_load_it_again() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a")
    policy.want("a")
    policy.arrive("b")
    assert policy.decide(1) == [Unload("a")]
    assert end(policy, "a") == [Load("b")]


def test_the_queue_is_bounded() -> None:
    policy = residency(1, "a", "b")
    for _ in range(LIMITS.waiting):
        policy.arrive("b")
    with pytest.raises(Busy) as caught:
        policy.arrive("a")
    assert caught.value.code == "queue_full"


def test_a_loaded_model_serves_while_requests_for_others_fill_the_queue() -> None:
    policy = residency(1, "a", "b")
    load(policy, "a")
    for _ in range(LIMITS.waiting):
        policy.arrive("b")
    first = policy.arrive("a")
    assert policy.decide(1) == [Grant(first)]
    use(policy, "a", 2)
    use(policy, "a", 3)
    with pytest.raises(Busy):  # its batch is complete
        policy.arrive("a")
