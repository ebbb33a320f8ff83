"""Work, results and refusals (docs/protocol.md), with the operations of docs/store.md."""
import json

from google.protobuf.message import DecodeError

import wire_pb2 as wire

LOCKS_MAX, REFUSALS_MAX = 10_000, 1_000
KEY_BYTES_MAX, TEXT_BYTES_MAX = 400, 1 << 20
FOR_PEOPLE = 200  # characters of a found or wanted value that a refusal shows


class NotUnderstood(Exception):
    def __init__(self, index, op, why, key=""):
        self.refusal = wire.Refusal(operation=index, op=op, check="invalid", key=key, limit=why)


# operation: (locks exclusively, arguments that must be there, arguments that may be)
OPERATIONS = {
    "get": (False, {"key"}, set()), "put": (True, {"key", "value"}, set()),
    "insert": (True, {"key", "value"}, set()), "erase": (True, {"key"}, set()),
    "add": (True, {"key", "by"}, {"min", "max"}), "expect": (False, {"key", "value"}, set()),
}


def take_apart(encoded):
    """A list of (operation, arguments) of encoded Work. Raises NotUnderstood."""
    try:
        work = wire.Work.FromString(encoded)
    except DecodeError:
        raise NotUnderstood(0, "", "not an encoded Work message") from None
    operations = []
    for index, operation in enumerate(work.operations):
        name, arguments = operation.name, {}

        def refuse(why):
            key = arguments.get("key")
            raise NotUnderstood(index, name, why, key if isinstance(key, str) else "")

        if name not in OPERATIONS:
            refuse(f"no operation is called '{name}'")
        for argument in operation.arguments:
            if argument.name in arguments:
                refuse(f"argument '{argument.name}' is given twice")
            kind = argument.value.WhichOneof("kind")
            if kind not in ("text", "integer", "null"):
                refuse(f"argument '{argument.name}': neither an integer nor a text")
            arguments[argument.name] = None if kind == "null" else getattr(argument.value, kind)
        _, needed, optional = OPERATIONS[name]
        if not needed <= arguments.keys() <= needed | optional:
            refuse(f"takes {', '.join(sorted(needed | optional))}")
        for argument, value in arguments.items():
            size = len(value.encode()) if isinstance(value, str) else 0
            if argument == "key" and not (isinstance(value, str) and 1 <= size <= KEY_BYTES_MAX):
                refuse(f"a key is a text of 1 to {KEY_BYTES_MAX} bytes")
            if argument == "value" and (size > TEXT_BYTES_MAX or value is None and name != "expect"):
                refuse(f"a value is an integer or a text of up to {TEXT_BYTES_MAX} bytes")
            if argument in ("by", "min", "max") and not isinstance(value, int):
                refuse(f"'{argument}' is an integer")
        operations.append((name, arguments))
    return operations


def locks_of(operations):
    """{key: exclusive}, each key in its strongest mode."""
    modes = {}
    for name, arguments in operations:
        modes[arguments["key"]] = modes.get(arguments["key"], False) or OPERATIONS[name][0]
    if len(modes) > LOCKS_MAX:
        raise NotUnderstood(LOCKS_MAX, operations[0][0], f"more than {LOCKS_MAX} keys")
    return modes


def do_work(operations, data, writes):
    """Carries them out on `data` as changed by `writes` (None: erased), which it extends.
    Gives the results and the refusals: every check that fails, and all that follows it as well."""
    results, refusals = [], []
    for index, (name, arguments) in enumerate(operations):
        key = arguments["key"]
        found = writes[key] if key in writes else data.get(key)
        result, failed = None, []  # (check, what was asked for)
        if name == "get":
            result = found
        elif name == "put":
            writes[key] = arguments["value"]
        elif name == "insert":
            if found is not None:
                failed = [("present", "")]
            else:
                writes[key] = arguments["value"]
        elif name == "erase":
            result = found is not None
            if result:
                writes[key] = None
        elif name == "expect":
            if found != arguments["value"]:
                failed = [("expect", for_people(arguments["value"]))]
        elif found is None:
            failed = [("absent", str(arguments["by"]))]
        elif not isinstance(found, int):
            failed = [("type", "int64")]
        else:
            result = found + arguments["by"]
            if not -2**63 <= result < 2**63:
                failed = [("overflow", str(arguments["by"]))]
            if result < arguments.get("min", result):
                failed.append(("min", str(arguments["min"])))
            if result > arguments.get("max", result):
                failed.append(("max", str(arguments["max"])))
            if not failed:
                writes[key] = result
        value = "" if found is None else for_people(found)
        refusals += [wire.Refusal(operation=index, op=name, check=check, key=key, value=value, limit=limit)
                     for check, limit in failed]
        results.append(None if failed else result)
    return results, refusals[:REFUSALS_MAX]


def for_people(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= FOR_PEOPLE else text[:FOR_PEOPLE] + "…"


def value_message(value):
    if value is None:
        return wire.Value(null=True)
    if isinstance(value, bool):
        return wire.Value(boolean=value)
    return wire.Value(text=value) if isinstance(value, str) else wire.Value(integer=value)
