"""What the routes take and give by which the web page gets its token and lets it go."""

from __future__ import annotations

from bascule.wire.api.addresses import LOGIN, LOGOUT
from bascule.wire.api.login import LinkShown, LoggedIn, Login
from bascule.wire.api.tokens import TokenEnded
from checks.openapi_routes import ANYBODY, BODY, DOWN, WRITE, Exchange

LOGIN_ROUTES = {
    ("POST", LOGIN): Exchange(
        answers={200: (LoggedIn, LinkShown)},
        refusals=(*ANYBODY, *BODY, "invalid_code", "invalid_record", *DOWN),
        body=Login,
    ),
    ("POST", LOGOUT): Exchange(answers={200: TokenEnded}, refusals=(*WRITE, *DOWN)),
}
