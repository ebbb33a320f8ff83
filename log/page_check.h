// Walks every page that a snapshot of an LMDB file reaches, by pread and not through the map, so
// that a truncated or overwritten file is an error to report and not a SIGBUS or an abort inside
// LMDB.
//
// Knows LMDB's on-disk format 1 (0.9.x): pages, nodes, the free list. Checks that each page lies in
// the file, carries its own number, is of the kind its parent expects and is reached once; that
// each node lies in its page; that free pages are not in use.
#pragma once

#include <lmdb.h>

#include <string>

#include "protocol/result.h"

namespace twofold::lmdb {

// `reader` pins the snapshot: works beside a running writer. damaged: says which page and why.
Result<void> check_pages(MDB_txn* reader, const std::string& file);

}  // namespace twofold::lmdb
