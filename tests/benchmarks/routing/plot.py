"""Plots of the comparison of policies, by load. Needs the extra `bench`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PANELS = (
    ("computed", "prompt tokens computed, share", False),
    ("p50", "time to first token, p50, s", True),
    ("p99", "time to first token, p99, s", True),
    ("imbalance", "largest load / mean load", True),
)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the plot of the rows of a comparison: one panel for each figure, one line for each policy."""
    import matplotlib as mpl  # noqa: PLC0415 - of an extra

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "routing", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of the backend

    figure, axes = plt.subplots(1, len(PANELS), figsize=(16, 4), layout="constrained")
    for axis, (field, title, logarithmic) in zip(axes, PANELS, strict=True):
        for name in dict.fromkeys(row["name"] for row in rows):
            points = [(row["load"], row[field]) for row in rows if row["name"] == name]
            axis.plot(*zip(*points, strict=True), marker="o", label=name, linewidth=2.5 if name == "prefixes" else 1.2)
        axis.set(title=title, xlabel="offered load", yscale="log" if logarithmic else "linear")
        axis.grid(visible=True, alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=7, frameon=False)
    figure.suptitle(f"{rows[0]['replicas']:.0f} replicas")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
