#!/usr/bin/python3
"""Writes the seeds of the targets whose input is bytes: tests/fuzz/corpus/{frames,messages,records,xids}.

Run it after a change of wire.proto or record.proto: it makes a message of every kind, every field set.
Seeds of texts are written by hand; what a fuzzer has found has a name of its own and stays.
"""
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

FUZZ = pathlib.Path(__file__).resolve().parent
SOURCE = FUZZ.parent.parent

GTRID = struct.pack(">QQQQ", 0x0102030405060708, 3, 0xFFFEFDFCFBFAF9F8, 17) + b"main"
BQUAL = struct.pack(">H", 1) + b"payments"
FORMAT = 0x54574F46


def compile_protos(folder):
    for proto in ("protocol/wire.proto", "log/record.proto"):
        path = SOURCE / proto
        subprocess.run(["protoc", f"--proto_path={path.parent}", f"--python_out={folder}", path.name],
                       check=True)
    sys.path.insert(0, folder)


def encoded_work(wire):
    work = wire.Work()
    operation = work.operations.add(name="add")
    operation.arguments.add(name="key").value.text = "customer/c-1"
    operation.arguments.add(name="by").value.integer = -2350
    every_kind(operation.arguments.add(name="list").value)
    return work.SerializeToString()


def every_kind(value):
    values = value.list.values
    values.add().null = True
    values.add().boolean = True
    values.add().integer = -1
    values.add().real = 0.5
    values.add().text = "ü"
    values.add().raw = b"\x00\xff"
    values.add().list.values.add().integer = 7


def fill(message, pick, wire=None):
    """Sets every field; of a oneof the alternative number `pick`."""
    if message.DESCRIPTOR.name == "Value":
        return every_kind(message)
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.fields[pick % len(oneof.fields)] is not field:
            continue
        repeated = field.label == field.LABEL_REPEATED
        if field.type == field.TYPE_MESSAGE:
            inner = getattr(message, field.name)
            fill(inner.add() if repeated else inner, pick, wire)
            if not repeated:
                inner.SetInParent()
            continue
        value = sample(field, wire)
        if repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)


def sample(field, wire):
    special = {"format_id": FORMAT, "gtrid": GTRID, "bqual": BQUAL, "bquals": BQUAL, "vote": -4,
               "code": 6, "verdict": 2, "reason": 1, "heuristic": 6, "version": 1, "format": 1}
    if field.type == field.TYPE_BOOL:
        return True
    if field.type == field.TYPE_ENUM:
        return field.enum_type.values[-1].number
    if field.name in special:
        return special[field.name]
    if field.type == field.TYPE_BYTES:
        if wire is not None and field.name == "work":
            return encoded_work(wire)
        if wire is not None and field.name == "results":
            results = wire.Results()
            every_kind(results.values.add())
            return results.SerializeToString()
        return field.name.encode()
    if field.type == field.TYPE_STRING:
        return field.name + "/ü"
    if field.type == field.TYPE_DOUBLE:
        return 1.5
    return field.number


def write(target, name, data):
    folder = FUZZ / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def messages():
    import wire_pb2 as wire
    frames = {}
    for body in wire.Frame.DESCRIPTOR.oneofs_by_name["body"].fields:
        seen = set()
        for pick in range(3):
            frame = wire.Frame(request=7)
            fill(getattr(frame, body.name), pick, wire)
            getattr(frame, body.name).SetInParent()
            data = frame.SerializeToString()
            if data not in seen:
                seen.add(data)
                frames[body.name + (f"_{pick}" if pick else "")] = data
    # Sent to nobody in particular, and from a newer Twofold: a body and a field of unknown numbers.
    frames["unknown_body"] = wire.Frame(request=7).SerializeToString() + b"\xfa\x07\x00"
    frames["unknown_field"] = frames["rollback"] + b"\xf8\x07\x01"
    for name, data in frames.items():
        write("messages", name, data)
    return frames


