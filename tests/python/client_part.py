"""Join, Execute and End: the clients' part in interactive branches (docs/protocol.md)."""
import asyncio

import wire_pb2 as wire
from model import ACTIVE, DOOMED
from work import NotUnderstood, locks_of, take_apart
from xa import XA_OK, XA_RBINTEGRITY, XA_RBROLLBACK, XA_RETRY, XAER_INVAL, XAER_NOTA, XAER_PROTO, Xid, is_xid

JOINED, SUSPENDED = "joined", "suspended"


class ClientPart:
    def __init__(self, participant):
        self.participant = participant
        self.tails = {}  # the newest verb on each branch, and of each thread

    def take(self, kind, verb, m):
        """They run one after the other, for each branch and for each thread, in the order of arrival."""
        tails = [("branch", m.xid.gtrid, m.xid.bqual), ("thread", verb.connection, m.thread)]
        before = [self.tails[tail] for tail in tails if tail in self.tails]
        task = asyncio.create_task(self.run(kind, verb, m, before))
        for tail in tails:
            self.tails[tail] = task

        def forget_tails(_):
            for tail in tails:
                if self.tails.get(tail) is task:
                    del self.tails[tail]

        task.add_done_callback(forget_tails)

    async def run(self, kind, verb, m, before):
        if before:
            await asyncio.wait(before)
        if verb.connection.over:
            return
        if not is_xid(m.xid) or kind == "end" and m.flag not in (wire.End.SUCCESS, wire.End.FAIL, wire.End.SUSPEND):
            return verb.answer(XAER_INVAL, "not an xid, or a flag that is not known")
        try:
            branch = self.participant.branches.get(Xid(m.xid).key())
        except ValueError:
            branch = None
        if not branch:
            return verb.answer(XAER_NOTA, "no such branch here")
        if self.participant.busy(branch):
            return verb.answer(XA_RETRY, "an older session's verb still runs on it")
        if not branch.interactive or branch.state not in (ACTIVE, DOOMED):
            return verb.answer(XAER_PROTO, "it is submitted work, or has voted")
        thread = (verb.connection, m.thread)
        part = branch.threads.get(thread)
        if kind == "join":
            elsewhere = any(other.threads.get(thread) == JOINED for other in self.participant.branches.values())
            if elsewhere or (part != SUSPENDED if m.resume else part):
                return verb.answer(XAER_PROTO, "this thread may not join it now")
            if branch.state == ACTIVE:
                branch.threads[thread] = JOINED
        elif kind == "end":
            if not part or m.flag == wire.End.SUSPEND and part == SUSPENDED:
                return verb.answer(XAER_PROTO, "this thread has not joined it")
            if m.flag == wire.End.SUSPEND and branch.state == ACTIVE:
                branch.threads[thread] = SUSPENDED
            else:
                del branch.threads[thread]
            if m.flag == wire.End.FAIL and branch.state == ACTIVE:
                self.participant.doom(branch, XA_RBROLLBACK)
                return verb.answer(XA_OK)
        elif part != JOINED:
            return verb.answer(XAER_PROTO, "this thread has not joined it")
        if branch.state == DOOMED:
            return verb.answer(branch.no[0], "it can only be rolled back")
        if kind != "execute":
            return verb.answer(XA_OK)
        await self.execute(verb, branch, m)

    async def execute(self, verb, branch, m):
        try:
            operations = take_apart(m.work)
            modes = locks_of(operations)
        except NotUnderstood as error:
            self.participant.doom(branch, XA_RBINTEGRITY, [error.refusal])
            return verb.answer(XA_RBINTEGRITY, refusals=[error.refusal])
        got = asyncio.get_running_loop().create_future()
        verb.connection.executes.add(branch)
        self.participant.take_locks(branch, modes, lambda code: got.done() or got.set_result(code))
        code = await got
        verb.connection.executes.discard(branch)
        if code is None:  # its connection has ended
            return
        refusals, results = [], b""
        if self.participant.branches.get(branch.xid.key()) is not branch:
            return verb.answer(code or XA_RBROLLBACK)
        if branch.state == ACTIVE and code == XA_OK:
            results, refusals = self.participant.work(branch, operations, verb)
            code = XA_RBINTEGRITY if refusals else XA_OK
        if branch.state == ACTIVE and code != XA_OK:
            self.participant.doom(branch, code, refusals)
            if not refusals:  # a deadlock or a time-out: nothing that it saw is committed, so nothing is kept
                self.participant.locks.release(branch)
        verb.answer(code, results=results if code == XA_OK else b"", refusals=refusals)

    def left(self, connection):
        for branch in list(connection.executes):
            wanted = self.participant.locks.waiting.get(branch)
            if wanted:
                self.participant.stop_waiting(wanted, None)
        for branch in self.participant.branches.values():
            for thread in [thread for thread in branch.threads if thread[0] is connection]:
                del branch.threads[thread]
