"""The choice of the next lane while decode rows, prompts and texts to embed all wait."""

from engine.core.turns import Demand, Turn, Turns
from tests.engine.driver import Driver

EMBEDDINGS = Demand(urgent=False, bulk=True)


def beside_an_embedder() -> Driver:
    driver = Driver()
    driver.turns = Turns(2)
    return driver


def turns(driver: Driver, count: int) -> str:
    """Return the next passes: D decodes, P computes prompts, E is left to the embedder."""
    return "".join(turn(driver) for _ in range(count))


def turn(driver: Driver) -> str:
    turn, of_embedder = driver.turns.next([driver.scheduler.demand(), EMBEDDINGS])
    work = driver.scheduler.plan(turn, contended=True)
    if work.plan is None:
        assert of_embedder is Turn.BULK
        return "E"
    assert of_embedder is None
    driver.scheduler.apply(work.plan, driver.run.run(work.plan))
    return "D" if work.plan.decode else "P"


def test_an_embedder_without_other_demand_has_every_turn() -> None:
    assert turns(beside_an_embedder(), 3) == "EEE"


def test_one_embedding_pass_follows_each_decode_pass() -> None:
    driver = beside_an_embedder()
    driver.add("hello", max_tokens=50)
    while "D" not in turn(driver):
        pass
    assert turns(driver, 6) == "EDEDED"


def test_prompts_and_the_embedder_take_turns() -> None:
    driver = beside_an_embedder()
    driver.add("x" * 500, max_tokens=2)
    assert turns(driver, 6) in {"EPEPEP", "PEPEPE"}


def test_prompts_and_the_embedder_take_turns_after_each_decode_pass() -> None:
    driver = beside_an_embedder()
    driver.add("hello", max_tokens=50)
    while "D" not in turn(driver):
        pass
    driver.add("x" * 500, max_tokens=2)
    assert turns(driver, 8) in {"EDPDEDPD", "PDEDPDED"}


def test_only_lanes_with_demand_take_turns() -> None:
    shared = Turns(4)
    bulk, nothing = Demand(urgent=False, bulk=True), Demand(urgent=False, bulk=False)
    served = [shared.next([bulk, nothing, bulk, bulk]) for _ in range(6)]
    assert [turns.index(Turn.BULK) for turns in served] == [0, 2, 3, 0, 2, 3]
    assert all(turns.count(None) == 3 for turns in served)


def test_urgent_lanes_take_turns_too_with_a_bulk_pass_between_any_two() -> None:
    shared = Turns(3)
    urgent, bulk = Demand(urgent=True, bulk=False), Demand(urgent=False, bulk=True)
    served = [shared.next([urgent, urgent, bulk]) for _ in range(8)]
    passes = [next((lane, turn) for lane, turn in enumerate(turns) if turn) for turns in served]
    urgent_passes, bulk_passes = passes[::2], passes[1::2]
    assert urgent_passes == [(0, Turn.URGENT), (1, Turn.URGENT)] * 2
    assert bulk_passes == [(2, Turn.BULK)] * 4


def test_a_lane_that_had_no_demand_is_served_before_those_that_had() -> None:
    shared = Turns(2)
    bulk, nothing = Demand(urgent=False, bulk=True), Demand(urgent=False, bulk=False)
    for _ in range(3):
        assert shared.next([bulk, nothing]) == [Turn.BULK, None]
    assert shared.next([bulk, bulk]) == [None, Turn.BULK]


def test_no_demand_means_no_turn() -> None:
    assert Turns(2).next([Demand(urgent=False, bulk=False)] * 2) == [None, None]
