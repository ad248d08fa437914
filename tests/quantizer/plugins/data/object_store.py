"""An S3-compatible server on this machine, whose answers can be made to fail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import s3fs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "data"
ERRORS = {"503": "503 Service Unavailable", "404": "404 Not Found"}
KEY, SECRET = "AKIAUSERNAME", "p4ssw0rd/of+nobody"


class ObjectStore:
    """The server, as a WSGI application around moto's.

    Attributes:
        url: of the server.
        requests: how often each path was asked for, by method and path.
        fault: called for each GET of an object with its name and how often it was asked for before; returns
            what happens: "" for an answer, "503", "404", "drop" for a connection that ends in the middle.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: Counter[str] = Counter()
        self.fault: Callable[[str, int], str] = lambda name, before: ""
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        name = environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
        request = f"{environ['REQUEST_METHOD']} {name}"
        before = self.requests[request]
        self.requests[request] += 1
        what = self.fault(name, before) if environ["REQUEST_METHOD"] == "GET" else ""
        if what in ERRORS:
            start_response(ERRORS[what], [("Content-Length", "0")])
            return []
        answer = self._moto(environ, start_response)
        return _cut(answer) if what == "drop" else answer

    def put(self, folder: Path) -> None:
        """Put the files of a folder into the bucket, under "set/"."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.client.put_object(
                    Bucket=BUCKET, Key=f"set/{path.relative_to(folder).as_posix()}", Body=path.read_bytes()
                )

    @property
    def client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", **CREDENTIALS)


CREDENTIALS = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}


def _cut(answer: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the first half of an answer, and close the connection."""
    content = b"".join(answer)
    yield content[: len(content) // 2]
    raise ConnectionResetError("dropped")


class _Quiet(WSGIRequestHandler):
    def log(self, *arguments: Any) -> None:
        pass


@contextmanager
def object_store(monkeypatch: Any) -> Iterator[ObjectStore]:
    """Serve an empty bucket, and let fsspec find the server as it finds any: by its environment."""
    store = ObjectStore()
    server = make_server("127.0.0.1", 0, store, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_port}"
    environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": store.url}
    for name, value in {**environment, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    store.client.create_bucket(Bucket=BUCKET)
    try:
        yield store
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.shutdown()
        thread.join()
        server.server_close()
