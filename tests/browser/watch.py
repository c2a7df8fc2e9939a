"""What must not happen on a page, whatever a test does there: each of it fails the test."""

from __future__ import annotations

import re

from playwright.async_api import BrowserContext, ConsoleMessage, Dialog, Request, WebError

#: Reports of the content policy and of trusted types go to the console, where they are seen.
REPORTING = """
addEventListener("securitypolicyviolation", ({effectiveDirective, blockedURI, sample}) =>
  console.error(`policy violated: ${effectiveDirective} by ${blockedURI} ${sample}`));
"""


class Watch:
    """Everything that a browser's context complains of: console, errors, dialogs, other hosts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._seen: list[str] = []
        self._allowed: list[re.Pattern[str]] = []

    async def over(self, context: BrowserContext) -> None:
        """Begin to watch a context's pages."""
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("dialog", self._dialog)
        context.on("request", self._request)
        await context.add_init_script(REPORTING)

    def allow(self, pattern: str) -> None:
        """Let pass what a test provokes: a pattern of what would be complained of."""
        self._allowed.append(re.compile(pattern))

    @property
    def complaints(self) -> list[str]:
        """What happened and was not allowed."""
        return [seen for seen in self._seen if not any(one.search(seen) for one in self._allowed)]

    def _console(self, message: ConsoleMessage) -> None:
        where = message.location
        self._seen.append(f"console {message.type}: {message.text} ({where['url']})")

    def _error(self, error: WebError) -> None:
        self._seen.append(f"error: {error.error}")

    async def _dialog(self, dialog: Dialog) -> None:
        self._seen.append(f"dialog: {dialog.type} {dialog.message}")
        await dialog.dismiss()

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._url}/", "data:", "blob:")):
            self._seen.append(f"request elsewhere: {request.method} {request.url}")
