"""A claim on the page: the statement with its verdict, the trap beside it, the figures and the conditions."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.components.calculator import files, link
from app.components.live import duration
from app.components.section import escape
from app.components.stored_job import start
from app.state import MARKS, badge, language, set_address, t
from experiments.claims import Claim
from experiments.claims.catalogue import claim_texts
from experiments.claims.reasons import reason_in_language
from experiments.claims_view import Outcome, chapter_of, claim_command, expected_s, figure_tables, here

COLOURS = {"holds": "green", "holds with a limit": "orange", "does not hold here": "red"}


def verdict_word(verdict: str) -> str:
    """The verdict in the reader's language."""
    return t(f"claims.verdict_{verdict.replace(' ', '_')}")


def conditions() -> str:
    """This machine: what every measured row was run on, if its own line says nothing else."""
    found = here()
    cards = t("list_join").join(found["gpus"]) or t("claims.no_card")
    return t("claims.machine", cpu=found["cpu"], cores=found["cores"], threads=found["threads"], cards=cards)


def claim_card(claim: Claim, outcome: Outcome) -> None:
    """A row of the list: claim and verdict, the trap beside it, when it was run."""
    with st.container(border=True, key=f"claim-{claim.id}"):
        _head(claim, outcome)
        _said(claim, outcome)
        with st.container(horizontal=True):
            st.button(t("claims.open"), key=f"open-{claim.id}", icon=":material/info:", type="tertiary",
                      on_click=lambda: set_address(claim=claim.id))  # fmt: skip
            _run_button(claim)


def claim_detail(claim: Claim, outcome: Outcome) -> None:
    """One claim with all of its figures."""
    st.title(f"{claim.id} · {claim_texts(language())[claim.id].statement}", anchor=False)
    st.caption(t(f"claims.chapter_{chapter_of(claim)}"))
    _head(claim, outcome)
    _said(claim, outcome, statement=False)
    _run_button(claim)
    st.markdown(f"## {t('claims.check')}\n\n{escape(claim_texts(language())[claim.id].check)}")
    if outcome.evidence:
        st.markdown(f"## {t('claims.figures')} {_badges(outcome.provenances)}")
        for label, rows in figure_tables(outcome.evidence):
            st.markdown(_badges([label] if label else []))
            st.dataframe(pd.DataFrame(rows), hide_index=True)
    st.markdown(f"## {t('result.export')}")
    if outcome.evidence:
        files(f"claim-{claim.id}", {"verdict": outcome.verdict, "reason": outcome.reason, "run_id": outcome.run_id,
                                    "evidence": list(outcome.evidence)}, list(outcome.evidence))  # fmt: skip
    if claim.state == "checkable":
        st.code(claim_command(claim.id, outcome.options), language="shell", wrap_lines=True)
    link()


def _head(claim: Claim, outcome: Outcome) -> None:
    colour = COLOURS.get(outcome.verdict, "gray")
    st.markdown(
        f"**{claim.id}** :{colour}-badge[{verdict_word(outcome.verdict)}] {_badges(outcome.provenances)}"
    )  # fmt: skip
    st.caption(t(f"claims.kind_{claim.kind}"))


def _said(claim: Claim, outcome: Outcome, *, statement: bool = True) -> None:
    """Claim and result; the trap, where there is one, beside it and as large."""
    texts = claim_texts(language())[claim.id]
    left, right = st.columns(2) if texts.trap else (st.container(), None)
    with left:
        if statement:
            st.markdown(f"**{escape(texts.statement)}**")
        _result(outcome)
    if right is not None and texts.trap:
        with right, st.container(border=True, key=f"trap-{claim.id}"):
            st.markdown(f"**{t('claims.trap')}**  \n{escape(texts.trap)}")
    st.caption(" · ".join(filter(None, [_when(claim, outcome), *_others(outcome)])))


def _result(outcome: Outcome) -> None:
    if outcome.lab is not None:
        st.markdown(t("claims.taught", lab=f"[{outcome.lab}](labs?lab={outcome.lab}&lang={language()})"))
    elif outcome.reason:
        own = outcome.reason_in(language())
        st.markdown(_told(outcome.reason) if own is None else escape(own))
    if outcome.not_checked:
        st.markdown(f"{t('claims.not_checked')}{t('colon')}{_told(outcome.not_checked)}")
    if outcome.simulate:
        st.markdown(f"{t('claims.instead')} {badge('simulated')}")
        st.code(outcome.simulate, language="shell", wrap_lines=True)


def _told(text: str) -> str:
    """What a check says, in the reader's language."""
    return escape(reason_in_language(language(), text))


def _when(claim: Claim, outcome: Outcome) -> str:
    if outcome.run_id is not None and outcome.ran_at is not None:
        time = outcome.ran_at[:16].replace("T", " ")
        return t("claims.ran", time=time, run=outcome.run_id)
    seconds = expected_s(claim.id)
    if outcome.evidence or seconds is None:
        return ""
    return t("claims.takes", time=duration(seconds))


def _others(outcome: Outcome) -> list[str]:
    """Where the run's conditions are not those of now, or not the check's own."""
    told = []
    if outcome.same_machine is False:
        found = outcome.environment or {}
        told.append(t("claims.other_machine", cpu=found.get("cpu"), threads=found.get("threads")))
    if outcome.same_code is False:
        told.append(t("claims.other_code"))
    if outcome.options:
        options = {**outcome.options, **(outcome.options.get("settings") or {})}
        options.pop("settings", None)
        told.append(t("claims.options", options=t("list_join").join(f"{k}={v}" for k, v in options.items())))
    return [escape(text) for text in told]


def _run_button(claim: Claim) -> None:
    if claim.state == "checkable":
        st.button(
            t("claims.run"), key=f"run-{claim.id}", icon=":material/play_arrow:",
            on_click=lambda: start("claims", "claim", lambda: {"claim": claim.id}),
        )  # fmt: skip


def _badges(provenances: list[str]) -> str:
    return " ".join(badge(one) for one in provenances if one in MARKS)
