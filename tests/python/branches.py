"""Branches and sessions: the verbs of a coordinator (docs/protocol.md, "Sessions" and "Verbs").

All of it runs on asyncio's one thread, and a step never waits in its middle; only Disk has a thread,
which writes what has gathered while it wrote the last group. So the order of the steps is the order of
the records, and the locks of a record may go as soon as it is queued (rule 13).
"""
import asyncio
import json
import logging
import os
import random
import secrets
import signal
import time
from collections import deque

import wire_pb2 as wire
from client_part import ClientPart
from disk import data_statements
from locks import LockTable, Wanted
from model import (ACTIVE, COMMITTING, DOOMED, PREPARED, PREPARING, READ_ONLY, WAITING, Branch, Node, Session)
from work import NotUnderstood, do_work, locks_of, take_apart, value_message
from xa import (XA_HEURCOM, XA_OK, XA_RBDEADLOCK, XA_RBINTEGRITY, XA_RBROLLBACK, XA_RBTIMEOUT, XA_RBTRANSIENT,
                XA_RBOTHER, XA_RDONLY, XA_RETRY, XAER_DUPID, XAER_INVAL, XAER_NOTA, XAER_PROTO, Xid, is_xid)

FENCE_S, LOCK_TIMEOUT_S, WAITS_S = 2.0, 10.0, 0.02
BRANCHES_MAX, EARLIER_MAX = 100_000, 1_000
NO_ROOM = "the disk has no room: make some"
CRASH_POINTS = "before-vote", "after-vote", "before-commit", "after-commit"

log = logging.getLogger("participant")


