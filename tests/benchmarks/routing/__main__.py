"""Simulations of routing, each run on its own, and the tables of their results.

python -m tests.benchmarks.routing compare [--replicas 100] [--loads 0.5,0.9,1.2] [--json FILE]
python -m tests.benchmarks.routing bounds|lateness|sizes [--json FILE]
python -m tests.benchmarks.routing plot FILE PLOT.svg
python -m tests.benchmarks.routing cost
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from pathlib import Path

from gateway.routing.router import LINGER, LoadBound
from tests.benchmarks.routing.cost import measure
from tests.benchmarks.routing.plot import plot
from tests.benchmarks.routing.policies import POLICIES, Make, prefixes
from tests.benchmarks.routing.replica import Machine
from tests.benchmarks.routing.simulation import Scenario, simulate
from tests.benchmarks.routing.workload import Workload

COLUMNS = ("name", "load", "computed", "p50", "p99", "mean", "imbalance", "refused", "answered")
OWN = "prefixes"
BOUNDS = ((0.25, 1.1), (1, 1.1), (1, 1.5), (0.25, 2), (0.5, 2), (1, 2), (2, 2), (1, 3), (1, 1000))
"""`free` and `ratio`, from too tight to too loose."""
REPORTS = ((0.5, 0.0), (0.5, 0.5), (0.5, 10.0), (10.0, 10.0))
"""Period and delay of reports in seconds."""


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation."""

    name: str
    """Its name in the tables."""
    scenario: Scenario
    """The cluster."""
    policy: str = OWN
    """The policy by its name."""
    bound: LoadBound = field(default_factory=LoadBound)
    """Load bound of the policy `prefixes`."""
    linger: float = LINGER
    """Linger time of the policy `prefixes`."""

    def row(self) -> dict[str, float | str]:
        """Run it, and return its figures."""
        make: Make = prefixes(self.bound, self.linger) if self.policy == OWN else POLICIES[self.policy]
        scenario = self.scenario
        return {
            "name": self.name,
            "replicas": scenario.replicas,
            "load": scenario.load,
            **simulate(scenario, make).row(),
        }


def comparison(base: Scenario, loads: list[float]) -> Iterator[Run]:
    """Yield every policy at every load."""
    for load in loads:
        for name in POLICIES:
            yield Run(name, replace(base, load=load), name)


def bounds(base: Scenario, loads: list[float]) -> Iterator[Run]:
    """Yield load bounds from too tight to too loose."""
    for load in loads:
        for free, ratio in BOUNDS:
            bound = LoadBound(free=free, ratio=ratio)
            yield Run(f"free {free}, ratio {ratio}", replace(base, load=load), bound=bound)


def lateness(base: Scenario, loads: list[float]) -> Iterator[Run]:
    """Yield periods and delays of reports, for people who pause between turns, and for agents, which do not."""
    for load in loads:
        for pause in (20.0, 1.0):
            own = replace(base, load=load, workload=Workload(pause=pause))
            for routers in (1, 4):
                for period, delay in REPORTS:
                    name = f"pause {pause} s, {routers} routers, reports every {period} s and {delay} s late"
                    yield Run(name, replace(own, routers=routers, period=period, delay=delay))
            never = replace(own, period=1e6)
            yield Run(f"pause {pause} s, no reports", never)
            yield Run(f"pause {pause} s, no reports, linger 600 s", never, linger=600)
            yield Run(f"pause {pause} s, no linger, reports 0.5 s late", replace(own, delay=0.5), linger=0)
            yield Run(f"pause {pause} s, no linger, reports 10 s late", replace(own, delay=10.0), linger=0)


def sizes(base: Scenario, loads: list[float]) -> Iterator[Run]:
    """Yield the policies with less memory for prefixes, where evictions matter."""
    for load in loads:
        for store in (0, 8192, 32768, 131072):
            for name in ("bounded hashing", "Ray's, threshold 10", OWN):
                scenario = replace(base, load=load, machine=Machine(store=store))
                yield Run(f"{name}, {store} tokens", scenario, name)


EXPERIMENTS = {"compare": comparison, "bounds": bounds, "lateness": lateness, "sizes": sizes}


def table(rows: list[dict[str, float | str]]) -> str:
    """Return rows as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        values = (row[name] for name in COLUMNS)
        cells = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in values)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the experiment that the command line names."""
    if sys.argv[1:2] == ["plot"]:
        plot(json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3]))
        return
    if sys.argv[1:] == ["cost"]:
        for replicas in (10, 100, 1000):
            print(replicas, measure(replicas))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--loads", type=lambda text: [float(load) for load in text.split(",")], default=[0.5, 0.9, 1.2])
    parser.add_argument("--warm-up", type=float, default=300)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    base = Scenario(replicas=given.replicas, warm_up=given.warm_up, seconds=given.seconds, seed=given.seed)
    rows = []
    with Pool(given.processes) as pool:
        for row in pool.imap(Run.row, EXPERIMENTS[given.experiment](base, given.loads)):
            rows.append(row)
            print(row, flush=True)
            if given.json:
                given.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
