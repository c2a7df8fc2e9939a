"""The figures: one module per benchmark, each with a ``NAME`` and ``run() -> list[Row]``.

``make bench`` runs them (``bench.__main__``); ``bench.table`` is what they hand back.
"""
