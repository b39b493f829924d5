from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner, Result

from cutlayer.commands import cuts, partition, recipes


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command line; errors of cutlayer come back as `result.exception`, as `main` sees them."""
    app = typer.Typer()
    for module in (cuts, partition, recipes):
        module.register(app)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])
