"""A real HTTP server on the loopback that says back what it was sent."""

import gzip
import json
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

PICTURE = b"\x89PNG\r\n\x1a\n" + b"\x00\xff" * 50


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        self.server.peers.append(self.client_address)
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        answer = getattr(self, f"_{parts.path.rpartition('/')[2].partition('.')[0]}", self._echo)
        answer(parts, body)

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        self.do_GET()

    def do_PUT(self):
        self.do_GET()

    def do_PATCH(self):
        self.do_GET()

    def do_DELETE(self):
        self.do_GET()

    def _answer(self, status, body, kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _echo(self, parts, body):
        told = {
            "method": self.command,
            "path": parts.path,
            "query": parse_qsl(parts.query, keep_blank_values=True),
            "headers": dict(self.headers),
            "body": body.decode("utf-8", "replace"),
        }
        self._answer(200, json.dumps(told).encode())

    def _missing(self, parts, body):
        self._answer(404, json.dumps({"detail": "no such dog", "said": "x" * 5_000}).encode())

    def _denied(self, parts, body):
        self._answer(401, f"denied: {self.headers.get('Authorization')}".encode(), "text/plain")

    def _moved(self, parts, body):
        self._answer(302, b"", Location="http://169.254.169.254/latest/")

    def _login(self, parts, body):
        self._answer(307, b"", Location=f"https://login.example/?next={self.path}")

    def _large(self, parts, body):
        self._answer(200, "é".encode() * 500_000, "text/plain; charset=utf-8")

    def _bomb(self, parts, body):
        self._answer(200, gzip.compress(b"a" * 50_000_000), "text/plain", Content_Encoding="gzip")

    def _zipped(self, parts, body):
        self._answer(200, gzip.compress(b'{"a": 1}'), Content_Encoding="gzip")

    def _odd(self, parts, body):
        self._answer(200, b"never asked for", Content_Encoding="br")

    def _picture(self, parts, body):
        self._answer(200, PICTURE, "image/png")

    def _nothing(self, parts, body):
        self._answer(204, b"")

    def _slow(self, parts, body):
        self.server.released.wait(5)
        self._answer(200, b"{}")

    def _dripping(self, parts, body):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        while not self.server.released.is_set():
            try:
                self.wfile.write(b" ")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.02)

    def _broken(self, parts, body):
        self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def log_message(self, *arguments):
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Say nothing of clients that hang up, as some tests have them do."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def echo_server():
    """Yield a server that knows what it was sent.

    It has `url`, `requests`, each as (method, target, headers, body), and `peers`, the address
    that each came from.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.requests, server.peers, server.released = [], [], threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
