"""A live join fed by sockets: each connection sends lines of JSON and is one source of rows, ordered by time.

The example is its own client: two sensors connect and send readings. A connection that ends advances its source's
clock to the end of time, so that it holds nobody back.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading

import pyarrow as pa

import millrace as mr

SENSORS, READINGS = 2, 200
SCHEMA = pa.schema([("ts", pa.int64()), ("temperature", pa.float64())])
END_OF_TIME = 2**62


class Server(socketserver.ThreadingTCPServer):
    """Serves one live join: side s is fed by the sensors, side r by the program itself."""

    daemon_threads = True

    def __init__(self, live: mr.LiveJoin) -> None:
        """Listen on a free port of this machine."""
        super().__init__(("127.0.0.1", 0), Feed)
        self.live = live


class Feed(socketserver.StreamRequestHandler):
    """One connection: the first line names the source, the others are rows."""

    server: Server

    def handle(self) -> None:
        """Put every line as a row."""
        live, source = self.server.live, int(self.rfile.readline())
        for line in self.rfile:
            live.put("s", json.loads(line), source)
        live.advance("s", END_OF_TIME, source)


def sensor(port: int, source: int) -> None:
    """Connect and send readings, one every 10 ticks."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{source}\n".encode())
        for number in range(READINGS):
            row = {"ts": 10 * number + source, "temperature": 20.0 + (number * 13 + source) % 10}
            connection.sendall(f"{json.dumps(row)}\n".encode())


def main() -> None:
    """Find the readings within 20 ticks of an alarm that are warmer than it."""
    schemas = {"r": SCHEMA, "s": SCHEMA}
    live = mr.LiveJoin(
        "s.temperature > r.temperature", window="20", time="ts", sources={"r": 1, "s": SENSORS}, schemas=schemas
    )
    with live, Server(live) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sensors = [threading.Thread(target=sensor, args=(server.server_address[1], i)) for i in range(SENSORS)]
        for thread in sensors:
            thread.start()
        for ts in range(0, 10 * READINGS, 500):
            live.put("r", {"ts": ts, "temperature": 25.0})
        live.advance("r", END_OF_TIME)
        for thread in sensors:
            thread.join()
        expected, pairs = SENSORS * READINGS, 0
        while live.stats["rows"]["s"] < expected or live.stats["queued"]:
            pairs += live.poll(timeout=0.01).num_rows
        server.shutdown()
        pairs += live.close().num_rows
    sys.stdout.write(f"{expected} readings, {pairs} warm readings near alarms\n")


if __name__ == "__main__":
    main()
