"""A page by itself, what it says, a home folder of its own, and a store with a finished job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.testing.v1 import AppTest

from experiments.store import Store

PATIENCE_S = 120


def page_alone(page: str, **params: str) -> AppTest:
    """One page alone: AppTest knows no pages made of functions."""
    app = AppTest.from_string(f"from app.views import {page}\n{page}.page()\n", default_timeout=PATIENCE_S)
    for name, value in params.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def asked(app: AppTest, name: str) -> str:
    """A parameter of the app's address, which a test's app holds as a list or as a text."""
    found: str | list[str] = app.query_params[name]
    return found if isinstance(found, str) else found[0]


def texts(app: AppTest) -> str:
    parts: list[Any] = [*app.title, *app.markdown, *app.caption, *app.info, *app.warning, *app.error]
    return "\n".join(str(part.value) for part in parts)


def used(path: Path) -> Iterator[Path]:
    """The folder as the home that the app uses."""
    before = os.environ.get("TRILEMMA_HOME")
    os.environ["TRILEMMA_HOME"] = str(path)
    st.cache_resource.clear()
    yield path
    st.cache_resource.clear()
    if before is None:
        del os.environ["TRILEMMA_HOME"]
    else:
        os.environ["TRILEMMA_HOME"] = before


@dataclass(frozen=True)
class StoredJob:
    """A home folder whose store has one finished run of a kind."""

    home: Path
    kind: str
    run_id: str
    spec: dict[str, Any]
    result: dict[str, Any]

    @property
    def store(self) -> Store:
        return Store(self.home / "runs.sqlite3")

    def add(self, state: str = "done", result: dict[str, Any] | None = None, **spec: Any) -> str:
        """Another run of the same spec."""
        run_id = self.store.create_run(self.kind, {**self.spec, **spec})
        self.store.update_run(run_id, state=state, result=result)
        return run_id
