#!/usr/bin/env python3
"""The Python participant: word by word as docs/protocol.md shows it, and in real clusters with a coordinator
and two stores while processes are killed."""
import argparse
import errno
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = None  # --bin, --wire
PATIENCE_S = 60
ACCOUNTS, BALANCE = 8, 1_000
STORES, PARTICIPANT = ["left", "right"], "snake"


def free_ports(count):
    """Ports outside the range of outgoing connections, so that a restarted server gets its own again."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = []
    while len(ports) < count:
        port = random.randrange(10_000, max(first, 10_001 + count))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


def eventually(condition, what):
    """Waits until `condition()` is true."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.02)


def participant_command(name, address, data):
    return [sys.executable, HERE / "participant.py", "--wire", OPTIONS.wire, "--name", name, "--listen", address,
            "--data", data]


class SmallDisk:
    """A file system of one MiB, for root."""

    def __init__(self, directory):
        self.directory, self.filler = directory, directory / "filler"
        directory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=True)

    def fill(self):
        with open(self.filler, "ab", buffering=0) as filler:
            try:
                while filler.write(b"x" * 4096):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self):
        self.filler.unlink()

    def remove(self):
        subprocess.run(["umount", "--lazy", self.directory], check=True)


class Cluster:
    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="twofold-test-"))
        self.names = STORES + [PARTICIPANT]
        ports = free_ports(len(self.names) + 1)
        self.addresses = dict(zip(["coordinator"] + self.names, (f"127.0.0.1:{port}" for port in ports)))
        self.configuration = self.directory / "twofold.toml"
        text = ["[coordinator]", 'node = "main"', f'listen = "{self.addresses["coordinator"]}"', 'log = "log"',
                "scan_period_ms = 500", "reconnect_max_ms = 200"]
        for name in self.names:
            text += ["[[resource_manager]]", f'name = "{name}"', f'address = "{self.addresses[name]}"',
                     f'data = "{name}"']
        self.configuration.write_text("\n".join(text) + "\n")
        self.processes = {}
        subprocess.run([OPTIONS.bin / "twofold-log", "init", self.directory / "log", "--node", "main"], check=True,
                       stdout=subprocess.DEVNULL)
        for name in self.names + ["coordinator"]:
            self.start(name)

    def start(self, name, *more):
        if name == "coordinator":
            command = [OPTIONS.bin / "twofold-coordinator", "--config", self.configuration]
        elif name == PARTICIPANT:
            command = participant_command(name, self.addresses[name], self.directory / name)
        else:
            command = [OPTIONS.bin / "twofold-rm", "--config", self.configuration, "--name", name]
        with open(self.directory / f"{name}.log", "ab") as log:
            process = subprocess.Popen([*map(str, command), *more], stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes[name] = process
        line = process.stdout.readline()
        if line != f"listening on {self.addresses[name]}\n":
            raise AssertionError(f"{name} did not start: {line!r}\n{self.logs()}")

    def kill(self, name):
        self.processes[name].kill()
        self.ended(name)

    def ended(self, name):
        process = self.processes.pop(name)
        process.stdout.close()
        return process.wait(PATIENCE_S)

    def remove(self):
        for name in list(self.processes):
            self.kill(name)
        shutil.rmtree(self.directory)

    def logs(self):
        return "\n".join(f"---- {file.stem}\n{file.read_text()}" for file in self.directory.glob("*.log"))

    def addressed(self, name):
        return ["--rm", f"{name}={self.addresses[name]}"]

    def twofold(self, *arguments):
        """What a command tells in JSON."""
        ran = subprocess.run([OPTIONS.bin / "twofold", *arguments, "--json"], capture_output=True, text=True,
                             timeout=PATIENCE_S)
        if ran.returncode:
            raise AssertionError(f"twofold {arguments}: {ran.stderr}\n{self.logs()}")
        return json.loads(ran.stdout)

    def content(self, name):
        scanned = self.twofold("scan", name, *self.addressed(name))
        return {entry["key"]: entry["value"] for entry in scanned}

    def left_over(self):
        coordinator = ["--coordinator", self.addresses["coordinator"]]
        numbers = self.twofold("stats", "coordinator", *coordinator)["coordinator"]["numbers"]
        left = [("coordinator", self.twofold("list", *coordinator)),
                ("coordinator", {name: numbers[name] for name in ("heuristics", "alarms") if numbers[name]})]
        for name in self.names:
            left.append((name, self.twofold("locks", name, *self.addressed(name))))
            left.append((name, self.twofold("in-doubt", name, *self.addressed(name))))
        return left

    def submit(self, transactions, concurrency=16, retries=1000):
        """Runs `twofold submit` in the background."""
        return Submission(self, transactions, concurrency, retries)


class Submission:
    def __init__(self, cluster, transactions, concurrency, retries):
        self.results_file = cluster.directory / "results.jsonl"
        self.results_file.write_text("")
        file = cluster.directory / "transactions.jsonl"
        file.write_text("".join(json.dumps(transaction) + "\n" for transaction in transactions))
        self.cluster = cluster
        self.process = subprocess.Popen(
            [OPTIONS.bin / "twofold", "submit", file, "--coordinator", cluster.addresses["coordinator"], "--output",
             self.results_file, "--concurrency", str(concurrency), "--retries", str(retries), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def told(self):
        return self.results_file.read_text().count("\n")

    def outcomes(self):
        """{request id: outcome}, once it has ended."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        if self.process.returncode:
            raise AssertionError(f"twofold submit: {errors}\n{self.cluster.logs()}")
        return {result["request_id"]: result for result in map(json.loads, self.results_file.read_text().splitlines())}


def account(number):
    return f"account/{number}"


def opening(names):
    return [{"request_id": f"open-{name}", "branches": [{"rm": name, "work": [
        {"op": "put", "key": account(number), "value": BALANCE} for number in range(ACCOUNTS)]}]} for name in names]


def transfer(identifier, amount, source, target, also=()):
    """Money from one (participant, account) to another, and a note of it at both."""
    def branch(end, change):
        name, number = end
        return {"rm": name, "work": [{"op": "add", "key": account(number), "by": change, "min": 0},
                                     {"op": "insert", "key": f"note/{identifier}", "value": change}]}
    return {"request_id": identifier, "branches": [branch(source, -amount), branch(target, amount), *also]}


class ExchangeOfTheDocument(unittest.TestCase):
    """docs/protocol.md, "One exchange, byte by byte": what the coordinator says there is answered as it says."""

    def setUp(self):
        document = (HERE.parent.parent / "docs" / "protocol.md").read_text()
        blocks = re.findall(r"```hex\n(.*?)```", document, re.DOTALL)
        self.blocks = [bytes.fromhex("".join(line.split("#")[0] for line in block.splitlines())) for block in blocks]
        self.assertEqual(len(self.blocks), 11)

    def meet(self, balance):
        """A participant in which the account has `balance`, and a connection to it."""
        import wire_pb2 as wire
        directory = Path(tempfile.mkdtemp(prefix="twofold-test-"))
        self.addCleanup(shutil.rmtree, directory)
        process = subprocess.Popen([*map(str, participant_command("payments", "127.0.0.1:0", directory))],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        host, port = process.stdout.readline().split()[-1].split(":")

        def connect():
            peer = socket.create_connection((host, int(port)), PATIENCE_S)
            self.addCleanup(peer.close)
            return peer, peer.makefile("rb")

        def frame(**body):
            payload = wire.Frame(**body).SerializeToString()
            length = struct.pack("<I", len(payload))
            return length + struct.pack("<I", zlib.crc32(length + payload)) + payload

        peer, file = connect()
        other = {"node": "other", "log_id": 1, "epoch": 1, "nonce": 1}
        peer.sendall(frame(hello=wire.Hello(version=1, role=wire.ROLE_COORDINATOR, name="other", session=1, **other)))
        self.answer(file)
        peer.sendall(frame(request=1, start=wire.Start(
            xid=wire.Xid(format_id=1415008070, gtrid=struct.pack(">QQQQ", 1, 1, 1, 1) + b"other", bqual=b"\0\0pay"),
            remaining_ms=60_000, then=wire.THEN_COMMIT_ONE_PHASE, work=wire.Work(operations=[wire.Operation(
                name="put", arguments=[wire.Argument(name="key", value=wire.Value(text="customer/c-1")),
                                       wire.Argument(name="value", value=wire.Value(integer=balance))])
            ]).SerializeToString())))
        file = self.answer(file) and connect()
        return file

    @staticmethod
    def answer(file):
        """The bytes of the next frame that is no heartbeat."""
        while True:
            header = file.read(8)
            payload = file.read(struct.unpack_from("<I", header)[0])
            if payload != b"\x2a\x00":
                return header + payload

    def begin(self, balance):
        peer, file = self.meet(balance)
        hello, welcome, mark, recover, nothing = self.blocks[:5]
        peer.sendall(hello)
        welcomed = self.answer(file)
        both_random = slice(8 + 16, 8 + 34)  # incarnation and store_id
        self.assertEqual(welcomed[:4], welcome[:4])
        self.assertEqual(welcomed[8:both_random.start], welcome[8:both_random.start])
        self.assertEqual(welcomed[both_random.stop:], welcome[both_random.stop:])
        peer.sendall(mark + recover)
        self.assertEqual(self.answer(file), nothing)
        return peer, file

    def test_commit(self):
        peer, file = self.begin(10_000)
        start, yes, commit, done, _, not_here = self.blocks[5:]
        peer.sendall(start)
        self.assertEqual(self.answer(file), yes)
        peer.sendall(commit)
        self.assertEqual(self.answer(file), done)
        payload = commit[8:].replace(b"\x08\x03", b"\x08\x04", 1)  # as request 4
        peer.sendall(commit[:4] + struct.pack("<I", zlib.crc32(commit[:4] + payload)) + payload)
        self.assertEqual(self.answer(file), not_here)

    def test_refusal(self):
        peer, file = self.begin(100)
        peer.sendall(self.blocks[5])
        self.assertEqual(self.answer(file), self.blocks[9])


class ParticipantTest(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.remove)
        opened = self.cluster.submit(opening(self.cluster.names)).outcomes()
        self.assertEqual({result["outcome"] for result in opened.values()}, {"committed"}, opened)

    def expect_quiet(self):
        def quiet():
            self.left = self.cluster.left_over()
            return not any(what for _, what in self.left)
        try:
            eventually(quiet, "no transaction, no lock, nothing in doubt, no branch that ended against the decision")
        except AssertionError as error:
            self.fail(f"{error}: {self.left}\n{self.cluster.logs()}")

    def expect_books(self, transactions, outcomes):
        """Every account has exactly what the committed transfers gave it, and only they left notes."""
        expected = {name: {account(number): BALANCE for number in range(ACCOUNTS)} for name in self.cluster.names}
        for transaction in transactions:
            if outcomes[transaction["request_id"]]["outcome"] != "committed":
                continue
            for branch in transaction["branches"]:
                for operation in branch["work"]:
                    if operation["op"] == "add":
                        expected[branch["rm"]][operation["key"]] += operation["by"]
                    elif operation["op"] in ("insert", "put"):
                        expected[branch["rm"]][operation["key"]] = operation["value"]
                    elif operation["op"] == "erase":
                        expected[branch["rm"]].pop(operation["key"], None)
        found = {name: self.cluster.content(name) for name in self.cluster.names}
        self.assertEqual(found, expected)
        total = sum(value for content in found.values() for key, value in content.items() if key.startswith("account"))
        self.assertEqual(total, len(self.cluster.names) * ACCOUNTS * BALANCE)


class TransfersWhileProcessesAreKilled(ParticipantTest):
    def test_books(self):
        choose = random.Random(7)
        transactions = []
        for number in range(400):
            source, target = choose.sample(self.cluster.names, 2)
            if number % 4:
                source, target = choose.sample([PARTICIPANT, choose.choice(STORES)], 2)
            third = next(name for name in self.cluster.names if name not in (source, target))
            readers = [{"rm": third, "work": [{"op": "get", "key": account(choose.randrange(ACCOUNTS))}]}]
            transactions.append(transfer(f"transfer-{number}", choose.choice([1, 7, 50, 900]),
                                         (source, choose.randrange(ACCOUNTS)), (target, choose.randrange(ACCOUNTS)),
                                         readers if number % 3 == 0 else []))
            if number % 10 == 0:  # one branch: committed in one phase
                transactions.append({"request_id": f"single-{number}", "branches": [{"rm": PARTICIPANT, "work": [
                    {"op": "put", "key": f"single/{number}", "value": f"text {number}"}]}]})
        submission = self.cluster.submit(transactions)
        for kill in range(1, 7):
            eventually(lambda: submission.told() >= kill * len(transactions) // 8, f"results for kill {kill}")
            self.cluster.kill("coordinator" if kill == 4 else PARTICIPANT)
            self.cluster.start("coordinator" if kill == 4 else PARTICIPANT)
        outcomes = submission.outcomes()
        kinds = {result["outcome"] for result in outcomes.values()}
        self.assertLessEqual(kinds, {"committed", "aborted"})
        for result in outcomes.values():
            if result["outcome"] == "aborted":  # only for want of cover
                self.assertEqual(result["class"], "refused", result)
        self.assertGreater(sum(result["outcome"] == "committed" for result in outcomes.values()), 200)
        self.expect_quiet()
        self.expect_books(transactions, outcomes)
        # What it keeps outlives an orderly end as well.
        self.cluster.processes[PARTICIPANT].terminate()
        self.assertEqual(self.cluster.ended(PARTICIPANT), 0, self.cluster.logs())
        self.cluster.start(PARTICIPANT)
        self.expect_books(transactions, outcomes)


class InteractiveTransactions(ParticipantTest):
    """The work comes from a client, over a connection of its own to each participant."""

    def client(self, *arguments):
        ran = subprocess.run([OPTIONS.bin / "twofold", *arguments, "--coordinator",
                              self.cluster.addresses["coordinator"], "--json"],
                             capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertTrue(ran.stdout, ran.stderr)
        return json.loads(ran.stdout)

    def begin(self):
        return self.client("begin")["id"]

    def add(self, transaction, name, by):
        self.client("enlist", transaction, name)
        work = [{"op": "add", "key": account(1), "by": by, "min": 0}]
        return self.client("work", transaction, name, json.dumps(work))

    def commit(self, transaction, *names):
        counts = [argument for name in names for argument in ("--works", f"{name}=1")]
        return self.client("commit", transaction, *counts, "--wait")["outcome"]

    def balances(self):
        return [self.cluster.content(name)[account(1)] for name in ("left", PARTICIPANT)]

    def test_transfer(self):
        transaction = self.begin()
        self.assertEqual(self.add(transaction, "left", 5)["results"], [BALANCE + 5])
        self.assertEqual(self.add(transaction, PARTICIPANT, -5)["results"], [BALANCE - 5])
        self.assertEqual(self.balances(), [BALANCE, BALANCE])
        self.assertEqual(self.commit(transaction, "left", PARTICIPANT), "committed")
        self.assertEqual(self.balances(), [BALANCE + 5, BALANCE - 5])
        self.expect_quiet()

    def test_work_that_fails_is_not_committed(self):
        transaction = self.begin()
        self.add(transaction, "left", 5)
        self.assertEqual(self.add(transaction, PARTICIPANT, -BALANCE - 1)["code"], "XA_RBINTEGRITY")
        self.assertEqual(self.commit(transaction, "left", PARTICIPANT), "aborted")
        self.assertEqual(self.balances(), [BALANCE, BALANCE])
        self.expect_quiet()

    def test_work_that_a_crash_lost_is_not_committed(self):
        transaction = self.begin()
        self.add(transaction, "left", 5)
        self.add(transaction, PARTICIPANT, -5)
        self.cluster.kill(PARTICIPANT)
        self.cluster.start(PARTICIPANT)
        self.assertEqual(self.commit(transaction, "left", PARTICIPANT), "aborted")
        self.assertEqual(self.balances(), [BALANCE, BALANCE])
        self.expect_quiet()


@unittest.skipIf(os.geteuid() != 0, "only root may mount a small file system")
class DiskWithoutRoom(ParticipantTest):
    def setUp(self):
        super().setUp()
        self.cluster.kill(PARTICIPANT)
        data = self.cluster.directory / PARTICIPANT
        moved = data.rename(self.cluster.directory / "moved")
        self.disk = SmallDisk(data)
        self.addCleanup(self.disk.remove)
        shutil.copytree(moved, data, dirs_exist_ok=True)
        self.cluster.start(PARTICIPANT)

    def log(self, name):
        return (self.cluster.directory / f"{name}.log").read_text()

    def test_it_refuses_and_goes_on(self):
        def run(number):
            transaction = transfer(f"transfer-{number}", 1, (PARTICIPANT, 1), ("left", 1))
            single = {"request_id": f"single-{number}", "branches": [
                {"rm": PARTICIPANT, "work": [{"op": "put", "key": "single", "value": number}]}]}
            transactions.extend([transaction, single])
            results = self.cluster.submit([transaction, single], 1, 0).outcomes()
            outcomes.update(results)
            return [(result["outcome"], result["class"]) for _, result in sorted(results.items())]

        transactions, outcomes = [], {}
        eventually(lambda: run(len(transactions))[0][0] == "committed", "the link is up")
        self.disk.fill()
        for number in range(1_000, 1_020):
            if run(number) == [("aborted", "space")] * 2:
                break
        else:
            self.fail(f"the disk was not full: {outcomes}\n{self.cluster.logs()}")
        self.assertIsNone(self.cluster.processes[PARTICIPANT].poll())
        self.assertIn("no room on the disk", self.log(PARTICIPANT))

        # What must be written waits: a new epoch, whose session begins when it is. Both sides say why.
        self.cluster.kill("coordinator")
        self.cluster.start("coordinator")
        eventually(lambda: "the disk has no room" in self.log("coordinator"), "the coordinator says why")
        self.disk.free()
        self.expect_quiet()
        eventually(lambda: [how for how, _ in run(len(transactions))] == ["committed"] * 2, "it goes on when there is room")
        self.expect_quiet()
        self.expect_books(transactions, outcomes)


class CrashPoints(ParticipantTest):
    def crash(self, point, transaction):
        self.cluster.kill(PARTICIPANT)
        self.cluster.start(PARTICIPANT, "--crash-at", point)
        submission = self.cluster.submit([transaction])
        self.assertEqual(self.cluster.ended(PARTICIPANT), -9, f"{point} was not reached: {self.cluster.logs()}")
        self.cluster.start(PARTICIPANT)
        outcomes = submission.outcomes()
        self.expect_quiet()
        return outcomes

    def test_each_point_of_two_phases(self):
        transactions, outcomes = [], {}
        for point in ("before-vote", "after-vote", "before-commit", "after-commit"):
            transactions.append(transfer(f"two-{point}", 10, (PARTICIPANT, 1), ("left", 1)))
            outcomes.update(self.crash(point, transactions[-1]))
            self.assertEqual(outcomes[f"two-{point}"]["outcome"], "committed", outcomes)
            self.expect_books(transactions, outcomes)

    def test_each_point_of_one_phase(self):
        transactions, outcomes = [], {}
        for point in ("before-commit", "after-commit"):
            transactions.append({"request_id": f"one-{point}", "branches": [{"rm": PARTICIPANT, "work": [
                {"op": "insert", "key": f"one/{point}", "value": 1}]}]})
            outcomes.update(self.crash(point, transactions[-1]))
            self.assertEqual(outcomes[f"one-{point}"]["outcome"], "committed", outcomes)
            self.expect_books(transactions, outcomes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True, help="directory of the programs")
    parser.add_argument("--wire", type=Path, required=True, help="directory of wire_pb2.py")
    OPTIONS, rest = parser.parse_known_args()
    sys.path.insert(0, str(OPTIONS.wire))
    try:
        import google.protobuf  # noqa: F401
    except ImportError:
        # ctest knows the word (SKIP_REGULAR_EXPRESSION)
        print("skipped: python3-protobuf is missing; ./dev test installs it")
        sys.exit(0)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
