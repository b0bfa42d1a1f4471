"""An HTTP server on loopback that takes every POST: what a collector and a webhook's receiver would get."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Listener:
    """What was posted. `is_silent` never answers."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.is_silent = False
        self.done = threading.Event()
        self.url = ""

    def of(self, path: str) -> list[bytes]:
        return [body for where, _, body in self.got if where == path]

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = [ExportTraceServiceRequest.FromString(body) for body in self.of("/v1/traces")]
        scopes = [scope for request in found for resource in request.resource_spans for scope in resource.scope_spans]
        return [span for scope in scopes for span in scope.spans]


@contextmanager
def listening() -> Iterator[Listener]:
    found = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if found.is_silent:
                found.done.wait(60)
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.got.append((self.path, headers, body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    found.done.set()
    server.shutdown()
    thread.join()
    server.server_close()
