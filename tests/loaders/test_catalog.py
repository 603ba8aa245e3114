"""The catalogue of public traces, and fetching from a server on this machine that may misbehave."""

from __future__ import annotations

import hashlib
import http.server
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.errors import ConfigError, InputError, OutputError, UnknownName
from trimtab.traces import catalog
from trimtab.traces.loader import FORMATS

BODY = b"job_id,submit_s,duration_s,gpus\n1,0,1,1\n" * 100


class Server(http.server.BaseHTTPRequestHandler):
    """Serves BODY; /none/ is not found, /cut/ breaks off half-way, /short/ promises more than it sends."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/none/"):
            self.send_error(404)
            return
        half = self.path.startswith("/cut/")
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[: len(BODY) // 2] if half else BODY)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    known = hashlib.sha256(BODY).hexdigest()
    one = replace(catalog.CATALOG[0], name="one", url="http://127.0.0.1:9/one.csv", sha256=known)
    new = replace(one, name="new", url="http://127.0.0.1:9/new.csv", sha256=None)
    bad = replace(one, name="bad", url="http://127.0.0.1:9/bad.csv", sha256="0" * 64)
    monkeypatch.setattr(catalog, "CATALOG", (*catalog.CATALOG, one, new, bad))


def test_catalogue_is_complete() -> None:
    names = [public.name for public in catalog.CATALOG]
    assert len(set(names)) == len(names)
    for public in catalog.CATALOG:
        assert public.load_as.partition(":")[0] in FORMATS
        assert public.cite
        assert public.licence
        assert public.holes
        assert public.sha256 is None or len(public.sha256) == 64
    with pytest.raises(UnknownName, match="did you mean 'philly'"):
        catalog.find("phily")


def test_fetch_verifies_and_does_not_fetch_twice(server: str, tmp_path: Path) -> None:
    fetched = catalog.fetch("one", tmp_path / "new" / "folder", server)
    assert fetched.path.read_bytes() == BODY
    assert fetched.known
    again = catalog.fetch("one", tmp_path / "new" / "folder", server + "/")
    assert again == fetched
    assert Server.asked == ["/one.csv"]


def test_fetch_records_a_checksum_nobody_knows(server: str, tmp_path: Path) -> None:
    fetched = catalog.fetch("new", tmp_path, server)
    assert not fetched.known
    assert fetched.sha256 == hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("bad", "", "SHA-256 is not the known 0000"),
        ("one", "/none", "the server answers 404"),
        ("one", "/cut", "the download broke off"),
        ("new", "/cut", "the download broke off"),
    ],
)
def test_what_fails_leaves_nothing(server: str, tmp_path: Path, name: str, path: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        catalog.fetch(name, tmp_path, server + path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the download broke off") as caught:
        catalog.fetch("one", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot be made"):
        catalog.fetch("one", tmp_path / "file", server)


def test_without_pooch_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ConfigError, match="pip install pooch"):
        catalog.fetch("one", tmp_path)
