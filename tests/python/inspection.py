"""What people and tools ask for (docs/protocol.md, "Inspection")."""
import time

import wire_pb2 as wire
from model import PREPARED
from work import value_message

SCAN_BYTES_MAX, LOCKS_SHOWN = 8 << 20, 1_000


async def scan(participant, connection, request, m):
    keys = sorted((key for key in participant.data if key.startswith(m.prefix)), key=str.encode)
    limit = min(m.bytes_max or SCAN_BYTES_MAX, SCAN_BYTES_MAX, connection.send_max - 1024)
    answer, size = wire.ScanAnswer(), 0
    for key in keys:
        entry = wire.KeyValue(key=key, value=value_message(participant.data[key]))
        size += entry.ByteSize() + 8
        if size > limit:
            answer.truncated = True
            break
        answer.entries.append(entry)
    answer.prepared = sum(branch.state == PREPARED for branch in participant.branches.values())
    if not await participant.disk.write(refusable=True):  # what it shows is durable when it is told
        return connection.refuse(request, "a commit waits for room on the disk: make room first")
    connection.send(request, scan_answer=answer)


def locks_answer(participant, m):
    def holder(branch, exclusive, since):
        return wire.LockHolder(xid=branch.xid.message(), exclusive=exclusive, prepared=branch.state == PREPARED,
                               age_ms=int((time.monotonic() - since) * 1000))

    keys = sorted(participant.locks.holders, key=str.encode)
    limit = m.entries_max or LOCKS_SHOWN
    answer = wire.LocksAnswer(truncated=len(keys) > limit)
    for key in keys[:limit]:
        answer.entries.add(key=key, holders=[holder(branch, exclusive, since) for branch, (exclusive, since)
                                             in participant.locks.holders[key].items()],
                           waiters=[holder(wanted.branch, wanted.modes[key], wanted.since)
                                    for wanted in participant.locks.queues.get(key, [])])
    return answer


def in_doubt_answer(participant):
    branches = [branch for branch in participant.branches.values() if branch.state == PREPARED]
    return wire.InDoubtAnswer(branches=[
        wire.InDoubtBranch(xid=branch.xid.message(), node=branch.xid.node.decode(errors="replace"),
                           age_ms=branch.age_ms(), keys=sorted(branch.locks, key=str.encode))
        for branch in sorted(branches, key=lambda branch: branch.xid.key())])


def stats_answer(participant):
    numbers = {**participant.counts, "branches": len(participant.branches), "keys": len(participant.data),
               "outcomes": len(participant.outcomes), "lock_waiters": len(participant.locks.waiting),
               "prepared": sum(branch.state == PREPARED for branch in participant.branches.values())}
    return wire.StatsAnswer(numbers=[wire.StatsAnswer.Number(name=name, value=value)
                                     for name, value in sorted(numbers.items())],
                            texts=[wire.StatsAnswer.Named(name=name, value=value) for name, value in (
                                ("kind", "python"), ("room", "yes" if participant.disk.room else "no"))])
