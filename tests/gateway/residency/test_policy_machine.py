"""Random clients of three models that share room for two: what must hold after each event, and that all are served."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.terms import Grant, Load, ModelTerms, Phase, ResidencyLimits, Ticket, Unload
from tests.repeat import TIMES

MODELS = ("a", "b", "c")
BUDGET = Memory(2)
LIMITS = ResidencyLimits(batch_requests=3, batch_seconds=5)

models = st.sampled_from(MODELS)
picks = st.integers(0, 10**6)


class Machine(RuleBasedStateMachine):
    """Clients that arrive, use a model and leave, orders to unload, and processes that start, fail and end."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Residency((ModelTerms(model, Memory(1)) for model in MODELS), BUDGET, LIMITS)
        self.now = 0.0
        self.processes: dict[str, str] = {}
        """Work of each model's process: it loads, serves or ends."""
        self.waiting: dict[Ticket, None] = {}
        self.using: set[Ticket] = set()
        self.stranded: set[Ticket] = set()
        """Requests whose process failed while they used it, and that have not left."""
        self.served_since_load = dict.fromkeys(MODELS, 0)
        self.replaced: set[str] = set()
        """Models whose processes have an old file."""

    def decide(self) -> None:
        for action in self.policy.decide(self.now):
            match action:
                case Load(model):
                    assert model not in self.processes, "loaded twice"
                    oldest = next(ticket for ticket in self.waiting if ticket.model not in self.processes)
                    assert oldest.model == model, "loaded out of turn"
                    self.processes[model] = "loads"
                case Unload(model):
                    assert all(ticket.model != model for ticket in self.using - self.stranded), "unloaded in use"
                    assert self.processes[model] in {"loads", "serves"}
                    if self.processes[model] == "serves" and model not in self.replaced:
                        assert self.served_since_load[model], "unloaded before it has served any"
                    self.processes[model] = "ends"
                case Grant(ticket):
                    assert self.processes[ticket.model] == "serves"
                    assert ticket.model not in self.replaced, "served by an old file"
                    del self.waiting[ticket]
                    self.using.add(ticket)
                    self.served_since_load[ticket.model] += 1
                case refused:
                    del self.waiting[refused.ticket]

    @rule(model=models)
    def arrive(self, model: str) -> None:
        self.waiting[self.policy.arrive(model)] = None
        self.decide()

    @precondition(lambda self: self.waiting)
    @rule(pick=picks)
    def give_up(self, pick: int) -> None:
        ticket = list(self.waiting)[pick % len(self.waiting)]
        del self.waiting[ticket]
        self.policy.leave(ticket, self.now)
        self.decide()

    @precondition(lambda self: self.using)
    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        ticket = sorted(self.using, key=lambda one: one.turn)[pick % len(self.using)]
        self.using.remove(ticket)
        self.policy.leave(ticket, self.now)
        self.decide()

    @rule(model=models)
    def replace_file(self, model: str) -> None:
        if model in self.processes:
            self.replaced.add(model)
        self.policy.replace(model, Memory(1))
        self.decide()

    @rule(model=models)
    def unload(self, model: str) -> None:
        self.policy.dismiss(model)
        self.decide()

    @rule(seconds=st.floats(0.1, 10))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.decide()

    @rule(model=models, fails=st.sampled_from([False, False, False, True]))
    def process_advances(self, model: str, fails: bool) -> None:
        match self.processes.get(model):
            case "loads" | "serves" if fails:
                self.stranded |= {ticket for ticket in self.using if ticket.model == model}
                del self.processes[model]
                self.replaced.discard(model)
                self.policy.failed(model, "It broke.", self.now)
            case "loads":
                self.processes[model] = "serves"
                self.served_since_load[model] = 0
                self.policy.loaded(model, Memory(1), self.now)
            case "ends":
                del self.processes[model]
                self.replaced.discard(model)
                self.policy.unloaded(model)
        self.decide()

    @invariant()
    def budget_holds(self) -> None:
        assert len(self.processes) <= BUDGET.host
        assert self.policy.used == Memory(len(self.processes))

    @invariant()
    def accounts_agree(self) -> None:
        for model in MODELS:
            resident = self.policy[model]
            assert (resident.phase is not Phase.UNLOADED) == (model in self.processes)
            assert resident.users == sum(ticket.model == model for ticket in self.using)
            assert set(resident.waiting) == {ticket for ticket in self.waiting if ticket.model == model}

    def teardown(self) -> None:
        """Let every process and every request go on: none may be left waiting."""
        for _ in range(100):
            for ticket in list(self.using):
                self.using.remove(ticket)
                self.policy.leave(ticket, self.now)
                self.decide()
            for model in list(self.processes):
                self.process_advances(model, fails=False)
            self.now += 1
            self.decide()
            if not self.waiting and not self.using:
                return
        raise AssertionError(f"these wait for ever: {self.waiting}")


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=20 * TIMES, stateful_step_count=60)
