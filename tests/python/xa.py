"""X/Open's codes, and Xids of Twofold's (docs/protocol.md, "Verbs" and "Xids")."""
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode

import wire_pb2 as wire

XA_OK, XA_RDONLY, XA_RETRY, XA_HEURCOM = 0, 3, 4, 7
XA_RBROLLBACK, XA_RBDEADLOCK, XA_RBINTEGRITY, XA_RBOTHER, XA_RBTIMEOUT, XA_RBTRANSIENT = 100, 102, 103, 104, 106, 107
XAER_NOTA, XAER_INVAL, XAER_PROTO, XAER_DUPID = -4, -5, -6, -8

FORMAT_ID = 1415008070


def is_xid(message):
    """Whether it is any xid at all, by X/Open's rules."""
    return message.format_id >= 0 and 1 <= len(message.gtrid) <= 64 and len(message.bqual) <= 64


class Xid:
    """An xid of Twofold's; ValueError for any other."""

    def __init__(self, message):
        gtrid, bqual = message.gtrid, message.bqual
        if not is_xid(message) or message.format_id != FORMAT_ID or len(gtrid) < 33:
            raise ValueError("not an xid of Twofold's")
        self.gtrid, self.bqual = gtrid, bqual
        self.log_id, self.epoch, self.nonce, self.sequence = struct.unpack(">QQQQ", gtrid[:32])
        self.node = gtrid[32:]
        self.txn = (self.epoch, self.sequence)

    def key(self):
        return self.gtrid, self.bqual

    def text(self):
        return ".".join([str(FORMAT_ID)] + [urlsafe_b64encode(part).rstrip(b"=").decode() for part in self.key()])

    def message(self):
        return wire.Xid(format_id=FORMAT_ID, gtrid=self.gtrid, bqual=self.bqual)

    @staticmethod
    def parse(text):
        form, *parts = text.split(".")
        gtrid, bqual = (urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts)
        return Xid(wire.Xid(format_id=int(form), gtrid=gtrid, bqual=bqual))
