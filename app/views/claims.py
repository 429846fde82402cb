"""Claims: what people say about inference, and what became of it on this machine. Deep link: ?claim=ID."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components.claim_parts import claim_card, claim_detail, conditions, verdict_word
from app.components.empty import empty
from app.components.failed import failed_run
from app.components.inputs import choice, clear, passed_over
from app.components.job_live import live_job
from app.components.section import escape
from app.components.stored_job import cancel, resume, resume_button, start, told
from app.state import set_address, store, t
from app.visitor import is_mine
from experiments import jobs
from experiments.claims import Claim, get_claim, load_claims
from experiments.claims.catalogue import KINDS
from experiments.claims_view import VERDICTS, Outcome, chapters, counts, outcomes
from experiments.store import Run
from ledger.errors import InputError

ANY = "any"
LISTED = 20


def page() -> None:
    """Draw the claim in the address, or the list of all."""
    asked = st.query_params.get("claim")
    found = outcomes(store())
    if asked is not None:
        try:
            claim = get_claim(asked)
        except InputError:
            st.warning(t("claims.unknown", id=escape(asked)))
        else:
            _one(claim, found[claim.id])
            return
    _all(found)


def _one(claim: Claim, outcome: Outcome) -> None:
    st.button(t("claims.back"), icon=":material/arrow_back:", type="tertiary", on_click=lambda: set_address(claim=None))
    told("claims")
    _at_work()
    claim_detail(claim, outcome)


def _all(found: dict[str, Outcome]) -> None:
    st.title(t("claims.question"), anchor=False)
    st.caption(t("claims.caption"))
    st.caption(escape(conditions()))
    with st.container(border=True, key="claims-counts"):
        st.markdown(" · ".join(f"**{many}** {verdict_word(verdict)}" for verdict, many in counts(found.values())))
    newest = next(filter(is_mine, store().list_runs(kind="claims", limit=LISTED, results=False)), None)
    newest = None if newest is None else jobs.status(newest.id, store())
    _run_all(active=newest is not None and newest.state in jobs.ACTIVE)
    told("claims")
    _at_work()
    _stopped(newest)
    claims = _chosen(found)
    if not claims:
        empty(t("claims.none"), t("empty.clear_filter"), lambda: clear("claims", "verdict", "kind"), "filter_alt_off")
    for chapter, rows in chapters(claims):
        st.markdown(f"## {t(f'claims.chapter_{chapter}')}")
        for claim in rows:
            claim_card(claim, found[claim.id])


def _run_all(*, active: bool) -> None:
    quick, every = st.columns(2)
    quick.button(
        t("claims.quick"), icon=":material/bolt:", type="primary", key="run-quick", width="stretch", disabled=active,
        help=t("claims.quick_help"), on_click=lambda: start("claims", "claims", lambda: {"quick": True}),
    )  # fmt: skip
    every.button(
        t("claims.every"), icon=":material/play_arrow:", key="run-every", width="stretch", disabled=active,
        help=t("claims.every_help"), on_click=lambda: start("claims", "claims", dict[str, Any]),
    )  # fmt: skip


def _at_work() -> None:
    """The visitor's run that computes or waits, with the way to stop it."""
    runs = [run for kind in ("claims", "claim") for run in store().list_runs(kind=kind, limit=LISTED, results=False)]
    active = [
        run
        for run in runs
        if is_mine(run) and run.state in jobs.ACTIVE and jobs.status(run.id, store()).state in jobs.ACTIVE
    ]
    own = next(iter(active), None)
    if own is None:
        return
    live_job(own.id, _phase, t("claims.leave"))
    said = t("picker.cancelling") if own.cancel_requested else t("picker.cancel")
    st.button(said, icon=":material/stop:", key="stop", disabled=own.cancel_requested,
              on_click=lambda: cancel("claims", own))  # fmt: skip


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Which row is checked, and how far it is."""
    steps = live.get("experiments") or 1
    step = t("claims.step", step=live["experiment"], of=steps) if steps > 1 else ""
    if run.kind == "claims":
        if live.get("claim") is None:
            return t("live.loading")
        return t("claims.phase_all", claim=live["claim"], place=live["repeat"], of=live["repeats"], step=step)
    return t("claims.phase_one", claim=run.spec["claim"], step=step)


def _stopped(run: Run | None) -> None:
    """The newest run over all rows, where it was stopped, and the way to go on."""
    if run is None or run.state not in ("failed", "cancelled"):
        return
    if run.state == "failed":
        failed_run(run, t("claims.failed_next"), lambda: resume("claims", run), t("claims.resume"))
    else:
        st.info(t("claims.cancelled"))
        resume_button("claims", run, t("claims.resume"))


def _chosen(found: dict[str, Outcome]) -> list[Claim]:
    verdicts = {ANY: t("claims.any"), **{verdict: verdict_word(verdict) for verdict in VERDICTS}}
    kinds = {ANY: t("claims.any"), **{kind: t(f"claims.kind_{kind}") for kind in KINDS}}
    left, right = st.columns(2)
    with left:
        verdict = choice("claims", "verdict", t("claims.by_verdict"), list(verdicts), ANY, verdicts.__getitem__)
    with right:
        kind = choice("claims", "kind", t("claims.by_kind"), list(kinds), ANY, kinds.__getitem__)
    passed_over("claims")
    return [claim for claim in load_claims() if verdict in (ANY, found[claim.id].verdict) and kind in (ANY, claim.kind)]
