"""Sends the ratings, line by line, to every client: the server for `EndpointSource`. Run it during the training.

python configs/online/serve.py --port 7007
"""

from __future__ import annotations

import argparse
import json
import socketserver
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from ratings import read


class Asked(socketserver.StreamRequestHandler):
    """One connection: a client requests the events after an offset, or acknowledges events."""

    server: Server

    def handle(self) -> None:
        """Answer it."""
        asked = json.loads(self.rfile.readline())
        if 'ack' in asked:
            self.server.note(asked['ack'])
            return
        first = 0 if asked['after'] is None else asked['after'] + 1
        began = time.monotonic()
        for number in range(first, self.server.events):
            self.wfile.write(json.dumps({'offset': number, 'event': {**read()[number], 'number': number}}).encode())
            self.wfile.write(b'\n')
            early = (number - first) / self.server.rate - (time.monotonic() - began)
            if early > 0.005:
                time.sleep(early)
        self.wfile.write(b'{"end": true}\n')


class Server(socketserver.ThreadingTCPServer):
    """The first ratings, in the order of time.

    Args:
        port: on 127.0.0.1; 0 lets the system choose one.
        events: the number of ratings.
        rate: how many to send per second, at most.
        acknowledged: a file to which every acknowledged offset is written.
    """

    daemon_threads = allow_reuse_address = True

    def __init__(self, port: int, events: int, rate: float, acknowledged: str | None = None) -> None:
        super().__init__(('127.0.0.1', port), Asked)
        self.events, self.rate, self.acknowledged = events, rate, acknowledged

    def note(self, offset: int) -> None:
        """The updates of all ratings up to this one are in a checkpoint on disk."""
        if self.acknowledged is not None:
            with open(self.acknowledged, 'a', encoding='utf-8') as file:
                file.write(f'{offset}\n')

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that disconnects is not an error."""


def main() -> None:
    """Serve until Ctrl-C."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument('--port', type=int, default=7007)
    parse.add_argument('--events', type=int, default=100_000, help='how many ratings (default: all)')
    parse.add_argument('--rate', type=float, default=2000, help='how many a second, at most (default: 2000)')
    parse.add_argument('--acknowledged', metavar='FILE', help='write acknowledged offsets to this file')
    args = parse.parse_args()
    with Server(args.port, args.events, args.rate, args.acknowledged) as server:
        print(f'{args.events} ratings at tcp://127.0.0.1:{server.server_address[1]}', flush=True)
        server.serve_forever()


if __name__ == '__main__':
    main()
