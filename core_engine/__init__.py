"""The inference engine: scheduling, paged KV cache, model execution, sampling and text.

Imports neither streamlit nor pandas.
"""
