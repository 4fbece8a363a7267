"""Reads a publisher with libzmq. Arguments: the PUB's address, a topic, the ROUTER's address.

It prints each message as its parts in hexadecimal, then, after the message "last", the replies to
one request for a replay from number 1 until the end marker.
"""

import sys

import zmq

pub_address, topic, router_address = sys.argv[1:]
context = zmq.Context()
sub = context.socket(zmq.SUB)
sub.connect(pub_address)
sub.subscribe(topic)
while True:
    parts = sub.recv_multipart()
    print(*(p.hex() for p in parts), flush=True)
    if parts[-1] == b"last":
        break
dealer = context.socket(zmq.DEALER)
dealer.connect(router_address)
dealer.send_multipart([b"", (1).to_bytes(8, "big")])
while True:
    parts = dealer.recv_multipart()
    print(*(p.hex() or "-" for p in parts), flush=True)
    if parts[-1] == b"":
        break
