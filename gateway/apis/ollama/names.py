"""Names of models in Ollama's API, where each has a tag."""

from gateway.middleware.caller import Caller
from gateway.serving.models import LATEST, Models
from gateway.serving.served import Served, Task


def tagged(name: str) -> str:
    """Return a name with its tag. Ollama's clients add `:latest` to a name without one before they compare it."""
    return name if ":" in name else name + LATEST


async def resolve(
    models: Models, caller: Caller, name: str, task: Task = Task.GENERATE, *, keep_alive: float | None = None
) -> Served:
    """Return the model with a name, for a request. Raises the errors of `Models.resolve`.

    `keep_alive` is the time in seconds for which it stays loaded after the request; None leaves it as it is.
    """
    model = models.find(caller, name, task)  # it may be deleted during the wait, and the request goes on
    served = await models.resolve(caller, name, task)
    if keep_alive is not None:
        model.source.keep(keep_alive)
    return served
