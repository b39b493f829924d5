"""The operators' files, held against the program: flags, metrics, versions, paths, ports and users.

Neither Docker nor Kubernetes is needed: files are parsed, and what they say is checked.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from packaging.requirements import Requirement
from packaging.version import Version

from cutlayer.cli import app
from cutlayer.config.schema import from_mapping
from cutlayer.wire.metrics import Metrics

yaml = pytest.importorskip("yaml", reason="PyYAML is part of the extra dev")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
USER = 10001
PORT, METRICS = 50551, 9100
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "certs" not in path.parts)


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def objects() -> dict[tuple[str, str], Any]:
    """Everything that the base deploys, by kind and name."""
    found = [one for path in BASE.glob("*.yaml") for one in documents(path)]
    return {(one["kind"], one.get("metadata", {}).get("name", "")): one for one in found}


def program(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words call, and what is left for it."""
    command: Any = typer.main.get_command(app)
    while getattr(command, "commands", None):
        assert words, "a command is missing"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check(words: list[str]) -> dict[str, Any]:
    """Parse words as the program does: unknown flags and values that cannot be raise. What they mean."""
    command, rest = program(words)
    with command.make_context(command.name, list(rest)) as context:
        return dict(context.params)


def containers() -> Iterator[tuple[str, Any, Any]]:
    """Each container of Kubernetes, with its pod."""
    for (kind, name), one in objects().items():
        if kind in ("StatefulSet", "Deployment"):
            pod = one["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield f"{name}/{container['name']}", container, pod


CONTAINERS = {name: (container, pod) for name, container, pod in containers()}
COMPOSE = documents(DEPLOY / "compose.yaml")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_file_parses_and_names_no_registry(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.suffix in (".yaml", ".yml"):
        assert all(document is not None for document in documents(path))
    elif path.suffix == ".json":
        json.loads(text)
    elif path.suffix == ".toml":
        from_mapping(tomllib.loads(text))
    images = re.findall(r"(?m)^\s*(?:-\s*)?(?:image:|FROM)\s+(\S+)", text)
    assert not [image for image in images if re.match(r"[^/]*[.:][^/]*/", image)], "a registry's host name"


def test_the_images_are_built_in_stages_of_files_that_are_there_and_run_without_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
    stages = [line.split()[-1] for line in lines if line.startswith("FROM")]
    assert stages == ["build", "runtime", "server", "client"]
    built = {service["build"]["target"] for service in COMPOSE["services"].values() if "build" in service}
    assert built <= set(stages)
    assert [line for line in lines if line.startswith("USER")] == [f"USER {USER}:{USER}"]
    # The compiler stays behind.
    assert all("apt-get" not in line for line in lines[lines.index("FROM ${PYTHON_IMAGE} AS runtime") :])
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in allowed, f"{source} is not sent to the builder"
    for line in lines:
        if line.startswith("CMD"):
            command, rest = program(json.loads(line.removeprefix("CMD")))
            assert rest == ["--help"]
            assert command.name in ("serve", "join")


def test_every_package_of_the_images_is_pinned_to_a_version_that_the_project_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = {}
    for path in (ROOT / "constraints.txt", DEPLOY / "constraints.txt"):
        for line in path.read_text("utf-8").splitlines():
            if line and not line.startswith("#"):
                name, _, version = line.partition("==")
                pins[name] = Version(version)
    build = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert build.count("--constraint constraints.txt --constraint deploy/constraints.txt") == 1
    extras = re.search(r"'\.\[([a-z,]+)\]'", build)
    assert extras is not None
    wanted = [*project["dependencies"]]
    for extra in extras[1].split(","):
        wanted += project["optional-dependencies"][extra]
    for requirement in map(Requirement, wanted):
        assert pins[requirement.name] in requirement.specifier, requirement


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


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_call_the_program_with_files_that_are_mounted(name: str) -> None:
    container, pod = CONTAINERS[name]
    given = check(container["args"])
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    for (kind, _), one in objects().items():
        if kind == "StatefulSet" and one["spec"]["template"]["spec"] is pod:
            volumes |= {claim["metadata"]["name"] for claim in one["spec"]["volumeClaimTemplates"]}
    volumes |= {"runs"} if name.startswith("cutlayer/") else set()
    assert {mount["name"] for mount in mounts.values()} <= volumes
    kustomization = documents(BASE / "kustomization.yaml")[0]
    secrets = {one["name"]: one["files"] for one in kustomization["secretGenerator"]}
    (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    keys = {file.partition("=")[0].rpartition("/")[2] for file in secrets[secret]}
    for value in [*given.values(), given.get("data")]:
        path = Path(value) if isinstance(value, str | Path) and str(value).startswith("/") else None
        if path is not None:
            assert any(path.is_relative_to(mount) for mount in mounts), path
            if path.parent.name == "credentials":
                assert path.name in keys, f"the secret {secret} has no {path.name}"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"]["limits"].keys() == container["resources"]["requests"].keys()


def test_the_server_is_probed_by_its_health_service_scraped_and_reached_by_name() -> None:
    found = objects()
    server = found["StatefulSet", "cutlayer"]
    (container,) = server["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    given = check(container["args"])
    assert ports == {"grpc": PORT, "metrics": METRICS}
    assert (given["listen"], given["metrics"], given["metrics_host"]) == (
        f"0.0.0.0:{PORT}",
        METRICS,
        "0.0.0.0",
    )
    assert given["resume"], "a pod that starts again goes on"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        program_name, *words = container[probe]["exec"]["command"]
        asked = check(words)
        assert program_name == "cutlayer"
        assert asked["address"] == f"localhost:{PORT}"
        assert asked["timeout"] < container[probe]["timeoutSeconds"]
    labels = server["spec"]["template"]["metadata"]["labels"]
    for kind, name in (("Service", "cutlayer"), ("Service", "cutlayer-ranks")):
        service = found[kind, name]["spec"]
        assert service["selector"].items() <= labels.items()
        assert all(port["targetPort"] in ports for port in service["ports"])
    assert server["spec"]["serviceName"] == "cutlayer-ranks"
    assert server["spec"]["selector"]["matchLabels"].items() <= labels.items()
    monitor = found["PodMonitor", "cutlayer"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert [endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]] == ["metrics"]
    policy = found["NetworkPolicy", "cutlayer-server"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    (client,) = found["Deployment", "cutlayer-client-0"]["spec"]["template"]["spec"]["containers"]
    assert check(client["args"])["address"] == f"cutlayer:{PORT}"


def test_kustomizations_list_files_that_are_there_and_those_that_certs_makes() -> None:
    for folder in (BASE, DEPLOY / "kubernetes" / "ranks"):
        one = documents(folder / "kustomization.yaml")[0]
        for name in [*one["resources"], *(patch["path"] for patch in one.get("patches", ()))]:
            assert (folder / name).exists(), name
        for config in one.get("configMapGenerator", ()):
            assert all((folder / file).is_file() for file in config["files"])
    base = documents(BASE / "kustomization.yaml")[0]
    assert set(base["resources"]) == {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    images = {image["name"] for image in base["images"]}
    assert images == {container["image"] for container, _ in CONTAINERS.values()}
    # The commands in the comments are the program's, too.
    for folder in (BASE, DEPLOY / "kubernetes" / "ranks"):
        comments = re.sub(r"\\\n#\s+", "", (folder / "kustomization.yaml").read_text("utf-8"))
        lines = re.findall(r"(?m)^#\s+(cutlayer .*)$", comments)
        assert lines
        for line in lines:
            check(shlex.split(line)[1:])


def test_ranks_are_the_server_under_torchrun() -> None:
    from torch.distributed.run import get_args_parser

    (patch,) = documents(DEPLOY / "kubernetes" / "ranks" / "server.yaml")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    base = objects()["StatefulSet", "cutlayer"]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["torchrun"]
    given = get_args_parser().parse_args(container["args"])
    assert given.module
    assert given.training_script == "cutlayer"
    assert int(given.nnodes) == patch["spec"]["replicas"]
    assert given.rdzv_endpoint.startswith("cutlayer-0.cutlayer-ranks:")
    # The same server, but for what ranks add, and for what they cannot do.
    words = given.training_script_args
    added = [word for word in words if word not in base["args"]]
    assert added == ["--advertise=$(POD_NAME).cutlayer-ranks:50551"]
    assert {word for word in base["args"] if word not in words} == {"--straggler=drop", "--quorum=2"}
    options = {name for parameter in program(["serve"])[0].params for name in parameter.opts}
    if "--advertise" not in options:
        pytest.skip("this release has no server ranks: --advertise is not there")
    assert check(words)["listen"] == f"0.0.0.0:{PORT}"


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    metrics = Metrics()
    metrics.stage("decode", 1.0)
    metrics.queue("inbox", 1)
    metrics.refused("credential")
    metrics.inferred(1, 1)
    metrics.step()
    names: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    dashboard = json.loads((DEPLOY / "grafana" / "cutlayer.json").read_text("utf-8"))
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            found = re.findall(r"(cutlayer_\w+)\{([^}]*)\}", expression)
            assert found, expression
            for name, selector in found:
                assert name in names, name
                asked.add(name)
                used = set(re.findall(r"(\w+)=~?\"", selector)) | set(re.findall(r"by \((\w+)\)", expression))
                assert used - {"job"} <= names[name], expression
            legends = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legends == set(re.findall(r"by \((\w+)\)", expression))
    # Nothing is counted that the dashboard does not show.
    assert {name for name in names if not name.endswith("_created")} == asked
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_page_says_what_is_there_and_that_it_was_not_run() -> None:
    page = (ROOT / "docs" / "how-to" / "containers.md").read_text("utf-8")
    assert "not run" in page
    for path in FILES:
        assert str(path.relative_to(ROOT)) in page, f"docs/how-to/containers.md does not name {path.name}"
