"""The command line of the benchmark."""

from pathlib import Path

import pytest

from gateway.bench import arguments
from gateway.bench.arguments import TERMINAL, Arguments, read_arguments
from gateway.bench.requests import Workload


def read(*given: str, **environment: str) -> Arguments:
    return read_arguments(given, environment)


def test_the_default_grid_is_that_of_the_old_benchmark() -> None:
    given = read("--seed", "1")
    assert (given.url, given.target.tls, given.target.key) == ("http://127.0.0.1:8000/v1", None, None)
    assert (given.clients, given.requests, given.timeout) == ((1, 8, 16, 24, 32), 72, 600.0)
    assert given.workload == Workload("completions", 16, 0, 50, stream=True, ignore_eos=False, seed=1)
    assert (given.model, given.json, given.plot) == (None, None, None)


def test_every_argument_is_read(tmp_path: Path) -> None:
    text = (
        f"--url https://example.org:8443/api/v1/ --endpoint chat --model m --api-key k --timeout 1.5 --clients 4,2 "
        f"--requests 3 --max-tokens 5 --prompt-tokens 6 --shared-prefix 7 --no-stream --ignore-eos --seed 8 "
        f"--json {tmp_path}/x.json --plot {tmp_path}/x.png"
    )
    given = read(*text.split(), OPENAI_API_KEY="other")
    target = given.target
    assert (target.host, target.port, target.authority, target.path) == (
        "example.org",
        8443,
        "example.org:8443",
        "/api/v1",
    )
    assert target.tls
    assert target.key == "k"
    assert given.workload == Workload("chat", 6, 7, 5, stream=False, ignore_eos=True, seed=8)
    assert (given.clients, given.requests, given.timeout, given.model) == ((4, 2), 3, 1.5, "m")
    assert (given.json, given.plot) == (tmp_path / "x.json", tmp_path / "x.png")


def test_flags_may_have_underscores() -> None:
    assert read("--max_tokens", "5", "--shared_prefix=7", "--seed", "1") == read(
        "--max-tokens", "5", "--shared-prefix=7", "--seed", "1"
    )


def test_the_key_may_be_a_variable() -> None:
    assert read(OPENAI_API_KEY="k").target.key == "k"
    assert read(OPENAI_API_KEY="").target.key is None


def test_runs_without_a_seed_send_different_prompts() -> None:
    assert len({read().workload.seed for _ in range(9)}) > 1


def test_a_plot_without_a_file_is_for_the_terminal() -> None:
    assert read("--plot").plot == TERMINAL


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://example.org", "example.org", 80, "/v1"),
        ("http://example.org/", "example.org", 80, ""),
        ("https://example.org/v1", "example.org", 443, "/v1"),
        ("http://[::1]:8000/v1", "::1", 8000, "/v1"),
    ],
)
def test_the_base_url_gives_host_port_and_path(url: str, host: str, port: int, path: str) -> None:
    target = read("--url", url).target
    assert (target.host, target.port, target.path) == (host, port, path)
    assert target.get("models").startswith(f"GET {path}/models HTTP/1.1\r\nhost: {url.split('/')[2]}\r\n".encode())


@pytest.mark.parametrize(
    "given", [["http://[::1]:8000"], ["--stream", "http://[::1]:8000"], ["http://[::1]:8000", "--stream"]]
)
def test_the_url_may_be_given_without_its_flag(given: list[str]) -> None:
    assert (read(*given).url, read(*given).target.port) == ("http://[::1]:8000", 8000)
    assert read("--url", "http://a", *given).url == "http://[::1]:8000"


@pytest.mark.parametrize("address", ["localhost:8000", "127.0.0.1:8000/v1", "[::1]:8000", "llm-1.example.org:80/"])
def test_a_host_with_a_port_is_a_url_of_http(address: str) -> None:
    full = read("--url", f"http://{address}", "--seed", "1")
    assert read(address, "--seed", "1") == read("--url", address, "--seed", "1") == full


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("sk-secret", "the URL should be one such as http://127.0.0.1:8000/v1"),
        ("http://a http://b", "unrecognized arguments: a value stands without its flag"),
        ("--url ftp://x", "'ftp://x' is not a URL such as http://127.0.0.1:8000/v1"),
        ("--url localhost", "'localhost' is not a URL such as http://127.0.0.1:8000/v1"),
        ("--url localhost:99999", "Port out of range 0-65535"),
        ("--url http://a@b/v1", "'http://a@b/v1' is not a URL such as http://127.0.0.1:8000/v1"),
        ("--url http://x:port/", "Port could not be cast to integer value as 'port'"),
        ("--url http://bücher.example", "'http://bücher.example' should be plain ASCII without spaces"),
        ("--api-key k\x0bx", "the API key should be plain ASCII without spaces"),
        ("--clients 8,0", "argument --clients: '0' is not a number from 1 to 999999999"),
        ("--clients ,", "argument --clients: '' is not a number from 1 to 999999999"),
        ("--requests 1_0", "argument --requests: '1_0' is not a number from 1 to 999999999"),
        ("--shared-prefix -1", "argument --shared-prefix: '-1' is not a number from 0 to 999999999"),
        ("--timeout nan", "argument --timeout: 'nan' is not a number of seconds above 0"),
        ("--timeout inf", "argument --timeout: 'inf' is not a number of seconds above 0"),
        ("--timeout soon", "argument --timeout: 'soon' is not a number of seconds above 0"),
        ("--json /", "argument --json: '/' cannot be written"),
        (f"--json /{'x' * 300}", f"argument --json: '/{'x' * 300}' cannot be written"),
        ("--json /no/such/folder/x", "argument --json: '/no/such/folder/x' cannot be written"),
        ("--plot x.svg", "argument --plot: 'x.svg' does not end in .png"),
        ("--client 1", "unrecognized arguments: --client; did you mean --clients?"),
    ],
)
def test_a_wrong_argument_is_one_line_and_2(given: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*given.split(" "))
    assert (ended.value.code, capsys.readouterr().err) == (2, f"llama-gateway bench: {complaint}\n")


@pytest.mark.parametrize(("given", "library"), [("--plot", "plotille"), ("--plot=x.png", "matplotlib")])
def test_a_plot_without_its_library_is_an_argument_error(
    given: str, library: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "find_spec", lambda _: None)
    with pytest.raises(SystemExit):
        read(given)
    assert f"--plot needs {library}: pip install 'llama-gateway[bench]'" in capsys.readouterr().err


def test_help_lists_every_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    for default in ("http://127.0.0.1:8000/v1", "completions", "600", "1,8,16,24,32", "72", "50", "16"):
        assert f"(default: {default})" in text
    assert "None" not in text
