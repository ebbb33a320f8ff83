"""What is durable (docs/protocol.md, "What a resource manager keeps"), in SQLite."""
import asyncio
import logging
import os
import secrets
import sqlite3
from collections import deque
from concurrent.futures import ThreadPoolExecutor

FULL_RETRY_S, LAST_TRIES = 0.2, 5
SQLITE_FULL = 13

log = logging.getLogger("participant")


class Disk:
    TABLES = """
        CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT);
        CREATE TABLE IF NOT EXISTS data(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS prepared(xid TEXT PRIMARY KEY, voted REAL, locks TEXT, writes TEXT);
        CREATE TABLE IF NOT EXISTS outcomes(xid TEXT PRIMARY KEY);
        CREATE TABLE IF NOT EXISTS nodes(name BLOB PRIMARY KEY, what TEXT);
    """

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(directory / "data.sqlite", isolation_level=None, check_same_thread=False,
                                          timeout=0)
        # EXCLUSIVE keeps a second process out; FULL syncs at every commit.
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.executescript(self.TABLES)
        self.connection.execute("INSERT OR IGNORE INTO meta VALUES ('store_id', ?)", [str(secrets.randbits(63) + 1)])
        self.thread = ThreadPoolExecutor(1)
        self.queue, self.writing = deque(), None
        self.room = True
        self.tries_left = None  # while it ends

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()

    def write(self, *statements, refusable=False):
        """One local transaction, in the order of the calls. The future is true when it is durable; one that is
        refusable and finds no room is false, and certainly not written. Others wait until there is room."""
        future = asyncio.get_running_loop().create_future()
        self.queue.append((statements, future, refusable))
        if not self.writing:
            self.writing = asyncio.create_task(self._write_groups())
        return future

    async def close(self):
        """What was asked for is written; what ends decided branches and finds no room stays undone."""
        self.tries_left = LAST_TRIES
        await self.write(refusable=True)
        if self.writing:
            await self.writing
        self.connection.close()

    async def _write_groups(self):
        while self.queue and self.tries_left != 0:
            group, self.queue = self.queue, deque()
            written = await asyncio.get_running_loop().run_in_executor(self.thread, self._write_group, group)
            for _, future, refusable in group:
                if not future.done() and (written or refusable):
                    future.set_result(written)
            must = [] if written else [one for one in group if not one[2]]
            if any(statements for statements, _, _ in group):
                self.tell_room(written)
            if must:  # before anything that is asked for from now on
                self.queue.extendleft(reversed(must))
                self.tries_left = self.tries_left and self.tries_left - 1
                await asyncio.sleep(FULL_RETRY_S)
        if self.queue:
            log.warning("no room to end some decided branches: they stay in doubt, and end after the next start")
        self.writing = None

    def tell_room(self, room):
        if room != self.room:
            self.room = room
            log.warning("there is room again" if room else
                        "no room on the disk: what writes is refused until there is some, what is decided waits for it")

    def _write_group(self, group):
        """False: there was no room, and nothing of it is written."""
        try:
            self.connection.execute("BEGIN")
            for statements, _, _ in group:
                for sql, arguments in statements:
                    self.connection.execute(sql, arguments)
            self.connection.execute("COMMIT")
            return True
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == SQLITE_FULL:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                return False
            # Whether it is written is not known: the next start finds out (§ checklist, 9).
            log.critical("cannot write, ends: %s. Make room or mend the disk, and start again", error)
            os._exit(1)


def data_statements(writes):
    return [("DELETE FROM data WHERE key = ?", [key]) if value is None
            else ("INSERT OR REPLACE INTO data VALUES (?, ?)", [key, value]) for key, value in writes.items()]
