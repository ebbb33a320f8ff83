#!/usr/bin/env python3
"""A participant (resource manager) in Python, written from docs/protocol.md alone.

    python3 participant.py --name NAME --listen HOST:PORT --data DIR

It keeps keys with integers or texts, and knows the operations of docs/store.md. It needs python3-protobuf
and wire_pb2, which `protoc --python_out` makes of protocol/wire.proto; the build puts it into
build/PRESET/python, which PYTHONPATH or --wire has to name.

connection.py speaks, branches.py decides, locks.py and disk.py keep, client_part.py and inspection.py are
optional for a participant, work.py is this one's own business.
"""
import argparse
import asyncio
import logging
import signal
import sqlite3
import sys
from pathlib import Path

if "--wire" in sys.argv[:-1]:
    sys.path.insert(0, sys.argv[sys.argv.index("--wire") + 1])
try:
    import wire_pb2 as wire
except ImportError as error:
    sys.exit(f"participant.py: {error}. Install python3-protobuf, and name the directory of wire_pb2.py, which the "
             "build makes (build/PRESET/python), with --wire or PYTHONPATH")

from branches import CRASH_POINTS, Participant
from connection import FAREWELL_S, Connection
from disk import Disk

log = logging.getLogger("participant")


async def serve(options):
    try:
        disk = Disk(Path(options.data))
    except (OSError, sqlite3.Error) as error:
        sys.exit(f"participant.py: data in {options.data}: {error}. Does another process use it?")
    participant = Participant(options.name, disk, options.crash_at)
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    connections = {}  # its task: the connection

    async def connected(reader, writer):
        connections[asyncio.current_task()] = connection = Connection(participant, reader, writer)
        await connection.run()
        del connections[asyncio.current_task()]

    host, _, port = options.listen.rpartition(":")
    try:
        server = await asyncio.start_server(connected, host.strip("[]"), int(port))
    except (OSError, ValueError) as error:
        sys.exit(f"participant.py: cannot listen on {options.listen}: {error}")
    waits = asyncio.create_task(participant.tell_waits())
    print(f"listening on {host}:{server.sockets[0].getsockname()[1]}", flush=True)

    await end.wait()
    log.info("shutting down")
    server.close()
    waits.cancel()
    for connection in connections.values():
        connection.fail(wire.FAILURE_SHUTDOWN, "it shuts down: connect again later")
    await disk.close()  # what was asked for is written
    if connections:
        await asyncio.wait(list(connections), timeout=FAREWELL_S)


def main():
    parser = argparse.ArgumentParser(description="A participant in Python: keys with integers or texts.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--listen", default="127.0.0.1:0", help="HOST:PORT; port 0: any free one")
    parser.add_argument("--data", required=True, help="directory of its data; made if it is missing")
    parser.add_argument("--wire", help="directory of wire_pb2.py; or PYTHONPATH")
    parser.add_argument("--crash-at", metavar="POINT[#n]",
                        help="for tests, SIGKILL the n-th time at: before-vote (nothing written), after-vote (durable, "
                        "not told), before-commit (nothing written), after-commit (durable, not told)")
    options = parser.parse_args()
    point = (options.crash_at or CRASH_POINTS[0]).partition("#")[0]
    if point not in CRASH_POINTS:
        parser.error(f"no crash point is called '{point}'; there are: {', '.join(CRASH_POINTS)}")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {options.name} %(levelname)s %(message)s")
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
