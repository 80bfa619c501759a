"""Metric families: names, types, labels and help texts."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from engine import Histogram
from gateway.metrics.exemplars import ExemplarHistogram

MODEL = ("model_name", "engine")
"""Labels of everything that belongs to one model, as in vLLM."""
ENGINE = "0"
"""Value of the label `engine`: each model has one engine. vLLM numbers the engines of a model."""


_Bucket: TypeAlias = tuple[str, float] | tuple[str, float, Exemplar]


class Family:
    """A metric with labels. Its values are read by a scrape through `collect`."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = MODEL) -> None:
        self.name = name
        """Name without the suffix of its type."""
        self.about = about
        """Help text."""
        self.labels = tuple(labels)
        """Names of the labels."""

    def counter(self, values: Mapping[tuple[str, ...], float]) -> CounterMetricFamily:
        """Return a counter with a value for each tuple of label values."""
        family = CounterMetricFamily(self.name, self.about, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family

    def gauge(self, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
        """Return a gauge with a value for each tuple of label values."""
        family = GaugeMetricFamily(self.name, self.about, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family

    def histogram(self, values: Mapping[tuple[str, ...], Histogram]) -> HistogramMetricFamily:
        """Return a histogram for each tuple of label values."""
        family = HistogramMetricFamily(self.name, self.about, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, _cumulative(value), value.sum)
        return family


def _cumulative(histogram: Histogram) -> list[_Bucket]:
    """Return each bound with the number of values up to it, and an exemplar of its own values if there is one."""
    buckets: list[_Bucket] = []
    exemplars = histogram.exemplars if isinstance(histogram, ExemplarHistogram) else [None] * len(histogram.counts)
    total = 0
    for bound, count, exemplar in zip((*histogram.bounds, float("inf")), histogram.counts, exemplars, strict=True):
        total += count
        le: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
        buckets.append((le, total) if exemplar is None else (le, total, exemplar))
    return buckets
