"""The doors: each one way in, with a dialect of its own, over the one bridge.

A door translates and decides nothing: policy, approval, budgets and cleaning are the bridge's.
"""
