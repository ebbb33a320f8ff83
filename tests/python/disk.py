"""What is durable (docs/protocol.md, "What a resource manager keeps"), in SQLite."""
import asyncio
import logging
import os
import secrets
import sqlite3
from collections import deque
from concurrent.futures import ThreadPoolExecutor

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

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()

    def write(self, *statements):
        """One local transaction, in the order of the calls. The future is done when it is durable."""
        future = asyncio.get_running_loop().create_future()
        self.queue.append((statements, future))
        if not self.writing:
            self.writing = asyncio.create_task(self._write_groups())
        return future

    async def close(self):
        await self.write()
        self.connection.close()

    async def _write_groups(self):
        while self.queue:
            group, self.queue = self.queue, deque()
            await asyncio.get_running_loop().run_in_executor(self.thread, self._write_group, group)
            for _, future in group:
                if not future.done():
                    future.set_result(None)
        self.writing = None

    def _write_group(self, group):
        try:
            self.connection.execute("BEGIN")
            for statements, _ in group:
                for sql, arguments in statements:
                    self.connection.execute(sql, arguments)
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Whether it is written is not known: the next start finds out (§ checklist, 9).
            log.critical("cannot write, ends: %s. Make room or mend the disk, and start again", error)
            os._exit(1)


def data_statements(writes):
    return [("DELETE FROM data WHERE key = ?", [key]) if value is None
            else ("INSERT OR REPLACE INTO data VALUES (?, ?)", [key, value]) for key, value in writes.items()]
