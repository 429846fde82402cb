"""Everything that turns the engine into knowledge: workloads, metrics, comparisons, the store, claims, reports, CLI.

May import `ledger` and `core_engine`; must not import `app` or streamlit.
"""
