"""What a participant knows: branches, sessions, nodes."""
import json
import time

import wire_pb2 as wire
from xa import XA_RBROLLBACK

WAITING, ACTIVE, DOOMED, READ_ONLY = "waiting", "active", "rollback-only", "read-only"  # not voted, or nothing durable
PREPARING, PREPARED, COMMITTING = "preparing", "prepared", "committing"


class Branch:
    def __init__(self, xid, session, interactive=False, age_ms=0):
        self.xid, self.session, self.interactive = xid, session, interactive
        self.born = time.monotonic() - age_ms / 1000
        self.state = WAITING
        self.no = (XA_RBROLLBACK, [])  # what dooms it: code, refusals
        self.locks, self.writes, self.work_items = {}, {}, 0
        self.threads = {}      # (connection, thread): JOINED or SUSPENDED
        self.deadline = None
        self.one_phase = False
        self.voted = 0.0       # wall clock
        self.running = None    # the future of its write, while the state is PREPARING or COMMITTING
        self.runner = None     # the session whose verb that is
        self.rollbacks, self.commits = [], []  # verbs that wait for that write

    def age_ms(self):
        return max(0, int((time.time() - self.voted) * 1000))


class Session:
    """Of one coordinator, on one connection (§ Sessions)."""

    def __init__(self, connection, hello):
        self.connection = connection
        self.node = hello.node.encode()
        self.log_id, self.epoch, self.nonce, self.counter = hello.log_id, hello.epoch, hello.nonce, hello.session
        self.ended = False
        self.scan = None     # what an open scan still has to tell
        self.waits = set()   # the waits told last


class Node:
    """What is kept of a coordinator's node. `former`: the logs before a restored one, as {log id: low-water mark}."""

    def __init__(self, log_id, epoch, nonce, low_water=(0, 0), former=()):
        self.log_id, self.epoch, self.nonce, self.low_water = log_id, epoch, nonce, tuple(low_water)
        self.former = {log: tuple(mark) for log, mark in former}
        self.newest_session = 0  # seen by this process
        self.durable = None      # the future of its newest log or epoch

    def mark_of(self, log_id):
        """The low-water mark of its log or a former one; None: not a log of this node."""
        return self.low_water if log_id == self.log_id else self.former.get(log_id)

    def after(self, hello):
        """The same with a newer log or epoch."""
        former = {log: self.mark_of(log) or (0, 0) for log in hello.former_logs}
        low_water = self.low_water if hello.log_id == self.log_id else (0, 0)
        return Node(hello.log_id, hello.epoch, hello.nonce, low_water, former.items())

    def statement(self, name):
        what = json.dumps([self.log_id, self.epoch, self.nonce, self.low_water, list(self.former.items())])
        return "INSERT OR REPLACE INTO nodes VALUES (?, ?)", [name, what]


class Verb:
    """A question of a coordinator or client, answered once."""

    def __init__(self, connection, request):
        self.connection, self.request, self.session = connection, request, connection.session

    def answer(self, code, text="", **fields):
        self.connection.send(self.request, branch_answer=wire.BranchAnswer(code=code, text=text, **fields))
