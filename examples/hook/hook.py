#!/usr/bin/env python3
"""A hook for Postrider, to begin with: refuses programs as attachments, and marks what it has seen.

Usage: hook.py PORT SECRET-FILE. Needs nothing but Python 3.
"""

import base64
import email
import hashlib
import hmac
import http.server
import json
import sys
import time

FORBIDDEN = (".exe", ".scr", ".js")
MINUTES = 5


def is_genuine(signature, body):
    """Whether the owner of the secret made this request, some minutes ago at most."""
    parts = dict(part.split("=", 1) for part in signature.split(",") if "=" in part)
    made = parts.get("t", "")
    if not made.isdigit() or abs(time.time() - int(made)) > MINUTES * 60:
        return False
    tag = hmac.new(SECRET, made.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(tag, parts.get("v1", ""))


def judge(request):
    """Returns the answer about a message."""
    message = email.message_from_bytes(base64.b64decode(request["content"]))
    for part in message.walk():
        name = part.get_filename() or ""
        if name.lower().endswith(FORBIDDEN):
            return {"action": "reject", "reply": "550 5.7.1 programs as attachments are not accepted here"}
    return {
        "action": "accept",
        "remove_headers": ["X-Checked"],
        "add_headers": [{"name": "X-Checked", "value": f"by the hook, from {request['client']['address']}"}],
    }


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_genuine(self.headers.get("Postrider-Signature", ""), body):
            self.send_error(403)
            return
        answer = json.dumps(judge(json.loads(body))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_OPTIONS(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    with open(sys.argv[2], "rb") as file:
        SECRET = file.readline().strip()
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()
