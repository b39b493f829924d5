"""The Kubernetes manifests, held against the program: flags, mounted files, probes, names and users."""

import re
import shlex
from pathlib import Path

import pytest

from tests.deploy.files import (
    BASE,
    CONTAINERS,
    DEPLOY,
    METRICS,
    PORT,
    USER,
    check,
    documents,
    objects,
    program,
)


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
