"""The example of a cluster's configuration is one that Ray and the gateway accept."""

import pytest
import yaml

from tests.program import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # within Ray


def test_the_configuration_of_the_example_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415 - an extra

    from gateway.cluster.application import build  # noqa: PLC0415 - needs Ray

    monkeypatch.chdir(ROOT)
    config = yaml.safe_load((ROOT / "examples/cluster/serve.yaml").read_text())
    (application,) = ServeDeploySchema.model_validate(config).applications
    assert application.import_path == f"{build.__module__}:{build.__name__}"
    built = build(application.args)
    assert {one.name for one in application.deployments} == {"ingress", "model-tiny"}
    assert built is not None


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        ("host", "127.0.0.1", "host"),
        ("port", "8001", "port"),
        ("tls-certificate", "server.pem", "ssl_certfile"),
        ("tls-key", "server.key", "ssl_keyfile"),
    ],
)
def test_a_setting_that_only_the_proxy_of_ray_has_is_refused(name: str, value: str, option: str) -> None:
    from gateway.cluster.application import build  # noqa: PLC0415 - needs Ray
    from gateway.cluster.split import ClusterSettingsError  # noqa: PLC0415 - beside it

    with pytest.raises(ClusterSettingsError, match=f"^--{name} has no effect here: .*, as {option} in http_options$"):
        build({name: value})