class Participant:
    def __init__(self, name, disk, crash_at):
        self.name, self.disk = name, disk
        self.crash_point, _, count = (crash_at or "").partition("#")
        self.crash_after = int(count or 1)
        self.incarnation = secrets.randbits(63) + 1
        self.locks = LockTable()
        self.branches, self.sessions = {}, {}
        self.newest_rollback = None  # of a prepared branch: its future
        self.clients = ClientPart(self)
        self.counts = dict.fromkeys(("started", "committed", "rolled_back", "read_only", "refused"), 0)
        self.store_id = int(disk.rows("SELECT value FROM meta WHERE name = 'store_id'")[0][0])
        self.data = dict(disk.rows("SELECT key, value FROM data"))
        outcomes = [Xid.parse(text) for (text,) in disk.rows("SELECT xid FROM outcomes")]
        self.outcomes = {xid.key(): xid for xid in outcomes}
        self.nodes = {name: Node(*json.loads(what)) for name, what in disk.rows("SELECT name, what FROM nodes")}
        for text, voted, locks, writes in disk.rows("SELECT xid, voted, locks, writes FROM prepared"):
            branch = Branch(Xid.parse(text), None)
            branch.state, branch.voted, branch.writes = PREPARED, voted, json.loads(writes)
            for key, exclusive in json.loads(locks).items():
                self.locks.hold(branch, key, exclusive)
            self.branches[branch.xid.key()] = branch

    def crash(self, point):
        if point == self.crash_point:
            self.crash_after -= 1
            if self.crash_after == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    # -- sessions

    def refusal_of(self, hello):
        """Why a coordinator's Hello is refused: (failure code, text), or None."""
        node = self.nodes.get(hello.node.encode())
        if not node:
            return None
        if node.log_id != hello.log_id:
            return None if hello.rebuild or node.log_id in hello.former_logs else (wire.FAILURE_WRONG_LOG, (
                f"node '{hello.node}' is known here with another log, {node.log_id:016x}: "
                "an address or a log is wrong; if the log is new on purpose, start it with --rebuild"))
        if hello.epoch == node.epoch and hello.nonce == node.nonce:
            newer = hello.session > node.newest_session
            return None if newer else (wire.FAILURE_STALE, f"session {node.newest_session} is known here")
        ago = hello.epoch - node.epoch  # earlier[0] is of one epoch ago
        if 1 <= ago <= len(hello.earlier):
            recorded = hello.earlier[ago - 1] == node.nonce
        else:
            recorded = ago > len(hello.earlier) >= EARLIER_MAX  # too long ago to tell
        return None if recorded else (wire.FAILURE_OUTDATED, (
            f"epoch {node.epoch} has been here, and the log of node '{hello.node}' did not record it: it is an older "
            "copy, or another one runs"))

    def begin_session(self, connection, hello):
        """Fences the older session at once. What is awaited then must end before Welcome: a new log or epoch
        is durable, and what an older session's verbs still write is written, or FENCE_S have passed. Tells why
        the session cannot begin yet, or None."""
        name, session = hello.node.encode(), Session(connection, hello)
        old = self.sessions.get(name)
        self.sessions[name] = connection.session = session
        if old:
            old.connection.fail(wire.FAILURE_STALE, f"session {hello.session} has begun")  # and ends it
        node = self.nodes.get(name)
        if not node or (node.log_id, node.epoch) != (hello.log_id, hello.epoch):
            node = self.nodes[name] = (node or Node(hello.log_id, 0, 0)).after(hello)
            node.durable = self.disk.write(node.statement(name))
        node.newest_session = hello.session
        running = [branch.running for branch in self.branches.values() if branch.xid.node == name and branch.running]

        async def ready():
            if node.durable:  # perhaps not yet, if an earlier Hello brought it
                await asyncio.wait([node.durable], timeout=FENCE_S)
                if not node.durable.done():
                    why = "the write takes long" if self.disk.room else NO_ROOM
                    return f"epoch {node.epoch} has to be recorded before its session begins, and {why}"
            if running:
                await asyncio.wait(running, timeout=FENCE_S)
            return None

        return ready()

    def end_session(self, session):
        if session.ended:
            return
        session.ended = True
        if self.sessions.get(session.node) is session:
            del self.sessions[session.node]
        for branch in list(self.branches.values()):
            if branch.runner is session:  # its write goes on; what waits for it does not
                branch.rollbacks, branch.commits = [], []
            elif branch.session is session and branch.state in (WAITING, ACTIVE, DOOMED, READ_ONLY):
                self.roll_back(branch)

    def busy(self, branch):
        return branch.running and (not branch.runner or branch.runner.ended)

    # -- the ways in which a branch ends

    def drop(self, branch):
        """It is gone, its locks too."""
        if branch.deadline:
            branch.deadline.cancel()
        self.branches.pop(branch.xid.key(), None)
        self.locks.release(branch)

    def roll_back(self, branch, code=XA_RBROLLBACK):
        """One whose verb is not running: what waits for locks is answered `code`."""
        self.branches.pop(branch.xid.key(), None)
        if branch in self.locks.waiting:
            self.stop_waiting(self.locks.waiting[branch], code)
        self.drop(branch)
        self.counts["rolled_back"] += 1

    def apply(self, branch):
        for key, value in branch.writes.items():
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value

    def commit_writes(self, branch, *statements, refusable=False):
        """Queues the writes with the outcome row."""
        outcome = "INSERT OR REPLACE INTO outcomes VALUES (?)", [branch.xid.text()]
        return self.disk.write(*statements, *data_statements(branch.writes), outcome, refusable=refusable)

    # -- Start

    def start(self, verb, m):
        session = verb.session
        try:
            xid = Xid(m.xid)
        except ValueError as error:
            return verb.answer(XAER_INVAL, str(error))
        if (xid.node, xid.log_id, xid.epoch, xid.nonce) != (session.node, session.log_id, session.epoch, session.nonce):
            return verb.answer(XAER_INVAL, "not an xid of this session's node, log, epoch and nonce")
        if xid.txn < self.nodes[session.node].low_water:
            return verb.answer(XA_RBROLLBACK, "below the low-water mark")
        if xid.key() in self.branches:
            return verb.answer(XAER_DUPID, "this branch is here already")
        if len(self.branches) >= BRANCHES_MAX:
            return verb.answer(XA_RBTRANSIENT, f"{BRANCHES_MAX} branches are here already")
        if not m.remaining_ms:
            return verb.answer(XA_RBTIMEOUT, "no time is left")
        if m.then not in (wire.THEN_NOTHING, wire.THEN_PREPARE, wire.THEN_COMMIT_ONE_PHASE):
            return verb.answer(XAER_INVAL, f"then = {m.then}")
        if m.interactive and (m.work or m.then != wire.THEN_NOTHING):
            return verb.answer(XAER_INVAL, "an interactive branch has no work of its own and does not vote yet")
        try:
            operations = take_apart(m.work)
            modes = locks_of(operations)
        except NotUnderstood as error:  # it has no locks to keep, so there is no need for a branch
            return verb.answer(XA_RBINTEGRITY, refusals=[error.refusal])
        self.counts["started"] += 1
        branch = self.branches[xid.key()] = Branch(xid, session, m.interactive, m.age_ms)
        branch.deadline = asyncio.get_running_loop().call_later(m.remaining_ms / 1000, self.expire, branch)
        if m.interactive:
            branch.state = ACTIVE
            return verb.answer(XA_OK)
        self.take_locks(branch, modes, lambda code: self.started(verb, m, branch, operations, code))

    def take_locks(self, branch, modes, done):
        """done(code): XA_OK with all of them, or why not."""
        wanted = Wanted(branch, modes, done)
        if self.locks.ask(wanted):
            return done(XA_OK)
        while branch in self.locks.waiting and (circle := self.locks.circle(wanted)):
            victim = max(circle, key=lambda one: (one.branch.born, one is wanted))
            self.stop_waiting(victim, XA_RBDEADLOCK)
            self.locks.release(victim.branch)
        if branch in self.locks.waiting:
            wanted.timer = asyncio.get_running_loop().call_later(
                LOCK_TIMEOUT_S * random.uniform(1, 1.25), lambda: self.stop_waiting(wanted, XA_RBTIMEOUT))

    def stop_waiting(self, wanted, code):
        if self.locks.waiting.get(wanted.branch) is wanted:
            self.locks.cancel(wanted)
            wanted.done(code)
        if wanted.timer:
            wanted.timer.cancel()

    def started(self, verb, m, branch, operations, code):
        if self.branches.get(branch.xid.key()) is not branch:  # rolled back while it waited
            return verb.answer(XA_RBROLLBACK if code == XA_OK else code)
        if code != XA_OK:
            self.drop(branch)
            return verb.answer(code)
        results, refusals = self.work(branch, operations, verb)
        branch.state = ACTIVE
        if refusals:
            self.counts["refused"] += 1
            self.doom(branch, XA_RBINTEGRITY, refusals)
            if m.then == wire.THEN_COMMIT_ONE_PHASE:
                self.drop(branch)
            return verb.answer(XA_RBINTEGRITY, refusals=refusals)
        if m.then == wire.THEN_NOTHING:
            verb.answer(XA_OK, results=results)
        elif m.then == wire.THEN_PREPARE:
            self.vote(verb, branch, m.read_only_vote, results)
        else:
            self.commit_one_phase(verb, branch, results)

    def work(self, branch, operations, verb):
        """Does it and counts it: encoded results, refusals."""
        writes = dict(branch.writes)
        results, refusals = do_work(operations, self.data, writes)
        encoded = wire.Results(values=map(value_message, results)).SerializeToString()
        if not refusals and len(encoded) > verb.connection.send_max // 2:
            refusals = [wire.Refusal(check="invalid", value=f"{len(encoded)} bytes of results are too many")]
        while sum(refusal.ByteSize() + 8 for refusal in refusals) > verb.connection.send_max // 2:
            refusals = refusals[:len(refusals) // 2]
        if not refusals:
            branch.writes = writes
            branch.work_items += 1
        return encoded, refusals

    def doom(self, branch, code, refusals=()):
        """From now on it can only be rolled back, by its coordinator; until then it keeps its locks."""
        branch.state, branch.no, branch.writes = DOOMED, (code, refusals), {}
        branch.deadline.cancel()

    def expire(self, branch):
        if branch.state in (WAITING, ACTIVE):
            self.roll_back(branch, XA_RBTIMEOUT)

    # -- Prepare and Commit

    def vote(self, verb, branch, read_only_vote, results=b""):
        branch.deadline.cancel()
        if read_only_vote and not branch.writes:
            branch.state = READ_ONLY
            self.counts["read_only"] += 1
            return verb.answer(XA_RDONLY, results=results)
        self.crash("before-vote")
        branch.state, branch.voted, branch.runner = PREPARING, time.time(), verb.session
        record = [branch.xid.text(), branch.voted, json.dumps(branch.locks), json.dumps(branch.writes)]
        branch.running = self.disk.write(("INSERT INTO prepared VALUES (?, ?, ?, ?)", record), refusable=True)
        branch.running.add_done_callback(lambda done: self.voted(verb, branch, done.result(), results))

    def refused(self, branch, verbs):
        """For want of room: it is gone, and a later attempt may succeed."""
        branch.running, branch.runner = None, None
        self.roll_back(branch)
        for verb in verbs:
            verb.answer(XA_RBOTHER, NO_ROOM, no_room=True)

    def voted(self, verb, branch, durable, results):
        if not durable:
            self.refused(branch, [verb])
            for waiting in branch.rollbacks:
                waiting.answer(XA_OK)
            return
        self.crash("after-vote")
        branch.state, branch.running, branch.runner = PREPARED, None, None
        if not branch.rollbacks:
            return verb.answer(XA_OK, results=results)
        verb.answer(XA_RBROLLBACK)
        self.roll_back_prepared(branch.rollbacks[0], branch)
        for again in branch.rollbacks[1:]:
            again.answer(XA_OK)

    def may_commit(self, verb, branch, m):
        """What Prepare and a one-phase Commit ask first. False: it is answered."""
        if branch.threads:
            verb.answer(XAER_PROTO, "a client's thread has not ended its part")
        elif m.incarnation != self.incarnation or m.work_items != branch.work_items:
            self.roll_back(branch)
            verb.answer(XA_RBROLLBACK, "work was lost: try again")
        else:
            return True
        return False

    def prepare(self, verb, branch, m):
        if branch.state == DOOMED:
            code, refusals = branch.no
            verb.answer(code, "it can only be rolled back", refusals=refusals)
        elif branch.state != ACTIVE:
            verb.answer(XAER_PROTO, f"it is {branch.state}")
        elif self.may_commit(verb, branch, m):
            self.vote(verb, branch, m.read_only_vote)

    def commit(self, verb, branch, m):
        if branch.state == PREPARED and not m.one_phase:
            self.crash("before-commit")
            gone = "DELETE FROM prepared WHERE xid = ?", [branch.xid.text()]
            self.finish_commit(verb, branch, self.commit_writes(branch, gone))
            self.apply(branch)
            self.locks.release(branch)  # who takes them is queued behind (rule 13)
        elif branch.state == COMMITTING:
            branch.commits.append(verb)
        elif branch.state == DOOMED and m.one_phase:
            code, refusals = branch.no
            self.roll_back(branch)
            verb.answer(code, "it could only be rolled back", refusals=refusals)
        elif branch.state == ACTIVE and m.one_phase:
            if self.may_commit(verb, branch, m):
                self.commit_one_phase(verb, branch)
        else:
            verb.answer(XAER_PROTO, f"it is {branch.state}")

    def commit_one_phase(self, verb, branch, results=b""):
        branch.deadline.cancel()
        if not branch.writes:
            self.drop(branch)
            return verb.answer(XA_OK, results=results)
        self.crash("before-commit")
        branch.one_phase = True
        self.finish_commit(verb, branch, self.commit_writes(branch, refusable=True), results)

    def finish_commit(self, verb, branch, durable, results=b""):
        branch.state, branch.runner, branch.running = COMMITTING, verb.session, durable
        branch.commits.append(verb)

        def done(written):
            if not written.result():
                return self.refused(branch, branch.commits)
            if branch.one_phase:  # it might have been refused, so nobody sees it sooner (rule 13)
                self.apply(branch)
            self.crash("after-commit")
            self.outcomes[branch.xid.key()] = branch.xid
            branch.running = None
            self.counts["committed"] += 1
            self.drop(branch)
            for waiting in branch.commits:
                waiting.answer(XA_OK, results=results)

        durable.add_done_callback(done)

    # -- Rollback, Release, Forget

    def rollback(self, verb, branch, _):
        if branch.state == COMMITTING:
            log.error("ALARM: Rollback of %s, which is being committed", branch.xid.text())
            verb.answer(XAER_PROTO, "it is being committed")
        elif branch.state == PREPARING:
            branch.rollbacks.append(verb)
        elif branch.state == PREPARED:
            self.roll_back_prepared(verb, branch)
        else:
            self.roll_back(branch)
            verb.answer(XA_OK)

    def roll_back_prepared(self, verb, branch):
        self.newest_rollback = self.disk.write(("DELETE FROM prepared WHERE xid = ?", [branch.xid.text()]))
        self.roll_back(branch)
        verb.answer(XA_OK)

    def release(self, verb, branch, _):
        if branch.state != READ_ONLY:
            return verb.answer(XAER_PROTO, f"it is {branch.state}")
        self.drop(branch)
        verb.answer(XA_OK)

    def forget(self, verb, branch, _):
        verb.answer(XAER_NOTA, "no branch ends heuristically here")

    def mark_for(self, session, xid):
        """The low-water mark of the xid's log; None: it is not the session's own."""
        return self.nodes[session.node].mark_of(xid.log_id) if xid.node == session.node else None

    def verb(self, kind, verb, m):
        """Prepare, Commit, Rollback, Release, Forget: what they have in common."""
        try:
            xid = Xid(m.xid)
        except ValueError as error:
            return verb.answer(XAER_INVAL, str(error))
        mark = self.mark_for(verb.session, xid)
        if mark is None:
            return verb.answer(XAER_NOTA, "a branch of another node or log")
        branch = self.branches.get(xid.key())
        if not branch:
            ended = xid.txn < mark
            if ended and (kind == "rollback" or kind == "commit" and not m.one_phase):
                return verb.answer(XA_OK, "ended")
            if kind == "rollback" and xid.key() in self.outcomes:
                return verb.answer(XA_HEURCOM, "it has committed here")
            return verb.answer(XAER_NOTA, "no such branch here")
        if self.busy(branch):
            return verb.answer(XA_RETRY, "an older session's verb still runs on it")
        getattr(self, kind)(verb, branch, m)

    # -- Recover, AskOutcome, Mark, Waits

    async def recover(self, connection, request, m):
        session = connection.session
        if m.start:
            if self.newest_rollback:  # a crash might bring back what this scan does not list
                await asyncio.wait([self.newest_rollback])
            branches = [branch for branch in self.branches.values() if branch.xid.node == session.node
                        and (branch.state == PREPARED or self.busy(branch))]
            session.scan = deque(sorted(branches, key=lambda branch: branch.xid.key()))
        if session.scan is None:
            return connection.refuse(request, "no scan is open")
        answer, size = wire.RecoverAnswer(), 0
        while session.scan and len(answer.branches) < max(1, m.batch) and size < connection.send_max // 2:
            branch = session.scan.popleft()
            if self.branches.get(branch.xid.key()) is branch:
                answer.branches.add(xid=branch.xid.message(), busy=bool(self.busy(branch)), age_ms=branch.age_ms())
                size += answer.branches[-1].ByteSize() + 8
        answer.end = not session.scan
        if answer.end or m.close:
            session.scan = None
        connection.send(request, recover_answer=answer)

    def evidence(self, session, m):
        """None: it is no xid at all."""
        if not is_xid(m.xid):
            return None
        try:
            xid = Xid(m.xid)
        except ValueError:
            return wire.Evidence.IMPOSSIBLE
        mark = self.mark_for(session, xid)
        if mark is None:
            return wire.Evidence.IMPOSSIBLE
        branch = self.branches.get(xid.key())
        if branch:
            return wire.Evidence.PREPARED if branch.state == PREPARED else wire.Evidence.BUSY
        if xid.txn < mark or m.store_id not in (0, self.store_id):
            return wire.Evidence.IMPOSSIBLE
        return wire.Evidence.COMMITTED if xid.key() in self.outcomes else wire.Evidence.NONE

    def mark(self, session, m):
        node, low_water = self.nodes[session.node], (m.low_water.epoch, m.low_water.sequence)
        if low_water <= node.low_water or low_water[0] > session.epoch:
            return
        node.low_water = low_water
        gone = [xid for xid in self.outcomes.values()
                if (xid.node, xid.log_id) == (session.node, session.log_id) and xid.txn < low_water]
        for xid in gone:
            del self.outcomes[xid.key()]
        self.disk.write(node.statement(session.node),
                        *[("DELETE FROM outcomes WHERE xid = ?", [xid.text()]) for xid in gone])

    async def tell_waits(self):
        """Sends each coordinator the waits of its branches, when they have changed."""
        while True:
            await asyncio.sleep(WAITS_S)
            since = time.monotonic() - WAITS_S
            waits = {(wanted.branch, holder) for wanted in self.locks.waiting.values() if wanted.since <= since
                     for key in wanted.missing for holder in self.locks.right_before(wanted, key)}
            for session in self.sessions.values():
                own = {(waiter, holder) for waiter, holder in waits
                       if waiter.xid.node == session.node == holder.xid.node}
                if own != session.waits and session.connection.welcomed:
                    session.waits = own
                    session.connection.send(0, waits=wire.Waits(waits=[
                        wire.Waits.Wait(waiter=waiter.xid.message(), holder=holder.xid.message())
                        for waiter, holder in own]))
