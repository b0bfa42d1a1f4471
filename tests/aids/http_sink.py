"""An HTTP server in a thread that takes every upload, and can say what was in them."""

from __future__ import annotations

import http.server
import threading
from typing import Self


class HttpSink:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def holds(self, text: str) -> bool:
        return any(text.encode() in body for body in self.bodies)

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        bodies = self.bodies

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"\xff\xfe")

            def log_message(self, *_: object) -> None:
                """Nothing is to be printed in a test."""

        return Handler
