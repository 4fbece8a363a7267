#!/usr/bin/env python3
"""A hook that replaces e-mail addresses and card numbers in prompts. It needs only Python 3.
Usage: redact.py [HOST:PORT], by default 127.0.0.1:9090"""
import http.server
import json
import re
import sys

# A match begins only at the start of a word, so that the time grows in proportion to the text.
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
CARD = re.compile(r"\b\d{4}[ .-]?(?:\d{4}[ .-]?\d{4}[ .-]?\d{1,7}|\d{6}[ .-]?\d{5})(?!\d)")
ID = re.compile(r"(?:.*_)?(?:id|key|url)")  # members that may have long numbers other than card numbers
BRACKET = re.compile(r"[\[\]{}]")
COLON = re.compile(r"\s*:")
DECODER = json.JSONDecoder(strict=False)


def redact(body):
    """Returns a JSON text with e-mail addresses and card numbers replaced in all string values but its model."""
    parts, copied, names, end = [], 0, [""], 0  # names has the member's name of each level
    while (at := body.find('"', end)) >= 0:
        for bracket in BRACKET.findall(body, end, at):
            names[-1:] = [] if bracket in "]}" else [names[-1]] * 2
        text, end = DECODER.raw_decode(body, at)
        if COLON.match(body, end):
            names[-1] = text
        elif names[-1] != "model" or len(names) > 2:
            changed = EMAIL.sub("[email]", text)
            changed = changed if ID.fullmatch(names[-1]) else CARD.sub("[card]", changed)
            if changed != text:
                parts += body[copied:at], json.dumps(changed)
                copied = end
    return "".join(parts) + body[copied:]


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    wbufsize = -1  # sends an answer as one packet

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        changed = redact(body)
        text = ('{"action":"transform","body":' + changed + "}" if changed != body else '{"action":"allow"}').encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):  # a prompt must not reach a log
        pass


if __name__ == "__main__":
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9090").rpartition(":")
    http.server.ThreadingHTTPServer.request_queue_size = 64  # the gateway's largest number of calls at a time
    server = http.server.ThreadingHTTPServer((host, int(port)), Hook)
    print(f"listening on {server.server_address[0]}:{server.server_address[1]}", flush=True)
    server.serve_forever()
