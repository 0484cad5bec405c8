"""DBOS: a library in Python on Postgres; its workflows run in worker processes."""

from .peer import Run
from .postgres import Postgres
from .versions import POSTGRES, PYTHON

NAME = f"DBOS {PYTHON['dbos']}, Postgres {POSTGRES}"


def levels(run: Run):
    """Each level."""
    with run.part("dbos") as (processes, directory):
        postgres = Postgres(run.packages, processes, directory / "postgres")
        servers, url = {"postgres": [postgres.process]}, postgres.url("dbos")
        for concurrency in run.options.concurrency:
            yield run.level(NAME, "dbos_worker", servers, concurrency, run.options.dbos_workers, lambda _: url)
