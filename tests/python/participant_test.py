#!/usr/bin/env python3
"""The Python participant in real clusters: a coordinator, two stores, and processes that are killed."""
import argparse
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = None  # --bin, --wire
SKIPPED = 77
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


class Cluster:
    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="twofold-test-"))
        self.names = STORES + [PARTICIPANT]
        ports = free_ports(len(self.names) + 1)
        self.addresses = dict(zip(["coordinator"] + self.names, (f"127.0.0.1:{port}" for port in ports)))
        self.configuration = self.directory / "twofold.toml"
        text = ["[coordinator]", 'node = "main"', f'listen = "{self.addresses["coordinator"]}"', 'log = "log"',
                "scan_period_ms = 500"]
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
            command = [sys.executable, HERE / "participant.py", "--wire", OPTIONS.wire, "--name", name, "--listen",
                       self.addresses[name], "--data", self.directory / name]
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
        left = [("coordinator", self.twofold("list", "--coordinator", self.addresses["coordinator"]))]
        for name in self.names:
            left.append((name, self.twofold("locks", name, *self.addressed(name))))
            left.append((name, self.twofold("in-doubt", name, *self.addressed(name))))
        return left

    def submit(self, transactions, concurrency=16):
        """Runs `twofold submit` in the background."""
        return Submission(self, transactions, concurrency)


class Submission:
    def __init__(self, cluster, transactions, concurrency):
        self.results_file = cluster.directory / "results.jsonl"
        self.results_file.write_text("")
        file = cluster.directory / "transactions.jsonl"
        file.write_text("".join(json.dumps(transaction) + "\n" for transaction in transactions))
        self.cluster = cluster
        self.process = subprocess.Popen(
            [OPTIONS.bin / "twofold", "submit", file, "--coordinator", cluster.addresses["coordinator"], "--output",
             self.results_file, "--concurrency", str(concurrency), "--retries", "1000", "--json"],
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
            eventually(quiet, "no transaction, no lock, nothing in doubt")
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
    try:
        import google.protobuf  # noqa: F401
    except ImportError:
        print("skipped: python3-protobuf is missing; ./dev test installs it")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
