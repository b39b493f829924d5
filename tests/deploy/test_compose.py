"""The compose file of the rehearsal, held against the program: flags, ports, mounted files and rights."""

import shlex
from pathlib import Path

import pytest

from tests.deploy.files import COMPOSE, METRICS, PORT, check, yaml


@pytest.mark.parametrize(
    "service", [name for name in COMPOSE["services"] if "command" in COMPOSE["services"][name]]
)
def test_commands_of_the_rehearsal_are_those_of_the_program(service: str) -> None:
    one = COMPOSE["services"][service]
    if service == "certificates":
        (script,) = one["command"]
        lines = [line.strip() for line in script.splitlines() if line.strip().startswith("cutlayer ")]
        assert len(lines) == 3
        for line in lines:
            check(shlex.split(line)[1:])
        return
    given = check(shlex.split(one["command"]))
    mounted = {volume.split(":")[1] for volume in one["volumes"]}
    for value in given.values():
        if isinstance(value, Path) and value.is_absolute():
            assert f"/{value.parts[1]}" in mounted, value
    if service == "server":
        probe, *words = one["healthcheck"]["test"][1:]
        assert probe == "cutlayer"
        assert check(words)["address"] == f"localhost:{PORT}"
        assert (given["listen"], given["metrics"]) == (f"0.0.0.0:{PORT}", METRICS)
        assert given["clients"] == sum(name.startswith("client-") for name in COMPOSE["services"])
        scraped = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])["scrape_configs"][0]
        assert scraped["static_configs"][0]["targets"] == [f"server:{METRICS}"]
    else:
        assert given["address"] == f"server:{PORT}"
        assert str(given["token_file"]) == f"/certs/{service}.token"


def test_services_of_the_rehearsal_run_with_few_rights() -> None:
    for name, one in COMPOSE["services"].items():
        assert "user" not in one, "the image has a user who is not root"
        if "build" in one:
            assert one["read_only"], name
            assert one["cap_drop"] == ["ALL"]
        assert all(str(port).startswith("127.0.0.1:") for port in one.get("ports", ()))
        for needed in one.get("depends_on", {}):
            assert needed in COMPOSE["services"]
