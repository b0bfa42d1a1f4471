"""An SMTP server in a thread that takes every mail, and can say what was in them."""

from __future__ import annotations

import email
import socketserver
import threading
from typing import Self


class MailSink:
    def __init__(self) -> None:
        self.letters: list[bytes] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def holds(self, text: str) -> bool:
        """Whether the text is in a mail, in its decoded parts as well."""
        parts = [part for raw in self.letters for part in email.message_from_bytes(raw).walk()]
        decoded = [part.get_payload(decode=True) for part in parts if not part.is_multipart()]
        return any(text.encode() in found for found in (*self.letters, *decoded) if isinstance(found, bytes))

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        letters = self.letters

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say(b"220 sink")
                while line := self.rfile.readline():
                    word = line[:4].strip().upper()
                    if word == b"DATA":
                        self._say(b"354 go on")
                        letters.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                    self._say(b"221 bye" if word == b"QUIT" else b"250 ok")
                    if word == b"QUIT":
                        return

            def _say(self, text: bytes) -> None:
                self.wfile.write(text + b"\r\n")

        return Handler
