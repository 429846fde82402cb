"""The pages that exist. Each imports its code when it is drawn, so that the navigation itself is there at once."""

from __future__ import annotations

from importlib import import_module

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app.state import t


def workbench_page() -> StreamlitPage:
    """The Workbench, which opens first."""
    return st.Page(_workbench, title=t("nav.workbench"), icon=":material/science:", url_path="workbench", default=True)


def factorial_page() -> StreamlitPage:
    """Two variables at once."""
    return st.Page(_factorial, title=t("nav.factorial"), icon=":material/grid_view:", url_path="two")


def trace_page() -> StreamlitPage:
    """Where time and memory of one stored run went."""
    return st.Page(_trace, title=t("nav.trace"), icon=":material/stacked_bar_chart:", url_path="trace")


def ledger_page() -> StreamlitPage:
    """How many sequences a card holds."""
    return st.Page(_ledger, title=t("nav.ledger"), icon=":material/table_rows:", url_path="ledger")


def roofline_page() -> StreamlitPage:
    """What limits a step."""
    return st.Page(_roofline, title=t("nav.roofline"), icon=":material/show_chart:", url_path="roofline")


def quantization_page() -> StreamlitPage:
    """What number formats save and what they cost."""
    return st.Page(_quantization, title=t("nav.quantization"), icon=":material/compress:", url_path="quantization")


def speculation_page() -> StreamlitPage:
    """What drafting tokens gains, and where it does not pay."""
    return st.Page(_speculation, title=t("nav.speculation"), icon=":material/fast_forward:", url_path="speculation")


def kernels_page() -> StreamlitPage:
    """Which operators a step consists of."""
    return st.Page(_kernels, title=t("nav.kernels"), icon=":material/memory:", url_path="kernels")


def caching_page() -> StreamlitPage:
    """When an old answer may serve a new question."""
    return st.Page(_caching, title=t("nav.caching"), icon=":material/cached:", url_path="caching")


def advisor_page() -> StreamlitPage:
    """What limits it, and the one next change."""
    return st.Page(_advisor, title=t("nav.advisor"), icon=":material/lightbulb:", url_path="advisor")


def load_page() -> StreamlitPage:
    """What one instance serves, and when to add another."""
    return st.Page(_load, title=t("nav.load"), icon=":material/speed:", url_path="load")


def parallel_page() -> StreamlitPage:
    """One model over several processes, and prompts computed apart from answers."""
    return st.Page(_parallel, title=t("nav.parallel"), icon=":material/account_tree:", url_path="parallel")


def playbook_page() -> StreamlitPage:
    """Which optimisations are worth taking, step by step."""
    return st.Page(_playbook, title=t("nav.playbook"), icon=":material/stairs:", url_path="playbook")


def plan_page() -> StreamlitPage:
    """Which cards serve a traffic, simulated."""
    return st.Page(_plan, title=t("nav.plan"), icon=":material/dns:", url_path="plan")


def cost_page() -> StreamlitPage:
    """What a month costs."""
    return st.Page(_cost, title=t("nav.cost"), icon=":material/paid:", url_path="cost")


def runs_page() -> StreamlitPage:
    """The list of runs."""
    return st.Page(_runs, title=t("nav.runs"), icon=":material/list:", url_path="runs")


def labs_page() -> StreamlitPage:
    """Labs: predict, measure, be graded."""
    return st.Page(_labs, title=t("nav.labs"), icon=":material/school:", url_path="labs")


def interview_page() -> StreamlitPage:
    """Questions as an interview asks them."""
    return st.Page(_interview, title=t("nav.interview"), icon=":material/quiz:", url_path="interview")


def claims_page() -> StreamlitPage:
    """What people say about inference, checked here."""
    return st.Page(_claims, title=t("nav.claims"), icon=":material/fact_check:", url_path="claims")


def groups() -> dict[str, list[StreamlitPage]]:
    """The pages under the headings of the sidebar."""
    return {
        t("nav.experiment"): [workbench_page(), factorial_page(), trace_page()],
        t("nav.understand"): [
            ledger_page(),
            roofline_page(),
            kernels_page(),
            quantization_page(),
            speculation_page(),
            parallel_page(),
            caching_page(),
        ],
        t("nav.decide"): [advisor_page(), playbook_page(), load_page(), plan_page(), cost_page(), runs_page()],
        t("nav.learn"): [claims_page(), labs_page(), interview_page()],
    }


def _draw(name: str) -> None:
    import_module(f"app.views.{name}").page()


def _workbench() -> None:
    _draw("workbench")


def _factorial() -> None:
    _draw("factorial")


def _trace() -> None:
    _draw("trace")


def _ledger() -> None:
    _draw("ledger")


def _roofline() -> None:
    _draw("roofline")


def _quantization() -> None:
    _draw("quantization")


def _speculation() -> None:
    _draw("speculation")


def _kernels() -> None:
    _draw("kernels")


def _caching() -> None:
    _draw("caching")


def _advisor() -> None:
    _draw("advisor")


def _load() -> None:
    _draw("load")


def _parallel() -> None:
    _draw("parallel")


def _playbook() -> None:
    _draw("playbook")


def _plan() -> None:
    _draw("plan")


def _cost() -> None:
    _draw("cost")


def _runs() -> None:
    _draw("runs")


def _claims() -> None:
    _draw("claims")


def _labs() -> None:
    _draw("labs")


def _interview() -> None:
    _draw("interview")
