"""The registry over HTTP: records, watch, history and import as thin faces of the one service.

Below: ``bascule.control.registry.service`` decides everything, ``bascule.asgi`` guards every
route. Above: a composition root gives ``rest.registry_routes`` to a ``GuardedApp``.
"""
