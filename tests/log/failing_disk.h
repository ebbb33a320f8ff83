// Makes the system calls that LMDB writes with fail, for the files of this process. The test
// program's own definitions of pwrite, writev and fdatasync take precedence over libc's.
#pragma once

#include <atomic>

namespace twofold::test {

// 0: works. Otherwise the errno that the call gives from now on.
inline std::atomic<int> fail_sync{0};
inline std::atomic<int> fail_data_write{0};  // of data pages
inline std::atomic<int> fail_meta_write{0};  // of LMDB's meta pages, after the data was synced

}  // namespace twofold::test
