"""The lock table: shared and exclusive, first come first served (docs/rules.md, 12)."""
import asyncio
import time
from collections import deque

from xa import XA_OK


class Wanted:
    """Locks that one branch asked for at once; done(code) is called when it has all of them, or none comes."""

    def __init__(self, branch, modes, done):
        self.branch, self.modes, self.done = branch, modes, done
        self.missing = set(modes)
        self.since = time.monotonic()
        self.timer = None


class LockTable:
    """First come, first served; only the upgrade of a lock that its branch holds goes first."""

    def __init__(self):
        self.holders = {}  # key: {branch: (exclusive, since)}
        self.queues = {}   # key: [Wanted]
        self.waiting = {}  # branch: Wanted; what a branch asks for comes one after the other

    def ask(self, wanted):
        """True: it has them all, at once."""
        for key in list(wanted.missing):
            held = self.holders.get(key, {}).get(wanted.branch)
            if held and (held[0] or not wanted.modes[key]):
                wanted.missing.discard(key)
                continue
            queue = self.queues.setdefault(key, [])
            queue.insert(0 if held else len(queue), wanted)
            self._grant(key)
        if wanted.missing:
            self.waiting[wanted.branch] = wanted
        return not wanted.missing

    def conflicts(self, wanted, key):
        """The branches that `wanted` waits for at `key`."""
        exclusive = wanted.modes[key]
        found = [branch for branch, (held, _) in self.holders.get(key, {}).items()
                 if branch is not wanted.branch and (exclusive or held)]
        for other in self.queues.get(key, []):
            if other is wanted:
                break
            if exclusive or other.modes[key]:
                found.append(other.branch)
        return found

    def right_before(self, wanted, key):
        """Those of conflicts() who stand nearest before it: the others are reached through them."""
        queue = self.queues[key]
        earlier = queue[:queue.index(wanted)]
        writers = [place for place, other in enumerate(earlier) if other.modes[key]]
        if wanted.modes[key] and earlier and not earlier[-1].modes[key]:
            return [other.branch for other in earlier[writers[-1] + 1 if writers else 0:]]
        return [earlier[writers[-1]].branch] if writers else self.conflicts(wanted, key)

    def circle(self, wanted):
        """Those in a circle of waits through `wanted`; none: []. Branches of one gtrid count as one,
        since none ends without the others."""
        by_gtrid = {}
        for waiter in self.waiting.values():
            by_gtrid.setdefault(waiter.branch.xid.gtrid, []).append(waiter)
        came_from, todo = {wanted: None}, deque([wanted])
        while todo:
            waiter = todo.popleft()
            for key in sorted(waiter.missing):
                for branch in self.right_before(waiter, key):
                    if branch.xid.gtrid == wanted.branch.xid.gtrid:
                        if branch is not wanted.branch:  # a sibling: nobody else can make way
                            return [wanted]
                        path = [waiter]
                        while came_from[path[-1]]:
                            path.append(came_from[path[-1]])
                        return path
                    for other in by_gtrid.get(branch.xid.gtrid, []):
                        if other not in came_from:
                            came_from[other] = waiter
                            todo.append(other)
        return []

    def cancel(self, wanted):
        """Out of all queues; what it was given already stays."""
        self.waiting.pop(wanted.branch, None)
        for key in list(wanted.missing):
            self.queues[key].remove(wanted)
            self._grant(key)

    def release(self, branch):
        for key in branch.locks:
            self.holders[key].pop(branch, None)
            self._grant(key)
        branch.locks = {}

    def hold(self, branch, key, exclusive):
        branch.locks[key] = exclusive
        self.holders.setdefault(key, {})[branch] = (exclusive, time.monotonic())

    def _grant(self, key):
        queue = self.queues.get(key, [])
        while queue and not self.conflicts(queue[0], key):
            wanted = queue.pop(0)
            self.hold(wanted.branch, key, wanted.modes[key])
            wanted.missing.discard(key)
            if not wanted.missing and self.waiting.pop(wanted.branch, None):
                if wanted.timer:
                    wanted.timer.cancel()
                asyncio.get_running_loop().call_soon(wanted.done, XA_OK)
        if not queue:
            self.queues.pop(key, None)
        if not self.holders.get(key, True):
            self.holders.pop(key)
