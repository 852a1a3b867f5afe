"""`tenuto keys`: API keys of the server, in a file of hashes."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.options import Json
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.errors import ConfigError

if TYPE_CHECKING:
    from tenuto.server.keys import KeyFile

keys = typer.Typer(no_args_is_help=True, help="API keys of `tenuto serve`: make, list and revoke them.")

File = Annotated[
    Path | None,
    typer.Option("--file", help="The key file.", show_default="setting api_keys_file"),
]


def _key_file(path: Path | None) -> KeyFile:
    from tenuto.server.keys import KeyFile

    path = path or Config.load().api_keys_file
    if path is None:
        raise ConfigError("name the key file: --file PATH, or TENUTO_API_KEYS_FILE")
    return KeyFile(path)


@keys.command("new")
def new(
    tenant: Annotated[str, typer.Argument(help="Whose key it is: tenants share nothing with each other.")],
    file: File = None,
) -> None:
    """Make a key and print it, once: only its hash is kept. A running server takes it within a second."""
    from tenuto.server.keys import make_key

    target = _key_file(file)
    key, record = make_key(tenant, RealClock().today().date().isoformat(), secrets.token_bytes)
    target.add(record)
    typer.echo(f"a key of {tenant}, kept as a hash in {target.path}; it is not shown again:", err=True)
    typer.echo(key)


@keys.command("list")
def show(file: File = None, as_json: Json = False) -> None:
    """List the keys: id, tenant and day, never a key."""
    for record in _key_file(file).read():
        if as_json:
            shown = {"id": record.id, "tenant": record.tenant, "created": record.created}
            typer.echo(json.dumps(shown, ensure_ascii=False))
        else:
            typer.echo(f"{record.id}  {record.created}  {record.tenant}")


@keys.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id: its middle part, as `list` shows it.")],
    file: File = None,
) -> None:
    """Remove a key. A running server refuses it within a second."""
    record = _key_file(file).revoke(key_id)
    typer.echo(f"revoked {record.id} of {record.tenant}", err=True)
