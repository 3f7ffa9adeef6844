"""The session: who one is here, what this console is, and signing in and out."""

from __future__ import annotations

import importlib.util
from http.cookies import SimpleCookie
from typing import Annotated

import msgspec

from moldau import __version__
from moldau.console.access.sessions import COOKIE, LONGEST_S
from moldau.console.call import Call
from moldau.console.endpoint import Done, endpoint
from moldau.console.errors import ApiError, of_problem
from moldau.console.sampling.state import operation_names
from moldau.console.visitor import Visitor
from moldau.peer.errors import NotAuthenticated, PeerError
from moldau.settings import InvalidSetting
from moldau.wire.apis import Api


class Features(msgspec.Struct):
    """What this console can do, by what is installed and configured."""

    search: bool
    parquet: bool
    lake: bool
    registry: bool
    metrics: bool


class Session(msgspec.Struct):
    """The console, and who is signed in; `cluster_id` and `operations` once somebody is.

    `operations` are those on the cluster: Create, Alter, DescribeConfigs and so on; null where the
    brokers do not tell.
    """

    user: str | None
    auth: str
    read_only: bool
    cluster_id: str
    bootstrap: str
    version: str
    features: Features
    operations: list[str] | None
    signed_in: bool


class SignIn(msgspec.Struct):
    # Some brokers take tokens for passwords.
    user: Annotated[str, msgspec.Meta(max_length=256)]
    password: Annotated[str, msgspec.Meta(max_length=8192)]


@endpoint("GET", "api/session", is_open=True)
def get_session(call: Call) -> Session:
    """Say who is signed in, and what this console is."""
    settings = call.console.settings
    needs = settings.sign_in is not None or settings.oidc is not None
    signed_in = call.visitor.security is not None or call.visitor.user is not None or not needs
    cluster_id, operations = "", None
    if signed_in:
        try:
            answer = call.cluster.insist(
                lambda: call.cluster.some_broker().ask(
                    Api.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True}
                )
            )
            cluster_id = str(answer.cluster_id)
            operations = operation_names(int(answer.cluster_authorized_operations))
        except NotAuthenticated:
            raise
        except PeerError:
            # The page says that the cluster is away; that is no reason not to show it.
            pass
    return Session(
        call.visitor.user,
        "oidc" if settings.oidc is not None else "none" if not needs else "password",
        settings.read_only,
        cluster_id,
        settings.bootstrap,
        __version__,
        features(bool(settings.registry), bool(settings.metrics)),
        operations,
        signed_in,
    )


def features(has_registry: bool, has_metrics: bool) -> Features:
    def has(*names: str) -> bool:
        return all(importlib.util.find_spec(name) is not None for name in names)

    search = has("duckdb", "pyarrow", "numba")
    return Features(search, search, has("deltalake", "pyarrow"), has_registry, has_metrics)


@endpoint("POST", "api/session", is_open=True)
def sign_in(call: Call, asked: SignIn) -> Session:
    """Sign in with a user of the brokers."""
    console = call.console
    if console.settings.oidc is not None:
        raise ApiError(
            409,
            "oidc",
            "this console signs people in with an OpenID Connect issuer",
            "see api/session/oidc",
        )
    if console.settings.sign_in is None:
        raise ApiError(409, "no_sign_in", "nobody has to sign in here")
    try:
        security = console.settings.security_of(asked.user, asked.password)
    except InvalidSetting as problem:
        raise ApiError(422, "invalid", str(problem)) from None
    visitor = Visitor(asked.user, security, call.visitor.address)
    try:
        with console.pool.borrowed(security, visitor.address) as cluster:
            cluster.some_broker()
    except NotAuthenticated:
        console.audit.refuse(visitor)
        raise ApiError(401, "wrong_password", "wrong name or password") from None
    except PeerError as problem:
        known = of_problem(problem)
        assert known is not None
        raise known from None
    call.cookies.append(_cookie(call, console.sessions.begin(visitor)))
    console.audit.note(visitor, "signed in", {})
    with Call(console, visitor, {}, call.request) as again:
        return get_session(again)


@endpoint("DELETE", "api/session", is_open=True)
def sign_out(call: Call) -> Done:
    """Sign out."""
    visitor = call.console.sessions.end(call.request.cookies.get(COOKIE))
    if visitor is not None:
        call.console.audit.note(visitor, "signed out", {})
    call.cookies.append(_cookie(call, ""))
    return Done()


def _cookie(call: Call, token: str) -> str:
    return session_cookie(
        token, call.request.scope.get("root_path", "") + "/", call.request.url.scheme == "https"
    )


def session_cookie(token: str, path: str, is_secure: bool) -> str:
    """Return the cookie of a session, or the one that ends it."""
    cookie: SimpleCookie = SimpleCookie()
    cookie[COOKIE] = token
    morsel = cookie[COOKIE]
    morsel["path"] = path
    morsel["httponly"] = True
    morsel["samesite"] = "Strict"
    morsel["max-age"] = str(int(LONGEST_S) if token else 0)
    if is_secure:
        morsel["secure"] = True
    return morsel.OutputString()
