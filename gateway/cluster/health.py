"""Failures of the parts of a cluster, which Ray replaces, or gives up."""


class UnhealthyError(Exception):
    """A replica cannot serve requests any more. Ray replaces it."""


class DeploymentFailedError(Exception):
    """The replicas of a deployment cannot start. The text is one line for the operator."""


def reason_in(report: str) -> str:
    """Return the reason of a failure by Ray's report, which ends with a traceback: the text of the last exception."""
    lines = (line.strip(" |") for line in reversed(report.splitlines()))
    last = next((line for line in lines if line.strip("+-")), report)
    kind, _, text = last.partition(": ")
    return text if text and kind.replace(".", "").isidentifier() else last
