// A store's data on disk: making it, and knowing it again. What the rows hold is store_rows.h's.
#pragma once

#include <cstdint>
#include <memory>

#include "log/lmdb.h"
#include "resource_manager/adapters/store.h"

namespace twofold::resource_manager::store {

struct Data {
  std::unique_ptr<lmdb::Environment> environment;
  std::uint64_t store_id = 0;
};

// Makes it if the directory is missing or empty. Errors as open_store(); throws
// std::runtime_error for data that cannot be made (starting up).
Result<Data> open_data(const StoreOptions& options);

}  // namespace twofold::resource_manager::store
