"""What things cost: memory, time and money as pure functions over plain dataclasses.

Imports neither torch nor streamlit.
"""
