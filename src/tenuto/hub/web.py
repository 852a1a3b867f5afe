"""Asking a hub: one HTTP client for both, and its faults in words."""

from __future__ import annotations

from typing import Any

import httpx

from tenuto.errors import HubError

# Every wait has an end: the largest is the time without a single byte of a file.
_TIMEOUT = httpx.Timeout(connect=10.0, read=30.0, write=10.0, pool=10.0)
_MAX_LISTING_BYTES = 50_000_000
_MAX_REDIRECTS = 5


def open_client(version: str, timeout: httpx.Timeout = _TIMEOUT) -> httpx.Client:
    """Follows redirects; httpx drops the Authorization header where one leads to another host."""
    return httpx.Client(
        timeout=timeout,
        follow_redirects=True,
        max_redirects=_MAX_REDIRECTS,
        # Sizes are those of the files: nothing is compressed on the way.
        headers={"User-Agent": f"tenuto/{version}", "Accept-Encoding": "identity"},
    )


def unreachable(what: str, url: str, error: httpx.HTTPError) -> HubError:
    """What to tell of a broken connection; the address is shown without its query, which may be signed."""
    where = httpx.URL(url).copy_with(query=None, userinfo=b"")
    slow = isinstance(error, httpx.TimeoutException)
    how = "did not answer in time" if slow else "cannot be reached"
    return HubError(
        f"{what}: {where} {how} ({type(error).__name__}); check the network, "
        "name a mirror (HF_ENDPOINT), or take the model from ModelScope (ms:org/name)"
    )


def insecure(response: httpx.Response) -> bool:
    """Whether a redirect left https: what comes then could be anybody's."""
    schemes = [r.url.scheme for r in (*response.history, response)]
    return "https" in schemes and schemes[-1] != "https"


def get_json(client: httpx.Client, what: str, url: str, headers: dict[str, str]) -> tuple[httpx.Response, Any]:
    """The response, and its JSON if the status is 200 (else None).

    Raises:
        HubError: no answer, not JSON, or absurdly long.
    """
    body = bytearray()
    try:
        with client.stream("GET", url, headers=headers) as response:
            if insecure(response):
                raise HubError(f"{what}: {url} redirects to an address without encryption")
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _MAX_LISTING_BYTES:
                    raise HubError(f"{what}: the answer of {url} is over {_MAX_LISTING_BYTES} bytes long")
    except httpx.HTTPError as error:
        raise unreachable(what, url, error) from error
    if response.status_code != 200:
        return response, None
    try:
        return response, httpx.Response(200, content=bytes(body)).json()
    except (ValueError, RecursionError) as error:
        raise HubError(f"{what}: {url} answered with something that is not JSON; is that a hub?") from error
