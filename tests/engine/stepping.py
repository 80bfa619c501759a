"""Steps of a scheduler and its runner, without a loop and its thread."""

from engine.core.changes import carry_out
from engine.core.lane import News
from engine.core.scheduler import Scheduler
from engine.core.step import Runner
from engine.core.turns import Turns


def step(scheduler: Scheduler, turns: Turns, runner: Runner) -> News:
    """Run the next step, and return its news."""
    [turn] = turns.next([scheduler.demand()])
    work = scheduler.plan(turn, contended=False)
    scheduler.drop_unsaved(carry_out(work.changes, runner))
    if not work.plan:
        return work.news
    runner.arm()
    return [*work.news, *scheduler.apply(work.plan, runner.run(work.plan))]
