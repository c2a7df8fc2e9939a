"""The gate: what must hold before a change lands, each check a module that can run alone.

``make check`` runs ``checks.gate``, which runs the others; ``python -m checks.sizes`` and its
like run one. Every complaint names the place and the way to mend it.
"""
