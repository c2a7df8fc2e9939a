"""Decisions: pure functions that say what is allowed, and why.

No I/O, no clock, no state.
"""
