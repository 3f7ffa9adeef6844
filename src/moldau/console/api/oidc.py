"""Signing in with an OpenID Connect issuer: there, and back again."""

from __future__ import annotations

import hmac

import msgspec
from starlette.responses import RedirectResponse, Response

from moldau.console.api.session import session_cookie
from moldau.console.call import Call
from moldau.console.endpoint import endpoint
from moldau.console.errors import ApiError
from moldau.console.visitor import Visitor

_STATE = "moldau_console_oidc"
_CALLBACK = "api/session/oidc/callback"


class ComingBack(msgspec.Struct):
    """What the issuer sends along: a code, or why there is none."""

    state: str = ""
    code: str = ""
    error: str = ""


@endpoint("GET", "api/session/oidc", is_open=True, media_type="text/html")
def begin_oidc(call: Call) -> Response:
    """Send the browser to the issuer."""
    oidc = call.console.oidc
    if oidc is None:
        raise ApiError(404, "no_oidc", "this console has no issuer")
    url, state = oidc.begin(_own_url(call))
    path, secure = _base(call), "; Secure" if call.request.url.scheme == "https" else ""
    # Lax: it has to come back from another site.
    call.cookies.append(
        f"{_STATE}={state}; Path={path}; HttpOnly; SameSite=Lax; Max-Age=600{secure}"
    )
    return RedirectResponse(url, 302)


@endpoint("GET", _CALLBACK, is_open=True, media_type="text/html")
def end_oidc(call: Call, asked: ComingBack) -> Response:
    """Take the browser back, with the session of whoever signed in."""
    oidc = call.console.oidc
    if oidc is None:
        raise ApiError(404, "no_oidc", "this console has no issuer")
    if asked.error:
        raise ApiError(401, "oidc", f"the issuer says {asked.error[:200]}")
    known = call.request.cookies.get(_STATE, "")
    if not known or not hmac.compare_digest(known.encode(), asked.state.encode()):
        raise ApiError(401, "oidc", "this sign-in did not start in this browser", "try again")
    identity = oidc.finish(asked.state, asked.code)
    visitor = Visitor(identity.user, identity.security, _address(call))
    path, is_secure = _base(call), call.request.url.scheme == "https"
    call.cookies.append(session_cookie(call.console.sessions.begin(visitor), path, is_secure))
    call.cookies.append(f"{_STATE}=; Path={path}; HttpOnly; SameSite=Lax; Max-Age=0")
    call.console.audit.note(visitor, "signed in", {"by": "oidc"})
    return RedirectResponse(path, 302)


def _base(call: Call) -> str:
    return str(call.request.scope.get("root_path", "")) + "/"


def _own_url(call: Call) -> str:
    settings = call.console.settings.oidc
    assert settings is not None
    if settings.redirect_url:
        return f"{settings.redirect_url.rstrip('/')}/{_CALLBACK}"
    url = call.request.url
    return f"{url.scheme}://{url.netloc}{_base(call)}{_CALLBACK}"


def _address(call: Call) -> str:
    return call.request.client.host if call.request.client is not None else ""
