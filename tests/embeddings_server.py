"""A small OpenAI-compatible embeddings server, and what was sent to it."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fakes import HashingEmbeddings

MODEL = "hashing-8b"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class EmbeddingsServer:
    """Answers as `scripted` says, then as a healthy server of `MODEL` does.

    Attributes:
        bodies: The bodies of the requests, in the order they came.
        headers: Their headers.
        paths: Their paths.
        ports: The clients' ports: one a connection.
        scripted: Functions of a handler, each of which answers one request.
        dim: How many numbers of a vector are sent.
        seconds: How long an answer takes.
    """

    def __init__(self):
        self.bodies = []
        self.headers = []
        self.paths = []
        self.ports = set()
        self.scripted = []
        self.dim = 256
        self.seconds = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self):
        host, port = self._server.server_address[:2]
        return f"http://{host}:{port}"

    @property
    def texts(self):
        """All texts that were sent, in order."""
        return [text for body in self.bodies for text in body["input"]]

    def will(self, *answers):
        """Answer the next requests so: a status, JSON, bytes, or a function of the handler."""
        self.scripted += answers

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, handler, body):
        with self._lock:
            self.bodies.append(body)
            self.headers.append(dict(handler.headers))
            self.paths.append(handler.path)
            self.ports.add(handler.client_address[1])
            answer = self.scripted.pop(0) if self.scripted else None
        if callable(answer):
            return answer(handler)
        time.sleep(self.seconds)
        if isinstance(answer, int):
            return reply(handler, answer, {"error": {"message": f"no luck: {answer}"}})
        if answer is not None:
            return reply(handler, 200, answer)
        return self._embed(handler, body)

    def _embed(self, handler, body):
        if handler.path != "/v1/embeddings":
            return reply(handler, 404, {"detail": "Not Found"})
        if body["model"] != MODEL:
            said = f"The model `{body['model']}` does not exist."
            return reply(handler, 404, {"object": "error", "message": said})
        vectors = HashingEmbeddings().embed_documents(body["input"])
        return reply(handler, 200, answer_of([[3 * x for x in v[: self.dim]] for v in vectors]))

    def _handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                length = int(self.headers["Content-Length"])
                with contextlib.suppress(ConnectionError):
                    server.take(self, json.loads(self.rfile.read(length)))

            def log_message(self, *arguments):
                pass

        return Handler


def answer_of(vectors):
    """Vectors as OpenAI sends them."""
    data = [
        {"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)
    ]
    return {"object": "list", "model": MODEL, "data": data, "usage": {"total_tokens": 0}}


def reply(handler, status, payload, **headers):
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
