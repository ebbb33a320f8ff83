"""Connections: frames, the handshake, who may send what (docs/protocol.md)."""
import asyncio
import logging
import socket
import struct
import time
import zlib

from google.protobuf.message import DecodeError

import inspection
import wire_pb2 as wire
from model import Verb

VERSION = 1
HANDSHAKE_BYTES_MAX, FRAME_BYTES_MAX = 65_536, 16 << 20
HEARTBEAT_S, SILENCE_S, FAREWELL_S = 1.0, 10.0, 1.0

log = logging.getLogger("participant")

VERBS = {"prepare", "commit", "rollback", "release", "forget"}
SESSION_ONLY = VERBS | {"start", "recover", "ask_outcome", "mark"}
CLIENT_ONLY = {"join", "execute", "end"}
INSPECTION = {"scan", "locks", "in_doubt", "stats"}


class Connection:
    def __init__(self, participant, reader, writer):
        self.participant, self.reader, self.writer = participant, reader, writer
        self.session = None
        self.role, self.welcomed = None, False
        self.over = False            # nothing more is sent, and nothing that comes is taken
        self.receive_max, self.send_max = HANDSHAKE_BYTES_MAX, HANDSHAKE_BYTES_MAX
        self.executes = set()        # branches in which an Execute of this connection waits
        self.outbox, self.sent_at = [], time.monotonic()
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # -- sending

    def send(self, request, **body):
        if self.over:
            return
        payload = wire.Frame(request=request, **body).SerializeToString()
        if len(payload) > self.send_max:
            return self.refuse(request, f"the answer has {len(payload)} bytes, more than you take: ask for less")
        if not self.outbox:
            asyncio.get_running_loop().call_soon(self.flush)
        length = struct.pack("<I", len(payload))
        self.outbox.append(length + struct.pack("<I", zlib.crc32(length + payload)) + payload)

    def flush(self):
        """All that one round of the loop had to say goes in one write."""
        if self.outbox and not self.writer.is_closing():
            self.writer.write(b"".join(self.outbox))
            self.sent_at = time.monotonic()
        self.outbox = []

    def refuse(self, request, text):
        self.send(request, failure=wire.Failure(code=wire.FAILURE_REQUEST, text=text))

    def fail(self, code, text):
        """Failure, the end: what still comes is dropped until the peer closes or a second has passed."""
        if self.over:
            return
        self.send(0, failure=wire.Failure(code=code, text=f"{self.participant.name}: {text}"))
        self.flush()
        self.leave()
        asyncio.get_running_loop().call_later(FAREWELL_S, self.writer.close)

    def leave(self):
        self.over = True
        if self.session:
            self.participant.end_session(self.session)
        self.participant.clients.left(self)

    async def heartbeats(self):
        while not self.over:
            pause = self.sent_at + HEARTBEAT_S - time.monotonic()
            if pause <= 0 and self.role:
                self.send(0, heartbeat=wire.Heartbeat())
            await asyncio.sleep(pause if pause > 0 else HEARTBEAT_S)

    # -- receiving

    async def run(self):
        beating, received = asyncio.create_task(self.heartbeats()), bytearray()
        try:
            while chunk := await asyncio.wait_for(self.reader.read(1 << 16), SILENCE_S):
                if self.over:
                    continue
                received += chunk
                while not self.over and (frame := self.next_frame(received)):
                    self.take(frame)
                await self.writer.drain()
        except asyncio.TimeoutError:
            log.info("nothing heard for %s s: closed", SILENCE_S)
        except (ConnectionError, OSError):
            pass
        finally:
            self.leave()
            beating.cancel()
            self.writer.close()

    def next_frame(self, received):
        """The first whole frame, which it takes out; None: not there yet, or a failure was sent."""
        if len(received) < 8:
            return None
        length, checksum = struct.unpack_from("<II", received)
        if length > self.receive_max:
            return self.fail(wire.FAILURE_TOO_LARGE, f"a frame of {length} bytes; the limit is {self.receive_max}")
        if len(received) < 8 + length:
            return None
        payload = bytes(received[8:8 + length])
        if zlib.crc32(received[:4] + payload) != checksum:
            return self.fail(wire.FAILURE_CORRUPT, "a frame's checksum is wrong")
        del received[:8 + length]
        try:
            return wire.Frame.FromString(payload)
        except DecodeError:
            return self.fail(wire.FAILURE_CORRUPT, "a payload is not a Frame")

    def take(self, frame):
        kind = frame.WhichOneof("body")
        if not kind:
            return self.fail(wire.FAILURE_UNKNOWN_MESSAGE, "a frame without a message, or with one that is not known")
        message = getattr(frame, kind)
        if not self.role:
            if kind != "hello":
                return self.fail(wire.FAILURE_HANDSHAKE, "Hello must come first")
            return self.hello(message)
        if kind == "heartbeat":
            return
        if kind == "failure" and not frame.request:
            log.info("a peer ends its connection: %s", message.text)
            self.leave()
            return self.writer.close()
        if not self.welcomed or kind == "hello":
            return self.fail(wire.FAILURE_HANDSHAKE, "wait for Welcome, and say Hello once")
        if kind not in INSPECTION | (SESSION_ONLY if self.session else CLIENT_ONLY):
            return self.fail(wire.FAILURE_UNKNOWN_MESSAGE, f"'{kind}' does not belong here")
        if kind == "mark":
            return self.participant.mark(self.session, message)
        if not frame.request:
            return self.fail(wire.FAILURE_REQUEST, f"'{kind}' without a request number cannot be answered")
        self.question(kind, frame.request, message)

    def question(self, kind, request, message):
        participant = self.participant
        if kind == "start":
            participant.start(Verb(self, request), message)
        elif kind in VERBS:
            participant.verb(kind, Verb(self, request), message)
        elif kind in CLIENT_ONLY:
            participant.clients.take(kind, Verb(self, request), message)
        elif kind == "recover":
            asyncio.create_task(participant.recover(self, request, message))
        elif kind == "ask_outcome":
            evidence = participant.evidence(self.session, message)
            if evidence is None:
                return self.refuse(request, "not an xid")
            self.send(request, evidence=wire.Evidence(kind=evidence))
        elif kind == "scan":
            asyncio.create_task(inspection.scan(participant, self, request, message))
        elif kind == "locks":
            self.send(request, locks_answer=inspection.locks_answer(participant, message))
        elif kind == "in_doubt":
            self.send(request, in_doubt_answer=inspection.in_doubt_answer(participant))
        else:
            self.send(request, stats_answer=inspection.stats_answer(participant))

    # -- the handshake

    def hello(self, hello):
        failure = self.refusal_of(hello)
        if failure:
            return self.fail(*failure)
        self.role = hello.role
        self.send_max = max(hello.frame_bytes_max, HANDSHAKE_BYTES_MAX)
        if hello.role == wire.ROLE_COORDINATOR:
            asyncio.create_task(self.welcome_when(self.participant.begin_session(self, hello)))
        else:
            self.welcome()

    def refusal_of(self, hello):
        name = self.participant.name
        if hello.version != VERSION:
            return wire.FAILURE_VERSION, f"version {VERSION} is spoken here, not {hello.version}"
        if hello.expects and hello.expects != name:
            return wire.FAILURE_NOT_HERE, f"this is '{name}', not '{hello.expects}': an address is wrong"
        if hello.heartbeat_ms >= SILENCE_S * 1000:
            return wire.FAILURE_HANDSHAKE, f"a heartbeat_ms of {hello.heartbeat_ms} is too long"
        if hello.role == wire.ROLE_CLIENT:
            wrong = hello.client and not hello.connection
            return (wire.FAILURE_HANDSHAKE, "a client needs a connection counter") if wrong else None
        if hello.role != wire.ROLE_COORDINATOR:
            return wire.FAILURE_HANDSHAKE, "neither a coordinator nor a client"
        if not (1 <= len(hello.node.encode()) <= 32 and hello.log_id and hello.epoch and hello.session):
            return wire.FAILURE_HANDSHAKE, "node of 1 to 32 bytes, log_id, epoch and session above 0"
        return self.participant.refusal_of(hello)

    async def welcome_when(self, ready):
        unready = await ready
        if unready and not self.over:
            return self.fail(wire.FAILURE_BUSY, unready)
        if not self.over:  # it was fenced meanwhile
            log.info("session %d of node '%s', epoch %d", self.session.counter, self.session.node.decode(),
                     self.session.epoch)
            self.welcome()

    def welcome(self):
        self.welcomed, self.receive_max = True, FRAME_BYTES_MAX
        self.send(0, welcome=wire.Welcome(
            version=VERSION, role=wire.ROLE_RESOURCE_MANAGER, name=self.participant.name,
            incarnation=self.participant.incarnation, store_id=self.participant.store_id,
            heartbeat_ms=int(HEARTBEAT_S * 1000), frame_bytes_max=FRAME_BYTES_MAX))
