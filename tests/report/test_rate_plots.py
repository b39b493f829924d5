from cutlayer.report.rate_plots import rate_plots
from cutlayer.report.svg import draw


def records(clients: int, steps: int) -> list[dict]:
    bits = {str(client): 1.0 + client for client in range(clients)}
    return [{"kind": "step", "global_step": n + 1, "bits": bits} for n in range(steps)]


def test_each_client_is_a_curve() -> None:
    (plot,) = rate_plots("slow", [*records(3, 5), {"kind": "epoch", "global_step": 5}])
    assert [series.name for series in plot.series] == ["client 0", "client 1", "client 2"]
    assert list(plot.series[2].x) == [1, 2, 3, 4, 5]
    assert list(plot.series[2].y) == [3.0] * 5
    assert "client 2" in draw([plot])


def test_many_clients_are_summed_up() -> None:
    (plot,) = rate_plots("many", records(11, 1000))
    assert {series.name: series.y[0] for series in plot.series} == {"least": 1, "median": 6, "most": 11}
    assert len(plot.series[0].x) == 200


def test_runs_of_a_fixed_rate_have_no_such_plot() -> None:
    assert rate_plots("fixed", [{"kind": "step", "global_step": 1}]) == []
