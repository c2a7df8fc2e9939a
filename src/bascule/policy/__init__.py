"""Decisions: pure functions that say what is allowed, and why.

Below: the model. Above: the bridge asks here before anything crosses; the command line and
every other face show the reasons. No I/O, no clock, no state.
"""
