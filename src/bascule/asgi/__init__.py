"""What every HTTP face shares: who is asking, what is refused, and what an answer looks like.

Below: the error table and strict JSON of ``bascule.wire``, Starlette and uvicorn. Above: the
registry's API, the tools API and the chat door build their routes with ``guard.route`` and run on
``serve.Serving``. Nothing here knows what a route does.
"""