def frame_streams(messages):
    def sealed(payload):
        assert len(payload) < 0x7F
        return bytes([0x80 + len(payload)]) + payload

    def raw(data):
        assert len(data) < 0x80
        return bytes([len(data)]) + data

    def frame(payload):
        length = struct.pack("<I", len(payload))
        return length + struct.pack("<I", zlib.crc32(length + payload)) + payload

    one, two = messages["rollback"], messages["heartbeat"]
    bytewise, whole, odd = b"\x01\x01", b"\x00", b"\x03\x00\x09\x07"
    write("frames", "one", b"\x04" + whole + sealed(two))
    write("frames", "bytewise", b"\x04" + bytewise + sealed(two) + sealed(one) + sealed(b""))
    write("frames", "as_sent", b"\x04" + odd + raw(frame(two)) + raw(frame(one)))
    write("frames", "corrupt", b"\x03" + odd + sealed(two) + raw(frame(two)[:-1] + b"?") + sealed(one))
    write("frames", "too_large", b"\x02" + odd + sealed(b"x") + sealed(b"x" * 17) + sealed(b"y"))
    write("frames", "cut", b"\x04" + bytewise + sealed(two) + raw(frame(one)[:20]))
    write("frames", "across_pieces", b"\x04\x01\x21" + b"".join(sealed(b"f" * n) for n in range(1, 60, 3)))
    write("frames", "nothing_fits", b"\x00" + whole + sealed(b"") + sealed(b"x"))
    write("frames", "large", b"\x05\x01\xff" + sealed(one) + b"\xffL\xa0" + sealed(two))


def records():
    import record_pb2 as record
    transaction = struct.pack(">QQ", 3, 17)
    kinds = [(1, "Identity", b"identity"), (2, "Floor", b"floor"), (3, "Epoch", transaction[:8]),
             (4, "Intent", transaction), (5, "Commit", transaction), (6, "Refusal", transaction),
             (7, "End", transaction), (8, "Heuristic", b""), (9, "Served", b"served"),
             (10, "Backup", b"backup"), (11, "Former", b"former"),
             (12, "Participants", b"participants")]
    assert len(kinds) == len([m for m in record.DESCRIPTOR.message_types_by_name
                              if m not in ("Request", "Branch", "FailedCheck")])
    for kind, message_name, key in kinds:
        message = getattr(record, message_name)()
        fill(message, 0)
        if message_name == "Participants":
            message.all[0].state = 2
        how = 3 if message_name == "Heuristic" else 1
        head = bytes([how, len(key)]) + key
        row = bytes([kind]) + message.SerializeToString()
        write("records", message_name.lower(), head + row)
        write("records", message_name.lower() + "_empty", head + row[:1])
    row = b"\x01\x03\x09\x88\x77\x66\x55\x44\x33\x22\x11\x50\x9c\xdc\x3f"  # docs/log_format.md
    write("records", "raw", b"\x00\x08" + struct.pack(">Q", 7) + row)
    write("records", "raw_cut", b"\x00\x08" + struct.pack(">Q", 7) + row[:5])
    write("records", "newer_version", b"\x00\x00\x02" + row[1:])
    write("records", "newer_kind", b"\x01\x00\x63")


def xids():
    text = "1415008070.AQIDBAUGBwgAAAAAAAAAA__-_fz7-vn4AAAAAAAAABFtYWlu.AAFwYXltZW50cw"
    texts = {"ours": text, "gtrid": text.split(".")[1], "id": "3.17", "short": "0.YQ.",
             "largest_id": "18446744073709551615.18446744073709551615",
             "longest": "2147483647." + "_" * 85 + "w." + "_" * 85 + "w",
             "padded": "1.YQ==.YQ", "unused_bits": "1.YR.YQ", "leading_zero": "01.YQ.YQ",
             "too_long": "1." + "A" * 88 + ".YQ", "control": "1.\x1b[2J.YQ"}
    for name, value in texts.items():
        write("xids", name, value.encode())
    write("xids", "bytes_gtrid", GTRID)
    write("xids", "bytes_bqual", BQUAL)
    write("xids", "bytes_xid", struct.pack(">IB", FORMAT, len(GTRID)) + GTRID + BQUAL)
    write("xids", "bytes_negative_format", struct.pack(">iB", -1, 1) + b"gb")
    write("xids", "bytes_largest", struct.pack(">IB", 0x7FFFFFFF, 64) + b"\xff" * 128)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as generated:
        compile_protos(generated)
        frame_streams(messages())
        records()
    xids()
