"""The operators' files, held against the program: images, versions, metrics and the page about them.

Neither Docker nor Kubernetes is needed: files are parsed, and what they say is checked.
"""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from cutlayer.config.schema import from_mapping
from cutlayer.wire.metrics import Metrics
from tests.deploy.files import COMPOSE, DEPLOY, FILES, ROOT, USER, documents, program


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
