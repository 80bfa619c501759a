"""A cluster of Ray for tests, driven by lines of JSON on standard input.

    python -m tests.cluster.driver PORT

Each line has the settings of a cluster, as `build` takes them. Answers with a line once it serves with them: the first
time, and after each update. `null` stops the application as the end of `serve --ray` does, and is answered, too. The
end of the input is the end of the cluster.
"""

import json
import sys

import ray
from ray import serve

from gateway.cluster.application import build
from gateway.cluster.local import APPLICATION, start_ray, stop_application

CPUS = 8
"""CPUs that Ray believes in, so that replicas fit on a small machine while they are replaced."""


def main() -> None:
    """Run the cluster."""
    start_ray(CPUS)
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
        for line in sys.stdin:
            settings = json.loads(line)
            if settings is None:
                stop_application()
            else:
                serve.run(build(settings), name=APPLICATION, route_prefix="/")
            print("done", flush=True)  # noqa: T201 - the answer
        serve.shutdown()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
