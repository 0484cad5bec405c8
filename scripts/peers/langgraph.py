"""LangGraph: a library in Python; its graphs run in worker processes, with a checkpointer on Postgres or SQLite."""

from .peer import Run
from .postgres import Postgres
from .versions import POSTGRES, PYTHON

NAME = f"LangGraph {PYTHON['langgraph']}"


def levels(run: Run):
    """Each level on Postgres."""
    with run.part("langgraph") as (processes, directory):
        postgres = Postgres(run.packages, processes, directory / "postgres")
        servers, url = {"postgres": [postgres.process]}, postgres.url("postgres")
        workers = run.options.langgraph_workers
        for concurrency in run.options.concurrency:
            name = f"{NAME}, Postgres {POSTGRES}"
            yield run.level(name, "langgraph_worker", servers, concurrency, workers, lambda _: url)


def sqlite_levels(run: Run):
    """Each level on SQLite. Each worker has a file of its own: a file has one writer at a time."""
    with run.part("langgraph-sqlite") as (_, directory):
        workers = run.options.langgraph_workers
        for concurrency in run.options.concurrency:
            files = [str(directory / f"{concurrency}-{index}.sqlite") for index in range(workers)]
            yield run.level(f"{NAME}, SQLite", "langgraph_worker", {}, concurrency, workers, files.__getitem__)
