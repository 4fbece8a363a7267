"""A publisher of KV-cache events as vLLM has it, over libzmq: a PUB and a ROUTER for replay.

Arguments: bind or connect, the PUB's address, the ROUTER's address, topic or plain (the layout
of a replay's replies). It prints "ready" and obeys lines on standard input:

  send NUMBER HEX         publish a payload under a number
  keep NUMBER HEX         only keep it for replays, as if the live message were lost
  flood NUMBER COUNT HEX  publish a payload COUNT times under numbers from NUMBER on

and prints "done" after each.
"""

import sys
import threading

import zmq

mode, pub_address, router_address, layout = sys.argv[1:]
context = zmq.Context()
# A reader that has connected to the PUB requests a replay at once.
router = context.socket(zmq.ROUTER)
router.bind(router_address)
pub = context.socket(zmq.PUB)
pub.set_hwm(100_000)
pub.bind(pub_address) if mode == "bind" else pub.connect(pub_address)
log, lock = [], threading.Lock()


def replay():
    while True:
        identity, empty, start = router.recv_multipart()
        first = int.from_bytes(start, "big")
        topic = [b"kv"] if layout == "topic" else []
        with lock:
            kept = list(log)
        for number, payload in kept:
            if number >= first:
                router.send_multipart([identity, b"", *topic, number.to_bytes(8, "big"), payload])
        topic = [b""] if layout == "topic" else []
        router.send_multipart([identity, b"", *topic, b"\xff" * 8, b""])


threading.Thread(target=replay, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    what, number, *rest = line.split()
    count = int(rest[0]) if what == "flood" else 1
    payload = bytes.fromhex(rest[-1])
    for n in range(int(number), int(number) + count):
        with lock:
            log.append((n, payload))
        if what != "keep":
            pub.send_multipart([b"kv", n.to_bytes(8, "big"), payload])
    print("done", flush=True)
