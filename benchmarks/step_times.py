"""Seconds of a step of the testbed, or of its proxy, under each policy, for the table of time to accuracy.

    python benchmarks/step_times.py --root DATA                       print them
    python benchmarks/step_times.py --root DATA --out RESULTS         and write RESULTS/step-times.json

RESULTS is the folder that `cutlayer reproduce convergence --out` has. Use an idle machine: the load before
and after is written down, too. Steps of all policies take turns, so that a busy moment hits all of them. A
client's seconds are the mean over the ten clients, which compute one after another here, and at the same
time on a network. Both parties have one thread of this machine, unless `--threads` says otherwise.
"""

import argparse
import json
import os
import statistics
from pathlib import Path

import torch

from cutlayer.protocol.build import prepare_data
from cutlayer.reproduce.convergence.curves import policy_of
from cutlayer.reproduce.convergence.grid import choose, grid
from cutlayer.reproduce.convergence.time_to_accuracy import STEP_TIMES
from cutlayer.reproduce.further_policies import FURTHER
from cutlayer.reproduce.policies import long_run_policies
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.training.provenance import provenance

POLICIES = "none,ems-100x,all-30x,ms-nearest,qu,sp"
WARM_UP = 2


def measure(runs: dict[str, LocalRun], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of a client and of the server, step by step."""
    found: dict[str, dict[str, list[float]]] = {name: {"client": [], "server": []} for name in runs}
    for number in range(rounds + WARM_UP):
        for name, run in runs.items():
            result = run.step()
            if number < WARM_UP:
                continue
            at_clients = sum(s for stage, s in result.seconds.items() if stage.startswith("client_"))
            found[name]["client"].append(at_clients / len(result.step.clients))
            found[name]["server"].append(sum(result.seconds.values()) - at_clients)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=".", help="where CIFAR-10 lies")
    parser.add_argument("--scale", choices=("testbed", "proxy"), default="testbed")
    parser.add_argument("--cuts", default="shallow,medium,deep")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--rounds", type=int, default=20, help="steps of each policy, after two to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=int, default=10_000, help="images: fewer are read sooner")
    parser.add_argument("--out", type=Path, default=None, help="the folder of results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    chosen = choose([*long_run_policies(), *FURTHER], arguments.policies.split(","))
    before, data, width = os.getloadavg()[0], None, 0
    cuts: dict[str, dict[str, dict[str, float]]] = {}
    for cut in arguments.cuts.split(","):
        runs = {}
        for one in grid(arguments.scale, Path("unused"), chosen, root=arguments.root, cuts=[cut]):
            limited = one.config.data.model_copy(update={"limit": arguments.limit})
            config = one.config.model_copy(update={"data": limited})
            data, width = prepare_data(config) if data is None else data, config.model.width
            runs[policy_of(config)] = local_run(config, data)
        cuts[cut] = {}
        for policy, seconds in measure(runs, arguments.rounds).items():
            figures = cuts[cut][policy] = {"steps": float(arguments.rounds)}
            for who, values in seconds.items():
                ordered = sorted(values)
                tenth = len(ordered) // 10
                figures |= {
                    f"{who}_seconds": statistics.median(ordered),
                    f"{who}_p10": ordered[tenth],
                    f"{who}_p90": ordered[-1 - tenth],
                }
            both = figures["client_seconds"], figures["server_seconds"]
            print(f"{cut:8} {policy:28} client {both[0]:.4f} s, server {both[1]:.4f} s", flush=True)
    load = {"before": before, "after": os.getloadavg()[0]}
    print(f"load of the machine: {load['before']:.1f} before, {load['after']:.1f} after")
    if arguments.out is not None:
        settings = {
            "scale": arguments.scale,
            "width": width,
            "threads": arguments.threads,
            "rounds": arguments.rounds,
            "limit": arguments.limit,
        }
        content = {"cuts": cuts, "load": load, "settings": settings, "provenance": provenance(0)}
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / STEP_TIMES).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
