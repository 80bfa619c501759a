"""Metrics as a scraper reads them."""

from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Scrape:
    """The metrics of one scrape."""

    families: tuple[Metric, ...]

    @property
    def names(self) -> set[str]:
        """Names that a query can use: of samples, and of families without any sample yet."""
        samples = {sample.name for family in self.families for sample in family.samples}
        return samples | {f"{family.name}{'_total' * (family.type == 'counter')}" for family in self.families}

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with this name and these labels; 0 without any."""
        return sum(
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def scrape(text: bytes) -> Scrape:
    """Return the metrics of a text."""
    return Scrape(tuple(text_string_to_metric_families(text.decode())))
