#!/usr/bin/env python3
"""A hook that replaces e-mail addresses and card numbers in prompts. It needs only Python 3.

Usage: redact.py [HOST:PORT], by default 127.0.0.1:9090
"""
import http.server
import json
import re
import sys

PATTERNS = [
    (re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"), "[email]"),
    (re.compile(r"\b(?:\d[ -]?){13,19}\b"), "[card]"),
]
TEXTS = {"content", "text", "input", "prompt", "instructions", "system", "query", "documents", "arguments", "output"}


def redact(value, is_text=False):
    """Returns the value with every text of a prompt redacted. Names, roles and parameters stay as they are."""
    if isinstance(value, str) and is_text:
        for pattern, word in PATTERNS:
            value = pattern.sub(word, value)
    elif isinstance(value, list):
        value = [redact(v, is_text) for v in value]
    elif isinstance(value, dict):
        value = {k: redact(v, k in TEXTS) for k, v in value.items()}
    return value


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    wbufsize = -1  # sends an answer as one packet

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        changed = redact(body)
        answer = {"action": "allow"} if changed == body else {"action": "transform", "body": changed}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    def log_message(self, *_):  # a prompt must not reach a log
        pass


if __name__ == "__main__":
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9090").rpartition(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), Hook)
    print(f"listening on {server.server_address[0]}:{server.server_address[1]}", flush=True)
    server.serve_forever()
