"""The runner of a model that only computes embeddings."""

from engine.core.sequence import Sequence
from engine.core.step import Copy, Forget, Removal, Restore, Save, StepPlan, StepResult, Swap


class NoRunner:
    """Has no slot, so no plan ever reaches it: the intake refuses to generate. See `engine.core.step.Runner`."""

    def remove(self, removal: Removal) -> None:
        """Raises `RuntimeError`."""
        raise RuntimeError(f"no cells to remove: {removal}")

    def copy(self, copy: Copy) -> None:
        """Raises `RuntimeError`."""
        raise RuntimeError(f"no cells to copy: {copy}")

    def swap(self, swap: Swap) -> None:
        """Raises `RuntimeError`."""
        raise RuntimeError(f"no cells to exchange: {swap}")

    def save(self, save: Save) -> bool:
        """Raises `RuntimeError`."""
        raise RuntimeError(f"no cells to save: {save}")

    def restore(self, restore: Restore) -> None:
        """Raises `RuntimeError`."""
        raise RuntimeError(f"no cells to restore: {restore}")

    def forget(self, forget: Forget) -> None:
        """Raises `RuntimeError`."""
        raise RuntimeError(f"no saved cells to forget: {forget}")

    def run(self, plan: StepPlan) -> StepResult:
        """Raises `RuntimeError`."""
        raise RuntimeError(f"no model that could run {plan}")

    def abort(self) -> None:
        """There is no pass to end."""

    def arm(self) -> None:
        """There is no pass to make."""

    def close(self, sequence: Sequence) -> None:
        """Nothing is held for a sequence."""
